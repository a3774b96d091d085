"""What a check says: verdicts, the findings behind them, and their one shape as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

EXIT_VALID = 0
EXIT_INVALID = 1
EXIT_UNKNOWN = 2
EXIT_COVERAGE = 3

#: The claim whose shortfall is no violation: the run did too little to be accepted, whatever it found.
COVERAGE = "coverage"

#: The `kind` of a finding that says nothing about the service, since a fault broke what the claim takes for granted.
ASSUMPTION_BROKEN = "assumption-broken"


class Verdict(StrEnum):
    """`invalid` dominates `unknown`, which dominates `valid`. `unknown` is never to be read as a pass."""

    VALID = "valid"
    UNKNOWN = "unknown"
    INVALID = "invalid"

    @staticmethod
    def worst(verdicts: Iterable[Verdict]) -> Verdict:
        """The one that dominates; `valid` for none, since nothing was claimed."""
        return max(verdicts, key=_RANK.__getitem__, default=Verdict.VALID)


_RANK = {Verdict.VALID: 0, Verdict.UNKNOWN: 1, Verdict.INVALID: 2}


@dataclass(frozen=True, slots=True)
class CitedOperation:
    """An operation as a finding names it.

    `index` and `end` are the positions of its invoke and its completion in the history (`end` is None while open),
    `invoked_s` and `completed_s` the seconds since the start of the run. `type` is its outcome, "info" while open.
    `token` is the one that it was granted, named or saw. `role` says in words what it has to do with the finding.
    """

    index: int
    end: int | None
    process: int
    node: str | None
    f: str
    key: str | None
    type: str
    token: int | None
    error: str | None
    invoked_s: float
    completed_s: float | None
    role: str

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the nemesis and when it was active: from its injection to the end of its healing.

    `end_s` is None while it was never healed. `took_effect` holds only with evidence; a skipped fault has none.
    `breaks` names the declared assumptions that it violated ("clock_error").
    """

    id: str
    kind: str
    targets: tuple[str, ...]
    start_s: float
    end_s: float | None
    start: int
    end: int | None
    took_effect: bool
    evidence: str | None
    breaks: tuple[str, ...] = ()

    def words(self) -> str:
        where = f" of {', '.join(self.targets)}" if self.targets else ""
        until = "not healed" if self.end_s is None else f"to {self.end_s:.3f} s"
        return f"{self.kind}{where} ({self.id}, {self.start_s:.3f} s {until})"

    def to_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        return {**plain, "targets": list(self.targets), "breaks": list(self.breaks)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a claim has to say, in words and as data.

    `message` is complete by itself, one fact a line. `verdict` is what the finding makes of its claim: `invalid` for a
    violation, `unknown` where evidence is missing or an assumption was broken, `valid` for mere information.
    `faults` were active at some time between the first and the last event of `operations`.
    """

    claim: str
    verdict: Verdict
    message: str
    key: str | None = None
    operations: tuple[CitedOperation, ...] = ()
    faults: tuple[Fault, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "claim": self.claim,
            "verdict": str(self.verdict),
            "message": self.message,
            "key": self.key,
            "operations": [operation.to_dict() for operation in self.operations],
            "faults": [fault.to_dict() for fault in self.faults],
            "data": dict(self.data),
        }


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """The verdict on one claim. `findings` is cut to the first few; `numbers` counts them all, and more."""

    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    numbers: Mapping[str, int | float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": str(self.verdict),
            "findings": [finding.to_dict() for finding in self.findings],
            "numbers": dict(self.numbers),
        }


@dataclass(frozen=True, slots=True)
class Results:
    """The outcome of a check.

    `operations` counts the clients' operations by outcome ("ok", "fail", "info"; open ones are "info"), `coverage` what
    the run exercised, `seconds` is what the check took, `warnings` what was odd but harmless about the history.
    """

    claims: Mapping[str, ClaimResult]
    operations: Mapping[str, int]
    coverage: Mapping[str, int]
    seconds: float
    warnings: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """Too little coverage makes it `unknown`: what the run did not do, it did not prove."""
        return Verdict.worst(result.verdict for result in self.claims.values())

    @property
    def coverage_short(self) -> bool:
        return COVERAGE in self.claims and self.claims[COVERAGE].verdict is not Verdict.VALID

    @property
    def exit_code(self) -> int:
        """0 valid, 1 a claim was violated, 2 unknown, 3 nothing but coverage is missing."""
        verdict = Verdict.worst(result.verdict for name, result in self.claims.items() if name != COVERAGE)
        if verdict is Verdict.INVALID:
            return EXIT_INVALID
        if verdict is Verdict.UNKNOWN:
            return EXIT_UNKNOWN
        return EXIT_COVERAGE if self.coverage_short else EXIT_VALID

    @property
    def violated(self) -> tuple[str, ...]:
        """The claims that were violated."""
        return tuple(name for name, result in self.claims.items() if result.verdict is Verdict.INVALID)

    def to_dict(self) -> dict[str, Any]:
        """The shape of `results.json` and of every `--json`."""
        return {
            "verdict": str(self.verdict),
            "claims": {name: result.to_dict() for name, result in self.claims.items()},
            "operations": dict(self.operations),
            "coverage": dict(self.coverage),
            "seconds": self.seconds,
            "warnings": list(self.warnings),
        }
