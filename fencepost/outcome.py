"""How one run ended: the checker's results, and what became of the harness."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from checker.verdict import Results, Verdict
from cluster.places.ownership import Harness
from fencepost.exits import Exit
from fencepost.scenario import Scenario
from fencepost.store import RunFolder, document


class Status(StrEnum):
    """What a suite counts a run as."""

    PASSED = "passed"
    VIOLATION = "violation"
    #: The scenario expects a violation, and the run did not show it.
    UNMET = "expectation-not-met"
    COVERAGE = "coverage"
    UNKNOWN = "unknown"
    HARNESS = "harness"
    BAD_FILE = "bad-file"
    NOT_RUN = "not-run"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`results` are None when nothing could be checked; `failure` says what the harness failed at; `interrupted`
    names the signal that ended the load early, `enough` the violation that did."""

    scenario: Scenario
    folder: RunFolder
    results: Results | None
    failure: str | None = None
    interrupted: str | None = None
    enough: str | None = None

    @property
    def exit(self) -> Exit:
        """A failed harness has no verdict, whatever the part that was recorded says. An interrupted run has one only
        if it shows a violation: nobody knows what the rest would have shown."""
        if self.failure is not None or self.results is None:
            return Exit.HARNESS
        if self.cut_short:
            return Exit.UNKNOWN
        return Exit(self.results.exit_code)

    @property
    def verdict(self) -> Verdict:
        """The checker's, unless the harness failed or somebody interrupted it: then the run was not what it was meant
        to be, and only a violation that it recorded stands."""
        found = Verdict.UNKNOWN if self.results is None else self.results.verdict
        whole = self.failure is None and self.interrupted is None
        return found if whole or found is Verdict.INVALID else Verdict.UNKNOWN

    @property
    def cut_short(self) -> bool:
        """Whether a signal ended the run before it had shown a violation."""
        return self.interrupted is not None and (self.results is None or self.results.verdict is not Verdict.INVALID)

    @property
    def expected(self) -> bool:
        """Whether the run ended as the scenario says that it must."""
        if self.failure is not None or self.results is None or self.cut_short:
            return False
        return self.scenario.expect.met_by(self.results)

    @property
    def status(self) -> Status:
        if self.failure is not None or self.results is None:
            return Status.HARNESS
        if self.cut_short:
            return Status.UNKNOWN
        if self.expected:
            return Status.PASSED
        if self.exit is Exit.VIOLATED:
            return Status.VIOLATION
        if self.scenario.expect.invalid:
            return Status.UNMET
        return Status.COVERAGE if self.exit is Exit.COVERAGE else Status.UNKNOWN

    def to_dict(self) -> dict[str, Any]:
        """The document of `results.json` and `run --json`: the checker's, and a section on the run itself."""
        results = NOTHING_CHECKED if self.results is None else self.results.to_dict()
        return {
            **results,
            "verdict": str(self.verdict),
            "run": {
                "scenario": self.scenario.name,
                "seed": self.scenario.seed,
                "folder": str(self.folder.path),
                "exit_code": int(self.exit),
                "expected": self.expected,
                "interrupted": self.interrupted,
                "stopped_at": self.enough,
                "failure": self.failure,
            },
        }


def cut_short(folder: RunFolder) -> str | None:
    """Why the run of a folder did not come to its end, as far as the folder tells; None when it did, or is no run's."""
    run = document(folder.results).get("run")
    if not isinstance(run, dict):
        harness = Harness.parse(str(folder.recorded().get("harness")))
        if harness is None:
            return None
        return "the run goes on" if harness.alive() else "its harness was killed, or could not write its results"
    if isinstance(run.get("failure"), str):
        return f"the harness failed: {run['failure']}"
    if isinstance(run.get("interrupted"), str):
        return f"{run['interrupted']} ended the run early"
    return None


NOTHING_CHECKED: dict[str, Any] = {
    "verdict": str(Verdict.UNKNOWN),
    "claims": {},
    "operations": {"ok": 0, "fail": 0, "info": 0},
    "coverage": {},
    "seconds": 0.0,
    "warnings": [],
}
