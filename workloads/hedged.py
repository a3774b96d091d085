"""Two threads as one client: what the first one releases, the second one releases too, over its own connection.

That is what a client does that does not wait for a time-out before it asks another node: the same release is on its way
twice, at the same time. Only one of the two may find the lock, and neither may take it from whoever has it next.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from checker.history import Event
from workloads.clients import NS_PER_MS
from workloads.generator import PENDING, Answer, Context, Generator, Op, Wait, sooner
from workloads.seeds import Seed

#: How much later the second one asks, in ms.
LATER_MS = (0, 12)

HEDGED_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Hedged:
    """`inner` runs on the thread `first`; `second` only repeats its releases, a share of them. `seen` counts them."""

    inner: Generator
    first: int
    second: int
    seed: Seed
    seen: int = 0
    again: Op | None = None
    due_ns: int = 0

    def op(self, ctx: Context) -> Answer:
        wait = PENDING
        if self.again is not None and self.second in ctx.free:
            if ctx.time >= self.due_ns:
                return self.again, replace(self, again=None)
            wait = Wait(self.due_ns)
        answer, inner = self.inner.op(ctx.only(self.first))
        after = replace(self, inner=inner)
        if isinstance(answer, Wait):
            return sooner(answer, wait), after
        if answer is None and self.again is not None:
            return wait, after
        return answer, after

    def update(self, ctx: Context, event: Event) -> Generator:
        if ctx.thread_of(event) != self.first:
            return self
        after = replace(self, inner=self.inner.update(ctx.only(self.first), event))
        if event.type != "invoke" or event.f != "release" or self.again is not None:
            return after
        draws = self.seed.split(self.seen)
        after = replace(after, seen=self.seen + 1)
        if not draws.split("hedged").chance(HEDGED_SHARE):
            return after
        due_ns = event.time + draws.split("later").between(*LATER_MS) * NS_PER_MS
        twin = Op(self.second, "release", event.key, event.value, prompt=True)
        return replace(after, again=twin, due_ns=due_ns)
