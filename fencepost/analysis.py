"""From a recorded history to results and a report."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import checker
from checker.history import NEMESIS, Event
from fencepost import invocation, report
from fencepost.outcome import Outcome
from fencepost.scenario import Scenario
from fencepost.store import write_text

#: The claim that rests on evidence from inside the nodes.
AGREEMENT = "agreement"

logger = logging.getLogger(__name__)


def replay_command(scenario: Scenario) -> str:
    """The command line that runs a scenario again as it was run, whatever its file says."""
    words = ["run", str(scenario.path or f"{scenario.name}.yaml"), "--place", scenario.place]
    if scenario.hosts is not None:
        words += ["--hosts", scenario.hosts]
    words += ["--seed", str(scenario.seed), "--nodes", str(scenario.nodes)]
    words += ["--time-limit", f"{scenario.time_limit_ns / 1e9:g}s"]
    return invocation.command(words)


def options(scenario: Scenario, tokens_span_keys: bool, evidence: checker.Evidence | None = None) -> checker.Options:
    """What a scenario lets the checker take for granted, and demands of the run; and what the nodes gave away."""
    return checker.Options(
        clock_error=scenario.clock_error,
        tokens_span_keys=tokens_span_keys,
        coverage=scenario.coverage,
        late_s_max=None if scenario.late_ns is None else scenario.late_ns / 1e9,
        leader_changes_max=scenario.leader_changes_max,
        evidence=evidence,
        settle=scenario.settle,
    )


def claims(scenario: Scenario, evidence: checker.Evidence | None) -> tuple[str, ...]:
    """What is checked of a run: what its scenario says, and `agreement` wherever the nodes gave evidence of it."""
    return tuple(dict.fromkeys([*scenario.checks, *([] if evidence is None else [AGREEMENT])]))


def skipped(events: Sequence[Event]) -> tuple[str, ...]:
    """Which faults did not take place, and why: a verdict says nothing of those."""
    told = ((event.f, event.value) for event in events if event.process == NEMESIS and isinstance(event.value, dict))
    return tuple(
        f"the fault {value.get('fault')} ({kind}) did not take place: {value.get('reason')}"
        for kind, value in told
        if value.get("action") == "skipped"
    )


def about(outcome: Outcome) -> report.About:
    """What the report says of a run beside its history."""
    scenario = outcome.scenario
    facts = {
        "system": scenario.system + (f", mutant {scenario.mutant}" if scenario.mutant else ""),
        "place": scenario.place,
        "nodes": str(scenario.nodes),
        "seed": str(scenario.seed),
        "workload": scenario.workload.kind,
        "clients": str(scenario.workload.clients),
        "keys": str(scenario.workload.keys),
        "lease": f"{scenario.workload.lease_ms / 1000:g} s",
        "clock error": f"{scenario.clock_error:.3g}",
    }
    notices = []
    if outcome.failure is not None:
        notices.append(f"The harness failed, so all this is only about what was recorded: {outcome.failure}")
    if outcome.interrupted is not None:
        notices.append(f"{outcome.interrupted} ended this run early: all this is on what was recorded until then.")
    if outcome.enough is not None:
        notices.append(f"The load was ended at the first violation: {outcome.enough}.")
    if outcome.results is not None:
        notices += outcome.results.warnings
    return report.About(
        title=scenario.name,
        facts=facts,
        command=invocation.command(["repro", str(outcome.folder.repro)]),
        notices=notices,
        expectation=_expectation(outcome),
        minimums=scenario.coverage,
        clock_error=scenario.clock_error,
    )


def _expectation(outcome: Outcome) -> str | None:
    expected = outcome.scenario.expect.invalid
    if not expected:
        return None
    words = f"this scenario expects a violation of {', '.join(expected)}"
    return f"As expected: {words}." if outcome.expected else f"Not as expected: {words}."


def write_report(path: Path, events: Sequence[Event], results: dict[str, object], about: report.About) -> str | None:
    """Write the page. A picture never changes a verdict, so whatever goes wrong is logged, and returned in words."""
    try:
        write_text(path, report.render(events, results, about))
    except Exception as problem:
        logger.exception("the report could not be made")
        return f"the report could not be made ({type(problem).__name__}: {problem})"
    return None
