"""The kind `retries`: clients that do the same again when they don't know what became of it.

What a careful client does after a time-out: it opens a new connection and asks again, for the same lock or, what
matters more, to release the same token. The first request may still be on its way, take effect later, or have done so:
another client may have the lock by then, and the second release must not take it away.

Every second client of this kind is the other hand of the one before it: see `workloads.hedged`.
"""

from __future__ import annotations

from dataclasses import dataclass

from checker.history import Event
from workloads.clients import NS_PER_MS, Agenda, retried
from workloads.mutex import Mutex
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec

ATTEMPTS_MAX = 5
PAUSE_NS = 5 * NS_PER_MS


@dataclass(frozen=True, slots=True)
class Retries:
    """One client's behaviour."""

    spec: WorkloadSpec

    def begin(self, seed: Seed, turn: int) -> Agenda:
        return Mutex(self.spec).begin(seed, turn)

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        return Mutex(self.spec).react(seed, agenda, event)

    def persist(self, agenda: Agenda) -> Agenda:
        done = agenda[0]
        return () if done.attempt + 1 >= ATTEMPTS_MAX else (retried(done, PAUSE_NS), *agenda[1:])
