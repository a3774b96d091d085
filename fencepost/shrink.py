"""From a failing scenario to a small one that fails the same way: delta debugging in the simulation.

A candidate is a simpler scenario: fewer or shorter faults, fewer nodes, clients, keys, operations, less time. It is
taken when the same claim is violated in it. Each candidate is tried with the seed that failed last and with some
others: what matters is the story, not the dice, and one seed in a handful is enough to tell it again. The simulation is
exact, so what was taken fails for good.

First the faults are made explicit (which node, when, for how long), and the run is cut where the finding is over. Then
the clients' operations are made explicit too: a list of steps instead of what a kind of workload draws. From then on
faults and steps are both lists, and the passes go round until none helps: leave out parts of a list, in halves before
one by one (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002), boldly at first: only what the
finding cites, only its key. `fencepost.simpler` has the candidates.

Candidates are tried side by side where there are several workers, in the same order of preference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import islice

from cluster.registry import UnknownName
from fencepost.scenario import Expectation, Scenario
from fencepost.scenario.rules import complaints
from fencepost.simpler import PASSES
from fencepost.simulation import Simulated, simulate

#: How long a candidate is tried, in simulated seconds, and with how many seeds beside that of the last failure at most.
SIMULATED_S_PER_CANDIDATE = 40.0
SEEDS_MAX = 8


@dataclass(frozen=True, slots=True)
class Step:
    """A candidate that was taken."""

    scenario: Scenario
    what: str
    tried: int


class NothingToShrink(Exception):
    """The scenario violates nothing, and why that may be."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A candidate, the claim that it should violate and the seeds with which it is tried, in this order."""

    scenario: Scenario
    claim: str
    seeds: tuple[int, ...]


def attempt(candidate: Attempt) -> tuple[int | None, int]:
    """The first seed that violates the claim, and how many were tried; in a worker."""
    for tried, seed in enumerate(candidate.seeds, 1):
        if candidate.claim in simulate(replace(candidate.scenario, seed=seed)).violated:
            return seed, tried
    return None, len(candidate.seeds)


@dataclass(slots=True)
class Shrinker:
    """`shrink` once; `best` is the smallest failing run so far, also after an interrupt. `budget_s` in seconds. With
    `pool`, candidates are tried in it, `width` at once."""

    claim: str | None
    observe: Callable[[Step], None]
    budget_s: float
    pool: Executor | None = None
    width: int = 1
    clock: Callable[[], float] = time.monotonic
    #: The run that was begun with.
    first: Simulated | None = None
    best: Simulated | None = None
    tried: int = 0
    _deadline: float = 0.0
    _refused: set[str] = field(default_factory=set)

    def shrink(self, scenario: Scenario) -> Simulated:
        """Raises NothingToShrink."""
        self._deadline = self.clock() + self.budget_s
        first = simulate(replace(scenario, place="sim", coverage={}))
        if first.failure is not None:
            raise NothingToShrink(f"the simulation failed: {first.failure}")
        wanted = [claim for claim in first.violated if self.claim in (None, claim)]
        if not wanted:
            raise NothingToShrink(f"{self.claim or 'no claim'} is violated in {scenario.name}, seed {scenario.seed}")
        self.claim = wanted[0]
        self.first, self.best = first, self._told(first)
        self._take("faults made explicit", iter([replace(self.best.scenario, nemesis=first.resolved)]))
        going = True
        while going and self.clock() < self._deadline:
            going = False
            for what, candidates in PASSES:
                while self.clock() < self._deadline and self._take(what, candidates(self.best)):
                    going = True
        return self.best

    def _take(self, what: str, candidates: Iterator[Scenario]) -> bool:
        """Take the first candidate in which the claim is violated, if there is one."""
        assert self.best is not None
        fresh = (
            one for one in candidates if one != self.best.scenario and repr(one) not in self._refused and sound(one)
        )
        while self.clock() < self._deadline and (batch := list(islice(fresh, self.width))):
            attempts = [self._attempt(one) for one in batch]
            results = [attempt(one) for one in attempts] if self.pool is None else self.pool.map(attempt, attempts)
            for candidate, (seed, tried) in zip(batch, results, strict=True):
                self.tried += tried
                if seed is None:
                    self._refused.add(repr(candidate))
                elif (run := self._told(simulate(replace(candidate, seed=seed)))).results is not None:
                    self.best = run
                    self.observe(Step(run.scenario, what, self.tried))
                    return True
        return False

    def _attempt(self, candidate: Scenario) -> Attempt:
        assert self.best is not None
        assert self.claim is not None
        others = min(SEEDS_MAX, int(SIMULATED_S_PER_CANDIDATE / max(1.0, self.best.simulated_s)))
        seeds = dict.fromkeys([self.best.scenario.seed, *range(others)])
        return Attempt(candidate, self.claim, tuple(seeds))

    def _told(self, run: Simulated) -> Simulated:
        """With a scenario that says what it shows."""
        assert self.claim is not None
        checks = tuple(dict.fromkeys([*run.scenario.checks, self.claim]))
        return replace(run, scenario=replace(run.scenario, checks=checks, expect=Expectation((self.claim,))))


def sound(scenario: Scenario) -> bool:
    try:
        return not any(True for _ in complaints(scenario))
    except UnknownName:
        return False


def operations(run: Simulated) -> int:
    return sum(event.type == "invoke" for event in run.events)


def size(run: Simulated) -> str:
    """How large it is, in words."""
    scenario = run.scenario
    return (
        f"{len(scenario.nemesis)} faults, {operations(run)} operations, {scenario.nodes} nodes,"
        f" {scenario.workload.clients} clients, {scenario.workload.keys} keys, {scenario.time_limit_ns / 1e9:g} s"
    )


def measures(run: Simulated) -> tuple[int, int, int]:
    """Faults, operations and nodes."""
    return len(run.scenario.nemesis), operations(run), run.scenario.nodes


__all__: Sequence[str] = ("Attempt", "NothingToShrink", "Shrinker", "Step", "attempt", "measures", "operations", "size")
