"""The kind `ghost`: clients that ask for a lock and are gone before they learn that they have it.

Most turns send an acquire and close the connection: at once, or some milliseconds later, so that the grant meets its
client's end at every moment. The service has to clean such a lock up at once. The other turns are those of `mutex`,
with no holder that outlives its lease, so in the end nobody has a lock: whatever is held then is held by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from checker.history import Event
from workloads.clients import Agenda
from workloads.mutex import Mutex, acquisition
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec

GHOST_SHARE = 0.6

#: When the connection is closed, in ms: from before the request can have arrived to after a grant was confirmed.
ABANDON_MS = (0, 30)


@dataclass(frozen=True, slots=True)
class Ghost:
    """One client's behaviour."""

    spec: WorkloadSpec

    def begin(self, seed: Seed, turn: int) -> Agenda:
        if not seed.split("ghost").chance(GHOST_SHARE):
            return self._calm().begin(seed, turn)
        key = self.spec.key_name(seed.split("key").between(1, self.spec.keys))
        step = acquisition(self.spec, seed, key)
        abandon_ms = seed.split("abandon").between(*ABANDON_MS)
        return (replace(step, value={**(step.value or {}), "abandon_ms": abandon_ms}),)

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        """One that came back before it was abandoned is a holder like any other."""
        return self._calm().react(seed, agenda, event)

    def _calm(self) -> Mutex:
        return Mutex(replace(self.spec, overrun=0.0))
