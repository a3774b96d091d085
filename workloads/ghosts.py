"""The kinds `ghost` and `late-ghost`: clients that ask for a lock and are gone before they learn that they have it.

Most turns send an acquire and close the connection. A `ghost` does so at once: it can't have acknowledged anything, so
the service has to clean its lock up at once, whatever the lease. A `late-ghost` does so within some milliseconds, and
meets every moment of the acquire; where it had acknowledged the grant and was not told so, the lock lasts as long as
its lease. The other turns are those of `mutex`, with no holder that outlives its lease.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from checker.history import Event
from workloads.clients import Agenda
from workloads.mutex import Mutex, acquisition
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec

GHOST_SHARE = 0.6

#: When a late one closes the connection, in ms: from before its request arrives to after a grant was confirmed.
LATE_MS = 30


@dataclass(frozen=True, slots=True)
class Ghost:
    """One client's behaviour."""

    spec: WorkloadSpec
    late: bool

    def begin(self, seed: Seed, turn: int) -> Agenda:
        if not seed.split("ghost").chance(GHOST_SHARE):
            return self._calm().begin(seed, turn)
        key = self.spec.key_name(seed.split("key").between(1, self.spec.keys))
        step = acquisition(self.spec, seed, key)
        abandon_ms = seed.split("abandon").between(0, LATE_MS) if self.late else 0
        return (replace(step, value={**(step.value or {}), "abandon_ms": abandon_ms}),)

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        """One that came back before it was abandoned is a holder like any other."""
        return self._calm().react(seed, agenda, event)

    def _calm(self) -> Mutex:
        return Mutex(replace(self.spec, overrun=0.0))
