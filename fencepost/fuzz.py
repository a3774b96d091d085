"""Seeds in, violations out: scenarios at the place `sim`, one run for each seed, on all cores.

The seam to more machines is `concurrent.futures.Executor` (`fencepost.engines`): whatever can call a function elsewhere
will do. A run that is lost with its worker is run again; one that was counted is never counted twice.

Every so many seeds one is run twice: a simulation that isn't the same twice is worth nothing, and is a failure of the
harness.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace

import msgspec

from checker.verdict import Verdict
from fencepost.engines import LOST, Deadly
from fencepost.exits import Exit
from fencepost.scenario import Scenario
from fencepost.simulation import simulate
from fencepost.variants import changed, variant

#: One seed in so many is run twice and compared.
TWICE_EVERY = 50

#: How often a seed is given to the executor again when its worker died.
ATTEMPTS_MAX = 3

#: Of the runs that reached something new, so many are remembered.
KEPT_MAX = 200

#: What is added up over all runs, beside what is listed in a run's coverage.
COUNTED = ("operations", "leader_changes", "expiries", "ghosts", "faults")


@dataclass(frozen=True, slots=True)
class Job:
    """One seed of one scenario, and how often it was tried before. `exact`: the scenario as it is, seed and all;
    otherwise the variant that the seed stands for."""

    scenario: Scenario
    seed: int
    twice: bool = False
    attempt: int = 0
    exact: bool = False

    def variant(self) -> Scenario:
        return self.scenario if self.exact else variant(self.scenario, self.seed)


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of a job. `failure` says what the harness failed at."""

    scenario: str
    seed: int
    violated: tuple[str, ...]
    verdict: str
    simulated_s: float
    coverage: dict[str, int]
    message: str = ""
    failure: str | None = None
    #: Whether the run did what its scenario expects: a violation, or claims without a verdict.
    expected: bool = False
    #: What the nodes' cores reached (`cluster.places.sim.reached`).
    edges: frozenset[int] = frozenset()
    #: What was run, where that is not the variant of its seed.
    plan: Scenario | None = None


class Guide:
    """Where to look next. Runs that reached an edge that none before them did are kept; every second job is one of
    these, changed (`variants.changed`), the newest ones more often. So what comes next depends on what came back
    first; what was run, a run itself says."""

    def __init__(self, planned: Iterable[Job]) -> None:
        self._planned = iter(planned)
        self._kept: list[Scenario] = []
        self._number = 0

    def __iter__(self) -> Iterator[Job]:
        return self

    def __next__(self) -> Job:
        self._number += 1
        if self._number % 2 or not self._kept:
            return next(self._planned)
        draws = random.Random(f"{self._number}/guide")
        newest = self._kept[-KEPT_MAX:]
        plan = changed(newest[int(len(newest) * max(draws.random(), draws.random()))], self._number)
        return Job(plan, plan.seed, twice=self._number % TWICE_EVERY == 0, exact=True)

    def keep(self, job: Job) -> None:
        """Its run reached something new."""
        self._kept.append(job.variant())


@dataclass(slots=True)
class Tally:
    """What all runs together say."""

    runs: int = 0
    twice: int = 0
    simulated_s: float = 0.0
    seconds: float = 0.0
    coverage: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    claims: Counter[str] = field(default_factory=Counter)
    #: Runs that violated what they are expected to violate; and those of no verdict for no reason that excuses it.
    as_expected: int = 0
    undecided: int = 0
    #: All edges that were reached; and after how many runs there were how many, whenever a tenth more were.
    edges: set[int] = field(default_factory=set)
    grown: list[tuple[int, int]] = field(default_factory=list)
    found: list[Ran] = field(default_factory=list)
    failed: list[Ran] = field(default_factory=list)

    def add(self, ran: Ran, *, twice: bool) -> bool:
        """Whether it reached an edge that none before it had."""
        self.runs += 1
        self.twice += twice
        self.simulated_s += ran.simulated_s
        self.coverage.update({name: ran.coverage.get(name, 0) for name in COUNTED})
        self.verdicts[ran.verdict] += 1
        self.claims.update(ran.violated)
        if ran.failure is not None:
            self.failed.append(ran)
        elif ran.violated and ran.expected:
            self.as_expected += 1
        elif ran.violated:
            self.found.append(ran)
        elif ran.verdict == Verdict.UNKNOWN and not ran.expected:
            self.undecided += 1
        before = len(self.edges)
        self.edges |= ran.edges
        if not self.grown or len(self.edges) > 1.1 * self.grown[-1][1]:
            self.grown.append((self.runs, len(self.edges)))
        return len(self.edges) > before

    @property
    def exit(self) -> Exit:
        if self.found:
            return Exit.VIOLATED
        if self.failed:
            return Exit.HARNESS
        return Exit.UNKNOWN if self.undecided else Exit.VALID

    def words(self) -> str:
        per_second = self.runs / self.seconds if self.seconds else 0.0
        simulated = self.simulated_s / self.seconds if self.seconds else 0.0
        counts = ", ".join(f"{name.replace('_', ' ')} {self.coverage[name]:,}" for name in COUNTED)
        return (
            f"{self.runs:,} seeds ({per_second:.1f}/s), {self.simulated_s:,.0f} simulated s ({simulated:.0f}/s),"
            f" {counts}, edges {self._edges()}; violations {len(self.found)}"
            + (f", and {self.as_expected} that were expected" if self.as_expected else "")
        )

    def _edges(self) -> str:
        """How many, and how long it is since they grew by a tenth."""
        since = f" (a tenth more {self.runs - self.grown[-1][0]:,} seeds ago)" if len(self.grown) > 1 else ""
        return f"{len(self.edges):,}{since}"

    def to_dict(self) -> dict[str, object]:
        return {
            "runs": self.runs,
            "twice": self.twice,
            "seconds": round(self.seconds, 3),
            "simulated_s": round(self.simulated_s, 3),
            "coverage": dict(self.coverage),
            "edges": {"reached": len(self.edges), "grown": [list(point) for point in self.grown]},
            "verdicts": dict(self.verdicts),
            "claims": dict(self.claims),
            "as_expected": self.as_expected,
            "found": [{"scenario": one.scenario, "seed": one.seed, "claims": list(one.violated)} for one in self.found],
            "failed": [{"scenario": one.scenario, "seed": one.seed, "failure": one.failure} for one in self.failed],
            "exit_code": int(self.exit),
        }


