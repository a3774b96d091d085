"""The kind `holder-queries`: some clients take and release locks, the others keep asking on every node who holds them.

Two of three clients only look. What they are told must fit what the holders do, wherever they ask: an answer from a
node that no longer leads, or does not know yet what is committed, does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from checker.history import Event
from workloads.clients import Agenda, Step
from workloads.mutex import Mutex
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec

HOLDERS_EVERY = 3


@dataclass(frozen=True, slots=True)
class HolderQueries:
    """One client's behaviour; thread 0, 3, 6, ... are those that take locks."""

    spec: WorkloadSpec
    thread: int

    def begin(self, seed: Seed, turn: int) -> Agenda:
        if self.thread % HOLDERS_EVERY == 0:
            return Mutex(self.spec).begin(seed, turn)
        return (Step("inspect", self.spec.key_name(seed.split("key").between(1, self.spec.keys))),)

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        return Mutex(self.spec).react(seed, agenda, event) if event.f != "inspect" else agenda[1:]
