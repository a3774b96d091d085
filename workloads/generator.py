"""Generators: what the clients do next, as immutable values.

Theory of operation. A generator answers two calls and changes in neither:

`op(ctx)`
    What should happen now? The answer is one of
      - an `Op`, which is sent at once, on the thread that it names; that thread is free in `ctx`;
      - a `Wait`: nothing now. Ask again at `until_ns` (nanoseconds, the same clock as `ctx.time`), or as soon as
        anything happened; with `until_ns` None only an event can change the answer;
      - None: never anything again.
    Beside the answer comes the generator to ask next time. It is adopted whatever the answer was, except by a
    combinator that had asked several and took another one's op.

`update(ctx, event)`
    An event of a client was recorded: an invocation, or a completion. Returns the generator that knows of it. `ctx`
    is the state after the event, in which a thread whose operation has completed is free.

The rules that combinators rely on:
  1. Both are functions of their arguments alone. Randomness comes from a `Seed` that the generator carries.
  2. An op is answered only when it is due, never for later. So whoever holds an op back (a rate, a barrier) may drop
     it and its successor, and ask the old generator again: the op will still be there.
  3. A generator that is asked with no free thread answers `Wait` or None.
  4. An op that is `prompt` belongs to work already begun (the release at the end of a hold) and is not slowed down
     by a rate; it is counted, so that the rate holds on average.

The model is that of Jepsen's generators (jepsen.generator), with two changes. There an op may carry a time in the
future, and is thrown away if something happens first, and with it whatever its generator had learnt; here waiting is
an answer of its own. And there ops without a thread are placed by the outermost context; here the generator at the
leaf does it, so every op is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from checker.history import Event


class Op(msgspec.Struct, frozen=True):
    """One call for a client to make."""

    thread: int
    f: str
    key: str | None = None
    value: dict[str, Any] | None = None
    prompt: bool = False


class Wait(msgspec.Struct, frozen=True):
    """Nothing now; ask again at `until_ns`, or after an event."""

    until_ns: int | None = None


#: Nothing before something happens.
PENDING = Wait()


class Context(msgspec.Struct, frozen=True):
    """What a generator may know of the run.

    `threads` are those that it may use, `free` those among them with nothing to do, the longest idle first.
    `processes` gives the process number of every thread of the run.
    """

    time: int
    threads: tuple[int, ...]
    free: tuple[int, ...]
    processes: tuple[int, ...]

    def thread_of(self, event: Event) -> int | None:
        """The thread behind a client's event, None for another one's."""
        return event.process % len(self.processes) if isinstance(event.process, int) else None

    def only(self, thread: int) -> Context:
        return Context(self.time, (thread,), (thread,) if thread in self.free else (), self.processes)

    def among(self, threads: frozenset[int]) -> Context:
        return Context(
            self.time,
            tuple(thread for thread in self.threads if thread in threads),
            tuple(thread for thread in self.free if thread in threads),
            self.processes,
        )


class Generator(Protocol):
    def op(self, ctx: Context) -> Answer:
        """What to do now, and the generator to ask next."""

    def update(self, ctx: Context, event: Event) -> Generator:
        """The generator after `event`."""


Answer = tuple[Op | Wait | None, Generator]


@dataclass(frozen=True, slots=True)
class Nothing:
    """The generator that is over."""

    def op(self, ctx: Context) -> Answer:
        return None, self

    def update(self, ctx: Context, event: Event) -> Generator:
        return self


@dataclass(frozen=True, slots=True)
class Once:
    """One call, on the thread that has been idle longest. `make` gets the thread and must be pure."""

    make: Callable[[int], Op]

    def op(self, ctx: Context) -> Answer:
        if not ctx.free:
            return PENDING, self
        return self.make(ctx.free[0]), Nothing()

    def update(self, ctx: Context, event: Event) -> Generator:
        return self


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same call without end; `make` gets the thread and how many came before."""

    make: Callable[[int, int], Op]
    count: int = 0

    def op(self, ctx: Context) -> Answer:
        if not ctx.free:
            return PENDING, self
        return self.make(ctx.free[0], self.count), Repeat(self.make, self.count + 1)

    def update(self, ctx: Context, event: Event) -> Generator:
        return self


def sooner(left: Wait, right: Wait) -> Wait:
    """The wait that is over first."""
    if left.until_ns is None:
        return right
    if right.until_ns is None:
        return left
    return left if left.until_ns <= right.until_ns else right
