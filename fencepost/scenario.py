"""Scenarios: what is run, disturbed, checked and expected, read from YAML and validated before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from checker.verdict import Results, Verdict
from nemesis.spec import FaultSpec
from workloads.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file: where it is, what was found there, and what would do instead."""

    file: str
    line: int | None
    field: str
    found: str
    remedy: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        named = f"{where}: {self.field}" if self.field else where
        return f"{named}: {self.found}; {self.remedy}"


class ScenarioError(Exception):
    """A file that cannot be used. `problems` are all of them, in the order of the file; `str()` is one a line."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Expectation:
    """The verdict that a scenario is expected to get: valid, or a violation of (at least) the claims named."""

    invalid: tuple[str, ...] = ()

    def met_by(self, results: Results) -> bool:
        if not self.invalid:
            return results.verdict is Verdict.VALID
        return all(
            claim in results.claims and results.claims[claim].verdict is Verdict.INVALID for claim in self.invalid
        )


@dataclass(frozen=True, slots=True)
class Scenario:
    """One validated scenario. `path` is the file that it came from and no part of what it says."""

    name: str
    workload: WorkloadSpec
    time_limit_ns: int
    system: str = "lockd"
    #: A deliberately broken variant of the system, by name.
    mutant: str | None = None
    place: str = "local"
    nodes: int = 5
    #: Every random choice of a run comes from it.
    seed: int = 0
    #: The declared bound on the rate error of any clock, as a share: 0.01 is 1%.
    clock_error: float = 0.01
    nemesis: tuple[FaultSpec, ...] = ()
    checks: tuple[str, ...] = ()
    #: Minimums that a run must reach to be accepted.
    coverage: Mapping[str, int] = field(default_factory=dict)
    expect: Expectation = Expectation()
    path: Path | None = field(default=None, compare=False)

    def node_names(self) -> tuple[str, ...]:
        return tuple(f"n{number}" for number in range(1, self.nodes + 1))


def load(path: Path) -> Scenario:
    """Read and validate a scenario file. Raises ScenarioError with every problem that was found."""
    raise NotImplementedError


def dump(scenario: Scenario) -> str:
    """The scenario as YAML that `load` reads back as an equal one."""
    raise NotImplementedError


def override(
    scenario: Scenario,
    *,
    place: str | None = None,
    seed: int | None = None,
    nodes: int | None = None,
    time_limit_ns: int | None = None,
) -> Scenario:
    """The scenario with what the command line says instead, validated anew. Raises ScenarioError."""
    raise NotImplementedError
