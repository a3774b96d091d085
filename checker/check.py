"""Checks a history against claims: one call that every caller uses, from the command line to a suite."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from checker import (
    agreement,
    beliefs,
    coverage,
    fencing,
    ghosts,
    leases,
    linearizable,
    mutual_exclusion,
    recovery,
    resource,
)
from checker.history import Event, History, paused_collector
from checker.narrator import Narrator
from checker.options import Options, OptionsError
from checker.timeline import Timeline
from checker.verdict import COVERAGE, ClaimResult, Results


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything that a claim may look at."""

    history: History
    timeline: Timeline
    narrator: Narrator
    options: Options
    found: Mapping[str, int]


_CLAIMS: dict[str, Callable[[_Case], ClaimResult]] = {
    linearizable.CLAIM: lambda case: linearizable.check(case.history, case.narrator),
    mutual_exclusion.CLAIM: lambda case: mutual_exclusion.check(
        case.history, case.narrator, case.timeline, clock_error=case.options.clock_error
    ),
    fencing.CLAIM: lambda case: fencing.check(
        case.history, case.narrator, tokens_span_keys=case.options.tokens_span_keys
    ),
    resource.CLAIM: lambda case: resource.check(case.history, case.narrator),
    leases.CLAIM: lambda case: leases.check(
        case.history,
        case.narrator,
        case.timeline,
        clock_error=case.options.clock_error,
        late_s_max=case.options.late_s_max,
    ),
    ghosts.CLAIM: lambda case: ghosts.check(case.history, case.narrator),
    agreement.CLAIM: lambda case: agreement.check(case.history, case.narrator, case.options.evidence),
    recovery.CLAIM: lambda case: recovery.check(case.timeline, seconds_max=case.options.recovery_s_max),
    beliefs.CLAIM: lambda case: beliefs.check(case.history, case.narrator),
    COVERAGE: lambda case: coverage.check(case.found, case.options.coverage, case.timeline),
}

#: Every claim that can be checked.
CLAIMS = tuple(_CLAIMS)

#: What is checked when nobody says what: the safety claims, which need no word from the nemesis.
DEFAULT_CLAIMS = (linearizable.CLAIM, mutual_exclusion.CLAIM, fencing.CLAIM, resource.CLAIM)


def check(
    history: History | Iterable[Event], claims: Iterable[str] = DEFAULT_CLAIMS, options: Options | None = None
) -> Results:
    """Check a history, or the events of one, against `claims`.

    With demands in `options.coverage`, the claim `coverage` is checked too. Raises OptionsError for a claim or a demand
    that is not known, HistoryError when the events are no history.
    """
    started = time.perf_counter()
    options = options or Options()
    wanted = list(dict.fromkeys(claims))
    if unknown := [claim for claim in wanted if claim not in _CLAIMS]:
        raise OptionsError(f"unknown claim {', '.join(map(repr, unknown))}; known are {', '.join(CLAIMS)}")
    if options.coverage and COVERAGE not in wanted:
        wanted.append(COVERAGE)
    with paused_collector():
        if not isinstance(history, History):
            history = History.of(history)
        timeline = Timeline.of(history.events)
        found = coverage.measure(history, timeline)
        case = _Case(history, timeline, Narrator(timeline), options, found)
        results = {claim: _CLAIMS[claim](case) for claim in wanted}
    outcomes = dict.fromkeys(("ok", "fail", "info"), 0)
    for operation in history.operations:
        outcomes[operation.outcome] += 1
    seconds = time.perf_counter() - started
    return Results(results, outcomes, found, round(seconds, 6), history.warnings)
