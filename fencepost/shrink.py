"""From a failing scenario to a small one that fails the same way: delta debugging in the simulation.

A candidate is a simpler scenario: fewer or shorter faults, fewer nodes, clients, keys, operations, less time. It is
taken when the same claim is violated in it. Each candidate is tried with the seed that failed last and with some
others: what matters is the story, not the dice, and one seed in a handful is enough to tell it again. The simulation is
exact, so what was taken fails for good.

The faults are made explicit first (which node, when, for how long). Then the passes go round until none helps: drop
faults, in halves before one by one (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002); end
the run earlier; shrink each number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from cluster.registry import UnknownName
from fencepost.scenario import Expectation, Scenario
from fencepost.scenario.rules import complaints
from fencepost.simulation import Simulated, simulate
from nemesis.spec import FOR_NS_MIN, FaultSpec

MS = 1_000_000
SECOND = 1_000 * MS

#: How long a candidate is tried, in simulated seconds, and with how many seeds beside that of the last failure at most.
SIMULATED_S_PER_CANDIDATE = 100.0
SEEDS_MAX = 30

#: What a scenario's end may keep behind the last event of the finding.
MARGIN_NS = 300 * MS


@dataclass(frozen=True, slots=True)
class Step:
    """A candidate that was taken."""

    scenario: Scenario
    what: str
    tried: int


class NothingToShrink(Exception):
    """The scenario violates nothing, and why that may be."""


@dataclass(slots=True)
class Shrinker:
    """`shrink` once; `best` is the smallest failing run so far, also after an interrupt. `budget_s` in seconds."""

    claim: str | None
    observe: Callable[[Step], None]
    budget_s: float
    clock: Callable[[], float] = time.monotonic
    best: Simulated | None = None
    tried: int = 0
    _deadline: float = 0.0

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
        self.best = self._told(first)
        self._try("faults made explicit", replace(self.best.scenario, nemesis=first.resolved))
        going = True
        while going and self.clock() < self._deadline:
            going = False
            for what, candidates in PASSES:
                going |= self._pass(what, candidates)
        return self.best

    def _pass(self, what: str, candidates: Callable[[Simulated], Iterator[Scenario]]) -> bool:
        """Take candidates of one kind, each from the best so far, until none is left; whether one was taken."""
        taken = False
        progress = True
        while progress:
            progress = False
            assert self.best is not None
            for candidate in candidates(self.best):
                if self.clock() >= self._deadline:
                    return taken
                if self._try(what, candidate):
                    taken = progress = True
                    break
        return taken

    def _try(self, what: str, candidate: Scenario) -> bool:
        assert self.best is not None
        assert self.claim is not None
        if candidate == self.best.scenario or not _sound(candidate):
            return False
        last = self.best.scenario.seed
        others = range(min(SEEDS_MAX, int(SIMULATED_S_PER_CANDIDATE / max(1.0, self.best.simulated_s))))
        for seed in (last, *others):
            self.tried += 1
            run = simulate(replace(candidate, seed=seed))
            if self.claim in run.violated:
                self.best = self._told(run)
                self.observe(Step(self.best.scenario, what, self.tried))
                return True
        return False

    def _told(self, run: Simulated) -> Simulated:
        """With a scenario that says what it shows."""
        assert self.claim is not None
        checks = tuple(dict.fromkeys([*run.scenario.checks, self.claim]))
        return replace(run, scenario=replace(run.scenario, checks=checks, expect=Expectation((self.claim,))))


def _sound(scenario: Scenario) -> bool:
    try:
        return not any(True for _ in complaints(scenario))
    except UnknownName:
        return False


# ---- candidates, the boldest first


def _fewer_faults(run: Simulated) -> Iterator[Scenario]:
    faults = run.scenario.nemesis
    size = len(faults)
    while size >= 1:
        for start in range(0, len(faults), size):
            yield replace(run.scenario, nemesis=faults[:start] + faults[start + size :])
        size //= 2


def _sooner_over(run: Simulated) -> Iterator[Scenario]:
    """End the run behind what the finding is about, if that comes before the end."""
    scenario = run.scenario
    assert run.results is not None
    ends = [
        operation.completed_s if operation.completed_s is not None else operation.invoked_s
        for claim in scenario.expect.invalid
        for finding in run.results.claims[claim].findings[:1]
        for operation in finding.operations
    ]
    limits = [scenario.time_limit_ns // 2, scenario.time_limit_ns * 3 // 4]
    if ends:
        limits.insert(0, int(max(ends) * SECOND) + MARGIN_NS)
    for limit_ns in limits:
        limit_ns = max(SECOND, limit_ns // (100 * MS) * 100 * MS)
        if limit_ns < scenario.time_limit_ns:
            yield _ending(scenario, limit_ns)


def _ending(scenario: Scenario, limit_ns: int) -> Scenario:
    faults = []
    for fault in scenario.nemesis:
        start_ns = fault.at_ns if fault.at_ns is not None else fault.every_ns or 0
        lasts_ns = min(fault.for_ns, limit_ns - start_ns)
        if lasts_ns >= FOR_NS_MIN:
            faults.append(replace(fault, for_ns=lasts_ns))
    return replace(scenario, time_limit_ns=limit_ns, nemesis=tuple(faults))


def _sooner_begun(run: Simulated) -> Iterator[Scenario]:
    """Everything that happens to the cluster happens earlier."""
    scenario = run.scenario
    starts = [fault.at_ns for fault in scenario.nemesis if fault.at_ns is not None]
    if not starts:
        return
    for cut_ns in (min(starts), min(starts) // 2):
        cut_ns = cut_ns // (100 * MS) * 100 * MS
        limit_ns = scenario.time_limit_ns - cut_ns
        if cut_ns > 0 and limit_ns >= SECOND:
            moved = tuple(replace(f, at_ns=None if f.at_ns is None else f.at_ns - cut_ns) for f in scenario.nemesis)
            yield replace(scenario, nemesis=moved, time_limit_ns=limit_ns)


def _shorter_faults(run: Simulated) -> Iterator[Scenario]:
    faults = run.scenario.nemesis
    for position, fault in enumerate(faults):
        lasts_ns = max(FOR_NS_MIN, fault.for_ns // 2 // (100 * MS) * 100 * MS)
        if lasts_ns < fault.for_ns:
            yield replace(run.scenario, nemesis=_replaced(faults, position, replace(fault, for_ns=lasts_ns)))


def _replaced(faults: Sequence[FaultSpec], position: int, fault: FaultSpec) -> tuple[FaultSpec, ...]:
    return (*faults[:position], fault, *faults[position + 1 :])


def _fewer_nodes(run: Simulated) -> Iterator[Scenario]:
    """Faults may name nodes that are gone then; such a candidate is not sound and is passed over."""
    for nodes in (1, 2, 3, 4):
        if nodes < run.scenario.nodes:
            yield replace(run.scenario, nodes=nodes)


def _smaller_workload(run: Simulated) -> Iterator[Scenario]:
    spec = run.scenario.workload
    for changed in (
        *(replace(spec, clients=clients) for clients in _below(spec.clients)),
        *(replace(spec, keys=keys) for keys in _below(spec.keys)),
        *(replace(spec, operations=count) for count in _below(spec.operations or _per_client(run))),
        replace(spec, rate=max(0.5, spec.rate / 2)),
        replace(spec, wait_ms=0),
        replace(spec, overrun=0.0),
        replace(spec, reads=0.0),
    ):
        if changed != spec:
            yield replace(run.scenario, workload=changed)


def _per_client(run: Simulated) -> int:
    """Operations of the busiest client, at most."""
    invoked = [event.process for event in run.events if event.type == "invoke"]
    return max(2, len(invoked))


def _below(number: int) -> Iterator[int]:
    """1, then from the half of `number` up to it."""
    tried = set()
    for smaller in (1, number // 4, number // 2, number * 3 // 4, number - 1):
        if 1 <= smaller < number and smaller not in tried:
            tried.add(smaller)
            yield smaller


PASSES: Sequence[tuple[str, Callable[[Simulated], Iterator[Scenario]]]] = (
    ("ends sooner", _sooner_over),
    ("begins sooner", _sooner_begun),
    ("fewer faults", _fewer_faults),
    ("fewer nodes", _fewer_nodes),
    ("smaller workload", _smaller_workload),
    ("shorter faults", _shorter_faults),
)


def size(scenario: Scenario, run: Simulated) -> str:
    """How large it is, in words."""
    operations = sum(1 for event in run.events if event.type == "invoke")
    return (
        f"{len(scenario.nemesis)} faults, {operations} operations, {scenario.nodes} nodes,"
        f" {scenario.workload.clients} clients, {scenario.workload.keys} keys, {scenario.time_limit_ns / 1e9:g} s"
    )
