"""The kind `waiters`: long queues, with waiters that lose patience, and some that die in the queue.

Every acquire queues, with a patience from a fifth of the scenario's `wait` to four times that, so that waiters time out
while others are released at the same moment, and with leases of different lengths. A share of them closes the
connection while it waits: dead waiters at the head of the queue, which must block nobody.
"""

from __future__ import annotations

from dataclasses import dataclass

from checker.history import Event
from workloads.clients import Agenda, Step
from workloads.mutex import Mutex
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec

DEAD_SHARE = 0.2
PATIENCES = (0.2, 1.0, 1.0, 4.0)

#: Leases, as multiples of the scenario's.
WAITER_LEASES_MAX = 2


@dataclass(frozen=True, slots=True)
class Waiters:
    """One client's behaviour."""

    spec: WorkloadSpec

    def begin(self, seed: Seed, turn: int) -> Agenda:
        key = self.spec.key_name(seed.split("key").between(1, self.spec.keys))
        wait_ms = max(1, int(self.spec.wait_ms * seed.split("patience").pick(PATIENCES)))
        lease_ms = self.spec.lease_ms * seed.split("lease").between(1, WAITER_LEASES_MAX)
        value = {"lease_ms": lease_ms, "wait_ms": wait_ms}
        if seed.split("dies").chance(DEAD_SHARE):
            value["abandon_ms"] = seed.split("abandon").between(0, wait_ms)
        return (Step("acquire", key, value),)

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        return Mutex(self.spec).react(seed, agenda, event)
