"""One scenario in virtual time, without a report or a word: what fuzzing and shrinking run by the thousand."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import checker
from checker.history import Event
from cluster import places
from cluster.places.sim import SimPlace
from fencepost import analysis, conduct, evidence
from fencepost.interrupts import Interrupts
from fencepost.scenario import Scenario
from fencepost.store import RunFolder
from nemesis.spec import FaultSpec


@dataclass(frozen=True, slots=True)
class Simulated:
    """`failure` says what the harness failed at; `results` are then None. `resolved` are the faults as they took
    place."""

    scenario: Scenario
    events: Sequence[Event]
    results: checker.Results | None
    resolved: tuple[FaultSpec, ...]
    failure: str | None = None
    #: What the nodes' cores have reached (`cluster.places.sim.reached`).
    edges: frozenset[int] = frozenset()

    @property
    def violated(self) -> tuple[str, ...]:
        return self.results.violated if self.results is not None else ()

    @property
    def simulated_s(self) -> float:
        return self.events[-1].time / 1e9 if self.events else 0.0


def simulate(scenario: Scenario) -> Simulated:
    """Run it at the place `sim`, whatever its place is, and check it. Never raises for what the run does."""
    events: list[Event] = []
    with tempfile.TemporaryDirectory(prefix="fencepost-sim-") as folder:
        conductor = conduct.Conductor(
            scenario, RunFolder(Path(folder)), Interrupts(), events.append, _ignore, keeps=False
        )
        try:
            with asyncio.Runner(loop_factory=places.loop_factory(scenario.place)) as loop:
                loop.run(conductor.run())
        except conduct.Failure as problem:
            return Simulated(scenario, events, None, conductor.resolved, str(problem))
        except Exception as problem:
            return Simulated(scenario, events, None, conductor.resolved, f"{type(problem).__name__}: {problem}")
        found = evidence.of(conductor.place, conductor.origin_ns)
    options = analysis.options(scenario, conductor.tokens_span_keys, found)
    results = checker.check(events, analysis.claims(scenario, found), options)
    edges = conductor.place.edges() if isinstance(conductor.place, SimPlace) else frozenset()
    return Simulated(scenario, events, results, conductor.resolved, edges=edges)


def _ignore(phase: str) -> None:
    """Nobody watches."""
