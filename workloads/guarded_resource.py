"""The kind `guarded-resource`: what fencing tokens are for.

Under the lock a client writes, with its token, to a resource that checks tokens, and right after it the same to a
twin that does not. A share of the holders (`overrun`) sleeps past its lease before it writes, as a client does that
was paused: the guard must refuse what comes too late, and the twin shows what would have been lost.

The resource is the testbed's own (`workloads.resource`); only the lock is the service's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from checker.history import Event
from workloads.clients import NS_PER_MS, Agenda, Step
from workloads.mutex import acquisition, overrun_ms, release_again
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec

UNGUARDED: dict[str, Any] = {"guarded": False}


@dataclass(frozen=True, slots=True)
class GuardedResource:
    """One client's behaviour. The data that thread t writes are t, t + threads, t + 2 * threads, ...: no two alike."""

    spec: WorkloadSpec
    thread: int

    def begin(self, seed: Seed, turn: int) -> Agenda:
        key = self.spec.key_name(seed.split("key").between(1, self.spec.keys))
        if seed.split("looks").chance(self.spec.reads):
            return (seed.split("look").pick((Step("inspect", key), Step("read", key), Step("read", key, UNGUARDED))),)
        write = {"data": self.thread + turn * self.spec.clients}
        return (
            acquisition(self.spec, seed, key),
            Step("write", key, write),
            Step("write", key, write | UNGUARDED),
            Step("release", key),
        )

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        done, left = agenda[0], agenda[1:]
        if event.f == "release":
            return release_again(done, event) or left
        if event.f != "acquire":
            return left
        if event.type != "ok" or event.value is None:
            return ()
        return self._hold(seed, left, event.value["token"])

    def _hold(self, seed: Seed, work: Agenda, token: int) -> Agenda:
        """The hold is split between the time before the writes and the time after them."""
        hold_ms = seed.split("hold").between(*self.spec.hold_ms)
        before_ms = seed.split("before").between(0, hold_ms)
        after_ms = hold_ms - before_ms
        if seed.split("overrun").chance(self.spec.overrun):
            before_ms += overrun_ms(self.spec, seed)
        pauses_ms = (before_ms, 0, after_ms)
        return tuple(
            Step(step.f, step.key, {"token": token, **(step.value or {})}, after_ns=pause_ms * NS_PER_MS)
            for step, pause_ms in zip(work, pauses_ms, strict=True)
        )