def jobs(scenarios: Sequence[Scenario], seeds: Iterable[int]) -> Iterator[Job]:
    """Every scenario with the first seed, then every one with the next."""
    number = 0
    for seed in seeds:
        for scenario in scenarios:
            yield Job(scenario, seed, twice=number % TWICE_EVERY == 0)
            number += 1


def work(job: Job) -> Ran:
    """Run one job; in a worker."""
    scenario = job.variant()
    plan = scenario if job.exact else None
    run = simulate(scenario)
    failure = run.failure
    if job.twice and failure is None:
        again = simulate(scenario)
        if _digest(again.events) != _digest(run.events):
            failure = "two runs of this seed gave two histories: the simulation is not deterministic"
    if run.results is None or failure is not None:
        return Ran(scenario.name, job.seed, (), "failed", run.simulated_s, {}, failure=failure, plan=plan)
    findings = [
        finding.message
        for claim in run.violated
        for finding in run.results.claims[claim].findings
        if finding.verdict == "invalid"
    ]
    return Ran(
        scenario.name, job.seed, run.violated, str(run.results.verdict), run.simulated_s, dict(run.results.coverage),
        findings[0] if findings else "", expected=scenario.expect.met_by(run.results), edges=run.edges, plan=plan,
    )  # fmt: skip


def _digest(events: Sequence[object]) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(events)).digest()


def fuzz(
    planned: Iterable[Job],
    executor: Callable[[], Executor],
    workers: Callable[[Executor], int],
    *,
    keep_going: bool,
    for_s: float | None,
    observe: Callable[[Tally, Ran], None],
    clock: Callable[[], float] = time.monotonic,
) -> Tally:
    """Run the jobs until they or the time (`for_s`, in seconds) are over, or the first violation is found unless
    `keep_going`. `workers` says how many an executor has. `observe` hears of every run. An interrupt
    (KeyboardInterrupt) ends it early, with what there is."""
    tally = Tally()
    started = clock()
    queue = iter(planned)
    running: dict[Future[Ran], Job] = {}
    pool = executor()
    try:
        while True:
            over = for_s is not None and clock() - started >= for_s
            over = over or bool(tally.failed) or (bool(tally.found) and not keep_going)
            if not over:
                for job in itertools.islice(queue, max(0, 2 * workers(pool) - len(running))):
                    running[pool.submit(work, job)] = job
            if not running or (over and (tally.failed or tally.found)):
                break
            done, _ = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda one: running[one].seed):
                job = running.pop(future)
                try:
                    ran = future.result()
                except Deadly as problem:
                    ran = Ran(job.scenario.name, job.seed, (), "failed", 0.0, {}, failure=str(problem))
                except LOST:
                    pool.shutdown(wait=False)
                    pool = executor()
                    lost, running = [job, *running.values()], {}
                    for one in lost:
                        running |= _again(pool, one)
                    break
                if tally.add(ran, twice=job.twice) and isinstance(planned, Guide):
                    planned.keep(job)
                tally.seconds = clock() - started
                observe(tally, ran)
    except KeyboardInterrupt:
        pass
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    tally.seconds = clock() - started
    return tally


def _again(pool: Executor, job: Job) -> dict[Future[Ran], Job]:
    """Give a job that was lost with its worker to another one. Raises RuntimeError when that happened too often."""
    if job.attempt + 1 >= ATTEMPTS_MAX:
        raise RuntimeError(f"the workers that ran seed {job.seed} of {job.scenario.name} died {ATTEMPTS_MAX} times")
    next_job = replace(job, attempt=job.attempt + 1)
    return {pool.submit(work, next_job): next_job}
