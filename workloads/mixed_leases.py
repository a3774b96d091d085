"""The kind `mixed-leases`: short leases beside long ones on the same keys.

A service that keeps its countdowns in one order too many, or looks at them too seldom, ends the wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from checker.history import Event
from workloads.clients import Agenda
from workloads.mutex import Mutex
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec

#: A long lease, as a multiple of the scenario's; and the share of the turns that ask for one.
LONG_LEASES = 8
LONG_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class MixedLeases:
    """One client's behaviour. Who holds a long lease does so no longer than others, or not at all: it is forgotten."""

    spec: WorkloadSpec

    def begin(self, seed: Seed, turn: int) -> Agenda:
        first, *rest = Mutex(self.spec).begin(seed, turn)
        if first.f == "acquire" and seed.split("long").chance(LONG_SHARE):
            value = {**(first.value or {}), "lease_ms": self.spec.lease_ms * LONG_LEASES}
            first = replace(first, value=value)
        return (first, *rest)

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        return Mutex(self.spec).react(seed, agenda, event)
