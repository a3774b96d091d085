"""`fencepost check` on histories of other tools, and of other objects than locks with tokens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import checker
from checker.formats import Format, Names, Record, Target, calls, detect, lint, read_records, to_events
from checker.formats import export as export_history
from checker.history import Event, History, HistoryError, Operation
from checker.search import Budget, Call, ModelError
from checker.search import check as search
from checker.settle import settle
from fencepost.exits import UserError


@dataclass(frozen=True, slots=True)
class Reading:
    """How a history is to be read. With a `model`, the search decides whether it is linearizable, and nothing else is
    checked; `independent` values are pairs [key, value]."""

    format: Format = Format.AUTO
    names: Names = field(default_factory=Names)
    model: str | None = None
    independent: bool = False
    budget: Budget = field(default_factory=Budget)


def reading(
    format: str,
    maps: Sequence[str],
    errors: Sequence[str],
    token: str | None,
    key: str,
    model: str | None,
    independent: bool,
    seconds: float,
    megabytes: int,
) -> Reading:
    """From the command line. Raises UserError."""
    try:
        names = Names(_pairs("--map", maps), _pairs("--map-error", errors), token, key)
        return Reading(_format(format), names, model, independent, Budget(seconds, megabytes))
    except (HistoryError, ModelError) as problem:
        raise UserError(str(problem)) from None


def _format(name: str) -> Format:
    try:
        return Format(name)
    except ValueError:
        raise UserError(f"--format: found {name!r}; {', '.join(Format)} are known") from None


def _pairs(option: str, words: Sequence[str]) -> Mapping[str, str]:
    found = {}
    for word in words:
        theirs, equals, ours = word.partition("=")
        if not (theirs and equals and ours):
            raise UserError(f"{option}: found {word!r}; THEIRS=OURS is needed, such as lock=acquire")
        found[theirs.removeprefix(":")] = ours
    return found


def is_foreign(path: Path, how: Reading) -> bool:
    """Whether the file takes more than reading our own format; one that can't be told is left to our reader."""
    if how.model is not None:
        return True
    if how.format is not Format.AUTO:
        return how.format is not Format.JSONL
    try:
        return detect(path) is not Format.JSONL
    except HistoryError:
        return False


def check(
    path: Path, how: Reading, claims: Sequence[str], options: checker.Options
) -> tuple[checker.Results, Sequence[Event]]:
    """The verdict, and the events that it is about: none for a model. Raises HistoryError, UserError."""
    started = time.perf_counter()
    records = read_records(path, how.format)
    warnings = tuple(suspicion.words() for suspicion in lint(records))
    if how.model is not None:
        try:
            found = calls(records, independent=how.independent)
            settled = _settled(path, found, options) if detect(path) is Format.JSONL else None
            return _searched(settled or found, how.budget, how.model, warnings, started), ()
        except HistoryError as problem:
            raise HistoryError(problem.problem, line=problem.line, path=str(path)) from None
        except ModelError as problem:
            raise UserError(f"{path}: {problem}") from None
    history = _history(path, records, how, warnings)
    if tuple(claims) == checker.DEFAULT_CLAIMS and not any(operation.lease_ns for operation in history.operations):
        # Nobody asked for what rests on leases, and other tools record none.
        claims = [claim for claim in claims if claim != "mutual-exclusion"]
    return checker.check(history, claims, options), history.events


def _history(path: Path, records: Sequence[Record], how: Reading, warnings: tuple[str, ...]) -> History:
    try:
        events = to_events(records, how.names)
    except HistoryError as problem:
        raise HistoryError(problem.problem, line=problem.line, path=str(path)) from None
    try:
        return History.of(events, warnings)
    except HistoryError as problem:
        # It counts events, and records may begin on any line.
        line = None if problem.line is None else records[problem.line - 1].line
        raise HistoryError(problem.problem, line=line, path=str(path)) from None


def _settled(path: Path, found: Sequence[Call], options: checker.Options) -> list[Call] | None:
    """The calls of a run's history, of which some are settled from the nodes' log; None where it says nothing."""
    if options.evidence is None or not options.settle:
        return None
    after = {one.index: one for one in settle(checker.read(path), options.evidence).history.operations}
    return [_as_settled(call, after.get(call.start)) for call in found]


def _as_settled(call: Call, operation: Operation | None) -> Call:
    if call.outcome != "info" or operation is None or operation.outcome == "info":
        return call
    end = operation.end if operation.outcome == "ok" else call.end
    result = {"token": operation.token} if operation.outcome == "ok" else None
    return replace(call, outcome=operation.outcome, end=end, result=result, error=operation.error)


def _searched(
    found: Sequence[Call], budget: Budget, model: str, warnings: tuple[str, ...], started: float
) -> checker.Results:
    result = search(found, model, budget)
    counted = Counter(call.outcome for call in found)
    outcomes = {name: counted[name] for name in ("ok", "fail", "info")}
    seconds = round(time.perf_counter() - started, 6)
    return checker.Results({"linearizable": result}, outcomes, {}, seconds, warnings)


def suspicions(path: Path, format: str) -> list[str]:
    """What `lint` has to say, a line each. Raises HistoryError, UserError."""
    return [f"{path}: {suspicion.words()}" for suspicion in lint(read_records(path, _format(format)))]


def export(path: Path, format: str, target: str) -> Iterator[str]:
    """The history in another format, in parts. Raises HistoryError, UserError."""
    try:
        to = Target(target)
    except ValueError:
        raise UserError(f"--to: found {target!r}; {', '.join(Target)} are known") from None
    how = Reading(_format(format))
    history = _history(path, read_records(path, how.format), how, ()) if is_foreign(path, how) else checker.read(path)
    return export_history(history, to)


def write(path: Path, parts: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(parts)
