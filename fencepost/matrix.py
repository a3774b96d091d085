"""The kill matrix: which mutants the testbed finds in the simulation, by which claim, and how soon.

A mutant is hunted with the scenarios that are meant for faults of its kind, seed after seed, until a claim is violated.
Such a hunt is repeated from other seeds, and the medians are told. Where it shows in a small cluster, exploring tells
the shortest way to a violation.

That takes long, so every hunt is kept when it ends, and a matrix can go on where one was interrupted.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, as_completed
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cluster.mutants import MUTANTS
from cluster.words import counted
from fencepost import exploring
from fencepost.fuzz import Job, work
from fencepost.scenario import Scenario, load

#: The scenarios that are meant for a mutant's kind of fault, by their files' names.
SUITED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "answers-before-fsync": ("power-loss",),
        "applies-twice": ("snapshot-hole", "mutex-kills"),
        "believed-unconfirmed": ("grants-in-flight",),
        "commit-with-minority": ("mutex-partitions",),
        "counter-from-held-locks": ("snapshot-hole",),
        "counter-not-in-snapshot": ("snapshot-hole",),
        "counts-votes-twice": ("duplicated-messages",),
        "cuts-at-damage": ("damaged-disk",),
        "dead-waiter-blocks": ("waiter-queues",),
        "every-node-grants": ("every-node-grants",),
        "expire-ignores-token": ("mutex-kills",),
        "follower-removes": ("mixed-leases",),
        "forwarded-twice": ("duplicated-messages",),
        "ghost-clean-up-any-holder": ("late-ghost-release",),
        "grant-after-timeout": ("waiter-timeout-race",),
        "grant-before-commit": ("mutex-partitions",),
        "held-from-memory": ("stale-leader-read",),
        "keeps-conflicts": ("mutex-partitions",),
        "keeps-torn-tail": ("power-loss",),
        "lease-from-queueing": ("waiter-queues", "waiter-outlives-lease"),
        "lease-on-wall-clock": ("wall-clock-step",),
        "lease-restarted-by-leader": ("lease-reset-on-failover",),
        "merges-snapshots": ("snapshot-hole",),
        "never-steps-down": ("stale-leader-read",),
        "no-consistency-check": ("older-term-commit",),
        "no-ghost-clean-up": ("ghosts",),
        "no-noop": ("stale-leader-read",),
        "no-pre-vote": ("rejoin-without-prevote",),
        "not-held-from-projection": ("commit-waits-for-disk",),
        "older-term-commit": ("figure-8",),
        "overlapping-changes": ("rolling-membership",),
        "reads-before-term-start": ("slow-disk-takes-over",),
        "reads-without-quorum": ("stale-leader-read",),
        "release-ignores-token": ("release-retry-steals", "mutex-kills"),
        "release-on-applied-state": ("release-retry-steals",),
        "removed-before-commit": ("replace-cut-off",),
        "term-not-persisted": ("close-elections",),
        "timers-not-armed": (
            "lease-reset-on-failover",
            "timer-lost-on-failover",
            "leader-dies-before-ghost-cleanup",
        ),
        "token-from-wall-clock": ("mutex-kills",),
        "two-grants-in-flight": ("contended-key",),
        "vote-not-persisted": ("voter-restarts",),
        "votes-twice": ("close-elections",),
    }
)

#: A mutant that takes more seeds than these is hard to find.
SOON = 100

#: How long exploring looks for a mutant that should show.
EXPLORE_S = 600.0

#: Repeated hunts begin so far from each other.
SEED_STRIDE = 10_000


@dataclass(frozen=True, slots=True)
class Hunt:
    """`seeds` were tried, the last of which found it where `claims` is not empty."""

    mutant: str
    scenario: str
    seeds: int
    seconds: float
    claims: tuple[str, ...]
    message: str = ""
    first_seed: int = 1

    @property
    def found(self) -> bool:
        return bool(self.claims)

    def words(self) -> str:
        if not self.found:
            return f"{self.mutant}: not found in {self.seeds} seeds ({self.seconds:.1f} s)"
        how = f"found by {', '.join(self.claims)} in {self.scenario}"
        return f"{self.mutant}: {how}, with seed number {self.seeds} ({self.seconds:.1f} s)\n{self.message}"

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def all_names() -> list[str]:
    return sorted(MUTANTS)


def scenarios_for(mutant: str) -> list[Scenario]:
    """Those that are meant for it. Raises ScenarioError."""
    folder = Path(str(resources.files("workloads"))) / "scenarios"
    return [load(folder / f"{name}.yaml") for name in SUITED[mutant]]


def hunt(mutant: str, scenarios: Sequence[Scenario], seeds: int, first_seed: int) -> Hunt:
    """Try up to `seeds` seeds, from `first_seed` on, in each scenario."""
    started = time.monotonic()
    for number in range(seeds):
        for scenario in scenarios:
            ran = work(Job(replace(scenario, mutant=mutant, place="sim"), first_seed + number))
            if ran.failure is not None:
                # The harness that gives up on a mutant (it never served) has seen that something is wrong.
                took = time.monotonic() - started
                said = _headline(ran.failure)
                return Hunt(mutant, scenario.name, number + 1, took, ("harness",), said, first_seed)
            if ran.violated:
                took = time.monotonic() - started
                said = _headline(ran.message)
                return Hunt(mutant, scenario.name, number + 1, took, ran.violated, said, first_seed)
    names = ", ".join(one.name for one in scenarios)
    return Hunt(mutant, names, seeds, time.monotonic() - started, (), "", first_seed)


def _headline(message: str) -> str:
    """What a published table repeats of a message; the rest tells of one run on one machine."""
    return message.partition("\n")[0]


@dataclass(frozen=True, slots=True)
class Trace:
    """What exploring found: an invariant that so many events violate, in so many states seen."""

    mutant: str
    claim: str
    events: int
    states: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def trace(mutant: str) -> Trace | None:
    """The shortest way to a violation, in bounds in which the mutant shows; None where it did not show in time."""
    _, begin, explored = exploring.run(exploring.SHOWS[mutant], mutant, depth=None, for_s=EXPLORE_S)
    if explored.violation is None:
        return None
    events = len(explored.trace) - len(begin)
    return Trace(mutant, explored.violation.claim, events, explored.states, explored.seconds)


@dataclass(frozen=True, slots=True)
class Row:
    """All hunts of one mutant, and the trace if exploring finds it."""

    mutant: str
    hunts: tuple[Hunt, ...]
    trace: Trace | None = None

    @property
    def found(self) -> int:
        return sum(hunt.found for hunt in self.hunts)

    @property
    def claims(self) -> Counter[str]:
        return Counter(claim for hunt in self.hunts for claim in hunt.claims)

    @property
    def seeds(self) -> float:
        return statistics.median([hunt.seeds for hunt in self.hunts] or [0])

    @property
    def seconds(self) -> float:
        return statistics.median([hunt.seconds for hunt in self.hunts] or [0.0])

    @property
    def scenarios(self) -> str:
        return ", ".join(dict.fromkeys(hunt.scenario for hunt in self.hunts))

    def words(self) -> str:
        if not self.hunts and self.trace is not None:
            found = f"{self.trace.claim}, after {self.trace.events} events, in {self.trace.states:,} states"
            return f"{self.mutant:<28}explored                         {found}"
        what = ", ".join(self.claims) or "not found"
        of = f"{self.found} of {len(self.hunts)}"
        return f"{self.mutant:<28}{of:<8}{self.seeds:>6g} seeds {self.seconds:>7.1f} s  {what}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "mutant": self.mutant,
            "found": self.found,
            "hunts": [hunt.to_dict() for hunt in self.hunts],
            "trace": None if self.trace is None else self.trace.to_dict(),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Row:
        """Raises KeyError, TypeError."""
        hunts = tuple(Hunt(**{**one, "claims": tuple(one["claims"])}) for one in plain["hunts"])
        return cls(plain["mutant"], hunts, Trace(**plain["trace"]) if plain["trace"] is not None else None)

    def with_result(self, result: Hunt | Trace) -> Row:
        if isinstance(result, Trace):
            return replace(self, trace=result)
        return replace(self, hunts=tuple(sorted((*self.hunts, result), key=lambda one: one.first_seed)))


def rows(known: Iterable[Row], seeds: int, repeats: int, pool: Executor) -> Iterator[Row]:
    """What the rows lack, as it comes: first each mutant once, then each once more. Every result gives its row anew."""
    table = {row.mutant: row for row in known}
    running: dict[Future[Any], str] = {}
    for name, row in table.items():
        if name in exploring.SHOWS and row.trace is None:
            running[pool.submit(trace, name)] = name
    for repeat in range(repeats):
        first_seed = repeat * SEED_STRIDE + 1
        for name, row in table.items():
            if all(hunt.first_seed != first_seed for hunt in row.hunts):
                running[pool.submit(hunt, name, scenarios_for(name), seeds, first_seed)] = name
    for future in as_completed(running):
        result, name = future.result(), running[future]
        if result is not None:
            table[name] = table[name].with_result(result)
            yield table[name]


def table(found: Sequence[Row], seeds: int) -> str:
    """The matrix as a page, of as many hunts as there are."""
    counts = sorted({len(row.hunts) for row in found})
    times = counted(counts[0], "time") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} times"
    total = sum(row.found > 0 for row in found)
    always = sum(0 < row.found == len(row.hunts) for row in found)
    soon = sum(0 < row.found == len(row.hunts) and row.seeds <= SOON for row in found)
    lines = [
        "# The kill matrix",
        "",
        "Which deliberately broken `lockd` nodes the testbed finds in the simulation, by which claim, and how soon.",
        f"Each was hunted {times} from different seeds, for {seeds} seeds at most, in the scenarios meant for",
        "its kind of fault; seeds and seconds (of one core, on a machine that did other things too) are medians.",
        "The shortest trace is what `fencepost explore` finds: so many events after the beginning, in so many states.",
        "`fencepost mutants matrix` makes this page.",
        "",
        f"{total} of {len(found)} mutants were found, {always} of them in every hunt,"
        f" {soon} of them within {SOON} seeds.",
        "",
        "| mutant | what is wrong | scenarios | found | seeds | seconds | claims | shortest trace |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        claims = ", ".join(f"`{claim}`" for claim in row.claims) or "none"
        cells = [
            f"`{row.mutant}`",
            MUTANTS[row.mutant].description,
            row.scenarios,
            f"{row.found} of {len(row.hunts)}",
            f"{row.seeds:g}",
            f"{row.seconds:.1f}",
            claims,
            "" if row.trace is None else f"{row.trace.events} events, {row.trace.states:,} states: {row.trace.claim}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
