"""`fencepost check`: a verdict on a history that somebody recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

import checker
from checker import drawing, subhistory
from checker.history import Event
from cluster import systems
from cluster.registry import UnknownName
from fencepost import analysis, evidence, foreign, quantities, report
from fencepost.exits import UserError
from fencepost.outcome import cut_short
from fencepost.scenario import Scenario, ScenarioError, read
from fencepost.store import RunFolder


@dataclass(frozen=True, slots=True)
class Request:
    """What to check, and under which assumptions. `scenario` is that of the run's folder, if one was given."""

    path: Path
    claims: Sequence[str]
    options: checker.Options
    scenario: Scenario | None = None
    reading: foreign.Reading = field(default_factory=foreign.Reading)
    engine: checker.Engine = checker.Engine.AUTO
    #: What was odd about the request, and is told with the verdict.
    warnings: tuple[str, ...] = ()
    #: Why the run whose folder was given did not come to its end.
    cut_short: str | None = None
    #: Processes for long histories; 0: as many as pay.
    jobs: int = 0


def request(
    path: Path,
    claims: Sequence[str] | None,
    clock_error: str | None,
    tokens_span_keys: bool,
    reading: foreign.Reading | None = None,
    engine: str = checker.Engine.AUTO,
    settle: bool = True,
    jobs: int = 0,
) -> Request:
    """`settle` False settles nothing from the nodes' log, whatever a scenario says. Raises UserError, OptionsError for
    claims that do not exist."""
    if claims is not None and not claims:
        raise UserError(f"--claims names none; there are {', '.join(checker.CLAIMS)}")
    scenario = why = None
    if path.is_dir():
        folder = RunFolder(path)
        if not folder.history.exists():
            raise UserError(
                f"{path}: a folder without {folder.history.name}; a history or the folder of a run is needed"
            )
        path, scenario, why = folder.history, _scenario_of(folder), cut_short(folder)
    if jobs < 0:
        raise UserError(f"--jobs: found {jobs}; a number of processes, or 0 for as many as pay")
    reading = reading or foreign.Reading()
    if engine not in set(checker.Engine):
        raise UserError(f"--engine: found {engine!r}; {', '.join(checker.Engine)} are known")
    how = checker.Engine(engine)
    share = None if clock_error is None else _share(clock_error)
    if scenario is None:
        options = checker.Options(clock_error=share or 0.0, tokens_span_keys=tokens_span_keys)
        return Request(path, claims or checker.DEFAULT_CLAIMS, options, None, reading, how, cut_short=why, jobs=jobs)
    spans = tokens_span_keys or _spans_keys(scenario, RunFolder(path.parent))
    warnings: tuple[str, ...] = ()
    if spans is None:
        warnings = (
            f"whether tokens of {scenario.system} increase over all keys is not known here; fencing is checked within"
            " each (--tokens-span-keys: over all)",
        )
    found = evidence.read(path.parent)
    options = analysis.options(scenario, spans is True, found)
    if share is not None:
        options = replace(options, clock_error=share)
    if not settle:
        options = replace(options, settle=False)
    wanted = claims or analysis.claims(scenario, found)
    return Request(path, wanted, options, scenario, reading, how, warnings, why, jobs)


def _scenario_of(folder: RunFolder) -> Scenario | None:
    """What a run was. It need not be one that could be run here."""
    for file in (folder.scenario, folder.repro):
        if file.exists():
            try:
                return read(file)
            except ScenarioError as problem:
                raise UserError(
                    f"the run's scenario cannot be used, so check {folder.history}:\n{problem}"
                ) from problem
    return None


def _spans_keys(scenario: Scenario, folder: RunFolder) -> bool | None:
    """Whether the scenario's system promises tokens that increase over all keys; None: that can't be found out."""
    system = folder.recorded().get("system")
    recorded = system.get("tokens_span_keys") if isinstance(system, dict) else None
    if isinstance(recorded, bool):
        return recorded
    try:
        return systems.create(scenario.system, scenario.mutant).tokens_span_keys
    except UnknownName:
        return None


def _share(text: str) -> float:
    """1% or 0.01. Raises UserError."""
    try:
        share = float(text)
    except ValueError:
        try:
            share = quantities.parse_share(text)
        except ValueError:
            share = -1.0
    if not 0 <= share < 1:
        raise UserError(f"--clock-error: found {text!r}; expected {quantities.A_SHARE}, and less than 100%")
    return share


def check(request: Request, events_wanted: bool = True) -> tuple[checker.Results, Sequence[Event]]:
    """The verdict, and the events that it is about; none if they are not wanted, which saves most of the time.

    Raises HistoryError, OptionsError, UserError.
    """
    results, events = _check(request, events_wanted)
    short = sum(results.operations.values()) <= subhistory.OPERATIONS_MAX_FOR_PARTS
    if short and "linearizable" in results.violated and request.reading.model is None:
        results = subhistory.with_parts(results, _history(request, events), request.options)
    return replace(results, warnings=(*results.warnings, *request.warnings)), events


def _history(request: Request, events: Sequence[Event]) -> checker.History:
    if events:
        return checker.History.of(events)
    return checker.read(request.path)


def write_parts(results: checker.Results, request: Request, events: Sequence[Event], folder: Path) -> list[Path]:
    """For each finding of `linearizable` the smallest part of the history that is refused as well, as a history:
    `linearizable-<number>.jsonl`. Raises UserError."""
    history = _history(request, events)
    results = subhistory.with_parts(results, history, request.options)
    judged = subhistory.judged_history(history, request.options)
    findings = results.claims["linearizable"].findings if "linearizable" in results.claims else ()
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, finding in enumerate(findings, 1):
            part = subhistory.of_finding(finding, judged)
            if part:
                path = folder / f"linearizable-{number}.jsonl"
                path.write_bytes(msgspec.json.Encoder().encode_lines(part))
                written.append(path)
    except OSError as problem:
        raise UserError(f"{folder}: cannot be written: {problem.strerror or problem}") from None
    return written


def _check(request: Request, events_wanted: bool) -> tuple[checker.Results, Sequence[Event]]:
    if foreign.is_foreign(request.path, request.reading):
        return foreign.check(request.path, request.reading, request.claims, request.options)
    if not events_wanted:
        return checker.check_file(request.path, request.claims, request.options, request.engine, request.jobs), ()
    history = checker.read(request.path)
    return checker.check(history, request.claims, request.options), history.events


def about(request: Request) -> report.About:
    """What the page can say of a history by itself."""
    facts = {"history": str(request.path), "clock error": f"{request.options.clock_error:.3g}"}
    if request.scenario is not None:
        facts = {"system": request.scenario.system, "seed": str(request.scenario.seed), **facts}
    return report.About(
        title=request.scenario.name if request.scenario else request.path.name,
        facts=facts,
        notices=[] if request.cut_short is None else [f"All this is on what was recorded: {request.cut_short}."],
        minimums=request.options.coverage,
        clock_error=request.options.clock_error,
    )


def draw(results: checker.Results, folder: Path) -> list[Path]:
    """A picture of each finding that cites operations, `<claim>-<number>.svg`. Raises UserError."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for claim, result in results.claims.items():
            for number, finding in enumerate((found for found in result.findings if found.operations), 1):
                path = folder / f"{claim}-{number}.svg"
                path.write_text(drawing.draw(finding), encoding="utf-8")
                written.append(path)
    except OSError as problem:
        raise UserError(f"{folder}: cannot be written: {problem.strerror or problem}") from None
    return written
