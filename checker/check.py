"""Checks a history against claims: one call that every caller uses, from the command line to a suite."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

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
from checker.history import Event, History, paused_collector, read
from checker.jobs import usable
from checker.narrator import Narrator
from checker.options import Options, OptionsError
from checker.settle import Settled, settle
from checker.timeline import Timeline
from checker.verdict import COVERAGE, ClaimResult, Results


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything that a claim may look at: the history as it was recorded, and with what could be settled."""

    history: History
    settled: Settled
    timeline: Timeline
    narrator: Narrator
    options: Options
    found: Mapping[str, int]


_CLAIMS: dict[str, Callable[[_Case], ClaimResult]] = {
    linearizable.CLAIM: lambda case: linearizable.check(
        case.settled.history,
        case.narrator,
        tokens_span_keys=case.options.tokens_span_keys,
        tokens_dense=case.options.tokens_dense,
    ),
    mutual_exclusion.CLAIM: lambda case: mutual_exclusion.check(
        case.settled.history, case.narrator, case.timeline, clock_error=case.options.clock_error
    ),
    fencing.CLAIM: lambda case: fencing.check(
        case.history, case.narrator, tokens_span_keys=case.options.tokens_span_keys
    ),
    resource.CLAIM: lambda case: resource.check(case.history, case.narrator),
    leases.CLAIM: lambda case: leases.check(
        case.settled.history,
        case.narrator,
        case.timeline,
        clock_error=case.options.clock_error,
        late_s_max=case.options.late_s_max,
    ),
    ghosts.CLAIM: lambda case: ghosts.check(case.history, case.narrator),
    agreement.CLAIM: lambda case: agreement.check(case.history, case.narrator, case.options.evidence),
    recovery.CLAIM: lambda case: recovery.check(
        case.timeline,
        seconds_max=case.options.recovery_s_max,
        leader_changes_max=case.options.leader_changes_max,
    ),
    beliefs.CLAIM: lambda case: beliefs.check(case.history, case.narrator),
    COVERAGE: lambda case: coverage.check(case.found, case.options.coverage, case.timeline),
}

#: Every claim that can be checked.
CLAIMS = tuple(_CLAIMS)

#: What is checked when nobody says what: the safety claims, which need no word from the nemesis.
DEFAULT_CLAIMS: tuple[str, ...] = (linearizable.CLAIM, mutual_exclusion.CLAIM, fencing.CLAIM, resource.CLAIM)

#: Claims that are never `invalid`, whatever the service does.
NEVER_INVALID = (beliefs.CLAIM, COVERAGE)

#: Claims that rest on the declared clock error, which faults can break: what is found then makes them `unknown`.
EXCUSABLE = (mutual_exclusion.CLAIM, leases.CLAIM)


def check(
    history: History | Iterable[Event], claims: Iterable[str] = DEFAULT_CLAIMS, options: Options | None = None
) -> Results:
    """Check a history, or the events of one, against `claims`.

    With demands in `options.coverage`, the claim `coverage` is checked too. Raises OptionsError for a claim or a demand
    that is not known, HistoryError when the events are no history.
    """
    started = time.perf_counter()
    options = options or Options()
    wanted = _wanted(claims, options)
    with paused_collector():
        if not isinstance(history, History):
            history = History.of(history)
        timeline = Timeline.of(history.events)
        found = coverage.measure(history, timeline)
        settled = _settled(history, options)
        case = _Case(history, settled, timeline, Narrator(timeline), options, found)
        results = {claim: _CLAIMS[claim](case) for claim in wanted}
        if settles(options) and linearizable.CLAIM in results:
            judged = results[linearizable.CLAIM]
            results[linearizable.CLAIM] = replace(judged, numbers={**judged.numbers, **settled.numbers()})
    outcomes = dict.fromkeys(("ok", "fail", "info"), 0)
    for operation in history.operations:
        outcomes[operation.outcome] += 1
    seconds = time.perf_counter() - started
    return _remarked(Results(results, outcomes, found, round(seconds, 6), history.warnings), options)


def settles(options: Options) -> bool:
    """Whether operations of unknown outcome are settled."""
    return options.settle and options.evidence is not None


def _settled(history: History, options: Options) -> Settled:
    if options.settle and options.evidence is not None:
        return settle(history, options.evidence)
    return Settled(history, 0, 0, 0)


def _remarked(results: Results, options: Options) -> Results:
    """With a warning where a verdict is `valid` because there was nothing to judge."""
    remarks = []
    if COVERAGE in results.claims and not options.coverage:
        remarks.append("nothing was checked of coverage: there are no demands (a scenario has them)")
    if not sum(results.operations.values()):
        remarks.append("nothing was checked of what clients saw: the history has no operations")
    return replace(results, warnings=(*results.warnings, *remarks))


def _wanted(claims: Iterable[str], options: Options) -> list[str]:
    wanted = list(dict.fromkeys(claims))
    if unknown := [claim for claim in wanted if claim not in _CLAIMS]:
        raise OptionsError(f"unknown claim {', '.join(map(repr, unknown))}; known are {', '.join(CLAIMS)}")
    if options.coverage and COVERAGE not in wanted:
        wanted.append(COVERAGE)
    return wanted


class Engine(StrEnum):
    """How a file is checked: as columns of numbers (for long histories), operation by operation, or as suits it.

    The answers are the same. Columns know the claims in `COLUMN_CLAIMS` and well-formed histories only; all else is
    checked operation by operation, whatever was asked for.
    """

    AUTO = "auto"
    COLUMNS = "columns"
    PYTHON = "python"


#: Below this size the plain way takes no longer than loading numpy.
COLUMNS_BYTES_MIN = 1 << 19

#: From this size on, some 200,000 operations, there is enough work for several processes.
JOBS_BYTES_MIN = 1 << 25

#: The claims that columns can decide.
COLUMN_CLAIMS = (*DEFAULT_CLAIMS, recovery.CLAIM, COVERAGE)


def check_file(
    path: str | os.PathLike[str],
    claims: Iterable[str] = DEFAULT_CLAIMS,
    options: Options | None = None,
    engine: Engine = Engine.AUTO,
    jobs: int = 1,
) -> Results:
    """Check a history file as `check(read(path), ...)` does, at a fraction of its time and memory where it is long.

    Columns are read, and keys decided, by `jobs` processes; 0: as many as can run, where that pays. The answers are
    the same."""
    started = time.perf_counter()
    options = options or Options()
    wanted = _wanted(claims, options)
    results = _check_columns(path, wanted, options, engine, jobs)
    if results is None:
        results = check(read(path), wanted, options)
    return replace(results, seconds=round(time.perf_counter() - started, 6))


def _check_columns(
    path: str | os.PathLike[str], wanted: list[str], options: Options, engine: Engine, jobs: int
) -> Results | None:
    if engine is Engine.PYTHON or options.tokens_dense or not set(wanted) <= set(COLUMN_CLAIMS) or settles(options):
        return None
    try:
        size = os.path.getsize(path)
        if engine is Engine.AUTO and size < COLUMNS_BYTES_MIN:
            return None
    except OSError:
        return None
    # Loading numpy takes longer than checking a short history.
    from checker import column_claims
    from checker.column_reader import read_columns
    from checker.columns import Unsuited

    with paused_collector():
        try:
            jobs = jobs or (usable() if size >= JOBS_BYTES_MIN else 1)
            columns = read_columns(path, jobs)
        except Unsuited:
            return None
        return _remarked(column_claims.check(columns, wanted, options, jobs), options)
