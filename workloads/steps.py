"""Clients that do what a list says, at the moments that it names, and nothing else.

A run that failed becomes such a list, from which what is not needed can be left out; a bug report can begin with one.
Steps are taken in the order of the list, each at its moment or as soon after it as its client is free. A step that is
about a grant waits until the acquire of that name has come back, and is left out when that got none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from checker.history import Event
from workloads.generator import PENDING, Answer, Context, Generator, Op, Wait, sooner
from workloads.spec import Step

#: What a step may do.
ACTIONS = ("acquire", "release", "inspect", "write", "read")


def scripted(steps: Sequence[Step]) -> Generator:
    """All steps, over all threads: client i is thread i."""
    return _Script(tuple(steps))


class _Script(msgspec.Struct, frozen=True):
    """`left` are the steps not yet begun, `running` those that are, by thread. `grants` has the token, or None, of each
    acquire with a name that has come back."""

    left: tuple[Step, ...]
    running: Mapping[int, Step] = {}
    grants: Mapping[str, int | None] = {}

    def op(self, ctx: Context) -> Answer:
        wait = PENDING
        left = self.left
        busy = set(self.running)
        for step in self.left:
            if step.client in busy:
                continue
            due = self._due(step, left)
            if due is None:
                left = tuple(one for one in left if one is not step)
                continue
            busy.add(step.client)
            if step.client not in ctx.free or not due:
                continue
            if ctx.time < step.at_ns:
                wait = sooner(wait, Wait(step.at_ns))
                continue
            after = tuple(one for one in left if one is not step)
            op = Op(step.client, step.do, step.key, self._value(step))
            return op, _Script(after, {**self.running, step.client: step}, self.grants)
        return (wait if left else None), _Script(left, self.running, self.grants)

    def update(self, ctx: Context, event: Event) -> Generator:
        thread = ctx.thread_of(event)
        if event.type == "invoke" or thread is None or thread not in self.running:
            return self
        running = dict(self.running)
        step = running.pop(thread)
        if step.do != "acquire" or step.grant is None:
            return _Script(self.left, running, self.grants)
        token = (event.value or {}).get("token") if event.type == "ok" else None
        return _Script(self.left, running, {**self.grants, step.grant: token})

    def _due(self, step: Step, left: Sequence[Step]) -> bool | None:
        """Whether the step may be taken once its moment has come; None: never."""
        if step.grant is None or step.do == "acquire":
            return True
        if step.grant in self.grants:
            return None if self.grants[step.grant] is None else True
        coming = any(one.do == "acquire" and one.grant == step.grant for one in (*left, *self.running.values()))
        return False if coming else None

    def _value(self, step: Step) -> dict[str, Any] | None:
        value = dict(step.value)
        if step.do != "acquire" and step.grant is not None:
            value["token"] = self.grants[step.grant]
        return value or None
