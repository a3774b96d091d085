"""A client of a lock service as a generator for one thread: turns, made of steps, with answers acted upon.

A client is sequential, and what it does next depends on what it was told: a lock that was granted is held and given
back, one that was refused is not. A `Behaviour` says this in two pure functions; `client` runs it. What a client
still means to do in its turn is its agenda, a tuple of steps, the first of which is the one being done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import msgspec

from checker.history import Event
from workloads.generator import PENDING, Answer, Context, Generator, Op, Wait
from workloads.seeds import Seed

NS_PER_MS = 1_000_000

#: Refusals that are answers about the lock; any other `fail` says only that nothing happened.
OBSERVATIONS = frozenset({"held", "not-held"})


@dataclass(frozen=True, slots=True)
class Step:
    """One call, `after_ns` after the end of the step before it. `attempt` counts from 0 where a behaviour tries
    again."""

    f: str
    key: str
    value: dict[str, Any] | None = None
    after_ns: int = 0
    attempt: int = 0


Agenda = tuple[Step, ...]


class Behaviour(Protocol):
    """What a kind of client does. `seed` is the turn's own."""

    def begin(self, seed: Seed, turn: int) -> Agenda | None:
        """The steps with which the turn (numbered from 0) begins, at least one; None when there are no more turns."""

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        """What is left to do after `event`, which completed the first step of `agenda` as `ok` or `fail`."""


@runtime_checkable
class Persistent(Behaviour, Protocol):
    """One that also goes on after an unknown outcome, over a new connection and under a new process number."""

    def persist(self, agenda: Agenda) -> Agenda:
        """What is left to do after an `info` ended the first step of `agenda`."""


def client(behaviour: Behaviour, seed: Seed) -> Generator:
    """Turn after turn of `behaviour` on one thread. The first step of a turn may be held back by a rate, the others
    are prompt. An `info` ends the turn, as the process is retired and its successor knows nothing; unless the behaviour
    is `Persistent`."""
    return _Client(behaviour, seed)


def retried(step: Step, after_ns: int) -> Step:
    return replace(step, after_ns=after_ns, attempt=step.attempt + 1)


class _Client(msgspec.Struct, frozen=True):
    behaviour: Behaviour
    seed: Seed
    #: Turns begun.
    turns: int = 0
    agenda: Agenda = ()
    due_ns: int = 0
    waiting: bool = False

    def op(self, ctx: Context) -> Answer:
        if self.waiting or not ctx.free:
            return PENDING, self
        thread = ctx.free[0]
        if self.agenda:
            if ctx.time < self.due_ns:
                return Wait(self.due_ns), self
            step = self.agenda[0]
            op = Op(thread, step.f, step.key, step.value, prompt=True)
            return op, _Client(self.behaviour, self.seed, self.turns, self.agenda, waiting=True)
        agenda = self.behaviour.begin(self.seed.split(self.turns), self.turns)
        if agenda is None:
            return None, self
        op = Op(thread, agenda[0].f, agenda[0].key, agenda[0].value)
        return op, _Client(self.behaviour, self.seed, self.turns + 1, agenda, waiting=True)

    def update(self, ctx: Context, event: Event) -> Generator:
        if not self.waiting or event.type == "invoke":
            return self
        agenda: Agenda = ()
        if event.type == "info":
            if isinstance(self.behaviour, Persistent):
                agenda = self.behaviour.persist(self.agenda)
        else:
            agenda = self.behaviour.react(self.seed.split(self.turns - 1), self.agenda, event)
        due_ns = event.time + agenda[0].after_ns if agenda else 0
        return _Client(self.behaviour, self.seed, self.turns, agenda, due_ns)
