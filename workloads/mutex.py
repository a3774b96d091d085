"""The kind `mutex`: acquire, hold, release; now and then a look at who holds the lock.

A share of the holders (`overrun`) outlives its lease: half of them give the lock back late, when somebody else may
have it, and half never do. So leases end by expiry as well as by release.
"""

from __future__ import annotations

from dataclasses import dataclass

from checker.history import Event
from workloads.clients import NS_PER_MS, OBSERVATIONS, Agenda, Step, retried
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec

#: A release that certainly did not happen is sent again, this often at most, this long after.
RELEASE_ATTEMPTS_MAX = 5
RELEASE_PAUSE_NS = 100 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Mutex:
    """One client's behaviour."""

    spec: WorkloadSpec

    def begin(self, seed: Seed, turn: int) -> Agenda:
        key = self.spec.key_name(seed.split("key").between(1, self.spec.keys))
        if seed.split("looks").chance(self.spec.reads):
            return (Step("inspect", key),)
        return (acquisition(self.spec, seed, key),)

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        done, left = agenda[0], agenda[1:]
        if event.f == "release":
            return release_again(done, event) or left
        if event.f == "acquire" and event.type == "ok" and event.value is not None:
            return self._hold(seed, done.key, event.value["token"])
        return left

    def _hold(self, seed: Seed, key: str, token: int) -> Agenda:
        hold_ms = seed.split("hold").between(*self.spec.hold_ms)
        if seed.split("overrun").chance(self.spec.overrun):
            if seed.split("forgets").chance(0.5):
                return ()
            hold_ms += overrun_ms(self.spec, seed)
        return (Step("release", key, {"token": token}, after_ns=hold_ms * NS_PER_MS),)


def acquisition(spec: WorkloadSpec, seed: Seed, key: str) -> Step:
    """An acquire. Where clients may wait, half of them queue and half ask for an answer at once."""
    wait_ms = spec.wait_ms if seed.split("waits").chance(0.5) else 0
    return Step("acquire", key, {"lease_ms": spec.lease_ms, "wait_ms": wait_ms})


def overrun_ms(spec: WorkloadSpec, seed: Seed) -> int:
    """How long a holder who outlives the lease sleeps: a whole lease, and up to half of one more."""
    return spec.lease_ms + seed.split("late").between(0, spec.lease_ms // 2)


def release_again(done: Step, event: Event) -> Agenda:
    """The release once more, where it certainly did not happen and nothing was learnt of the lock."""
    unsent = event.type == "fail" and event.error not in OBSERVATIONS
    if not unsent or done.attempt + 1 >= RELEASE_ATTEMPTS_MAX:
        return ()
    return (retried(done, RELEASE_PAUSE_NS),)
