"""Ends of runs that were never made."""

from __future__ import annotations

from pathlib import Path

from checker.verdict import ClaimResult, Finding, Results, Verdict
from fencepost.outcome import Outcome
from fencepost.scenario import Expectation, Scenario
from fencepost.store import RunFolder
from workloads.spec import WorkloadSpec


def scenario(name: str = "x", expect: tuple[str, ...] = ()) -> Scenario:
    workload = WorkloadSpec("mutex", clients=2, keys=1, rate=10.0, lease_ms=1000, hold_ms=(1, 2))
    return Scenario(name, workload, time_limit_ns=1_000_000_000, expect=Expectation(expect), checks=("fencing",))


def results(verdict: Verdict = Verdict.VALID, *, message: str = "token 2 twice", short: bool = False) -> Results:
    findings = () if verdict is Verdict.VALID else (Finding("fencing", verdict, message),)
    claims = {"fencing": ClaimResult(verdict, findings)}
    if short:
        claims["coverage"] = ClaimResult(
            Verdict.UNKNOWN, (Finding("coverage", Verdict.UNKNOWN, "kills: 0 found, 1 needed"),)
        )
    return Results(claims, {"ok": 1, "fail": 0, "info": 0}, {"kills": 0}, 0.1)


def outcome(
    found: Results | None,
    *,
    name: str = "x",
    expect: tuple[str, ...] = (),
    failure: str | None = None,
    interrupted: str | None = None,
) -> Outcome:
    return Outcome(scenario(name, expect), RunFolder(Path("store/x/1")), found, failure, interrupted)
