"""Many scenarios, one after another, and what they amount to.

A suite is made of scenario files: named on the command line, all those of a folder (sorted by name), or those that a
suite file lists. A file that cannot be used, or is not there, is an entry of its own, and the others still run. An
entry passes when its run ended as its scenario expects, so a scenario that expects a violation passes by showing it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from checker.verdict import Verdict
from fencepost import suite_file
from fencepost.exits import Exit, UserError, worst
from fencepost.outcome import Outcome, Status
from fencepost.scenario import ScenarioError
from fencepost.suite_file import SuiteEntry

logger = logging.getLogger(__name__)

#: Each status as an exit code: what it would be if its run were the only one.
EXITS = {
    Status.PASSED: Exit.VALID,
    Status.VIOLATION: Exit.VIOLATED,
    Status.UNMET: Exit.UNKNOWN,
    Status.UNKNOWN: Exit.UNKNOWN,
    Status.COVERAGE: Exit.COVERAGE,
    Status.HARNESS: Exit.HARNESS,
    Status.BAD_FILE: Exit.BAD_INPUT,
    Status.NOT_RUN: Exit.UNKNOWN,
}

_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Entry:
    """One scenario of a suite and what became of it."""

    file: Path
    name: str
    status: Status
    message: str = ""
    outcome: Outcome | None = None
    seconds: float = 0.0

    @property
    def exit(self) -> Exit:
        return EXITS[self.status]

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "scenario": self.name,
            "status": str(self.status),
            "message": self.message,
            "seconds": round(self.seconds, 3),
            "results": None if self.outcome is None else self.outcome.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Summary:
    name: str
    entries: tuple[Entry, ...] = field(default=())

    @property
    def exit(self) -> Exit:
        """A violation dominates; then a failed harness, a bad file, a missing verdict, too little coverage."""
        return worst(entry.exit for entry in self.entries)

    def count(self, status: Status) -> int:
        return sum(entry.status is status for entry in self.entries)

    @property
    def seconds(self) -> float:
        return sum(entry.seconds for entry in self.entries)

    def to_dict(self) -> dict[str, Any]:
        return {
            "suite": self.name,
            "exit_code": int(self.exit),
            "counts": {str(status): self.count(status) for status in Status},
            "seconds": round(self.seconds, 3),
            "runs": [entry.to_dict() for entry in self.entries],
        }


def collect(paths: Sequence[Path]) -> list[SuiteEntry]:
    """What files, suite files and folders stand for, in that order. Raises UserError, and ScenarioError for a suite
    file that is none."""
    entries: list[SuiteEntry] = []
    for path in paths:
        if path.is_dir():
            found = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
            if not found:
                raise UserError(f"{path}: no scenarios in this folder; files that end in .yaml or .yml are needed")
            entries += map(SuiteEntry, found)
        elif suite_file.is_suite(path):
            entries += suite_file.load(path).entries
        else:
            entries.append(SuiteEntry(path))
    return entries


def title(paths: Sequence[Path]) -> str:
    """What to call a suite of these files and folders."""
    if len(paths) != 1:
        return "scenarios"
    (path,) = paths
    return suite_file.load(path).name if path.is_file() and suite_file.is_suite(path) else path.resolve().stem


def run(
    name: str,
    planned: Sequence[SuiteEntry],
    run_one: Callable[[SuiteEntry], Outcome],
) -> Summary:
    """Run the scenarios one after another. An interrupt ends the suite with what there is."""
    entries: list[Entry] = []
    interrupted = False
    for one in planned:
        if interrupted:
            entry = Entry(one.file, one.file.stem, Status.NOT_RUN, "the suite was interrupted before it")
        else:
            entry, interrupted = _run_one(one, run_one)
        entries.append(entry)
    return Summary(name, tuple(entries))


def _run_one(one: SuiteEntry, run_one: Callable[[SuiteEntry], Outcome]) -> tuple[Entry, bool]:
    """The entry, and whether the user wants no more."""
    file, began = one.file, time.monotonic()
    try:
        outcome = run_one(one)
    except ScenarioError as problem:
        return Entry(file, file.stem, Status.BAD_FILE, str(problem)), False
    except KeyboardInterrupt:
        return Entry(file, file.stem, Status.NOT_RUN, "interrupted", None, time.monotonic() - began), True
    except UserError as problem:
        # Such as a store that has no room for this run; those that were made before it still count.
        return Entry(file, file.stem, Status.HARNESS, str(problem), None, time.monotonic() - began), False
    except Exception as problem:
        # One run's harness must not take the results of the others with it.
        logger.exception("the harness failed at %s", file)
        message = f"{type(problem).__name__}: {problem}"
        return Entry(file, file.stem, Status.HARNESS, message, None, time.monotonic() - began), False
    entry = Entry(file, outcome.scenario.name, outcome.status, describe(outcome), outcome, time.monotonic() - began)
    return entry, outcome.interrupted is not None


def describe(outcome: Outcome) -> str:
    """Why a run has the status that it has, in a line or two."""
    results = outcome.results
    if outcome.failure is not None or results is None:
        return outcome.failure or "nothing was recorded"
    found = f"violated: {', '.join(results.violated)}" if results.violated else "nothing was violated"
    if outcome.interrupted is not None:
        found = f"interrupted by {outcome.interrupted}, and until then {found}"
        if outcome.cut_short:
            return found
    expected = outcome.scenario.expect.invalid
    if expected:
        return found if outcome.expected else f"expected a violation of {', '.join(expected)}, but {found}"
    first = [
        finding.message.splitlines()[0]
        for result in results.claims.values()
        if result.verdict is not Verdict.VALID
        for finding in result.findings[:1]
        if finding.message
    ]
    return "; ".join([*([found] if results.violated else []), *first]) or "every claim held"
