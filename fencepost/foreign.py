"""`fencepost check` on histories of other tools, and of other objects than locks with tokens."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import checker
from checker.formats import Format, Names, Record, calls, detect, lint, read_records, to_events
from checker.history import Event, History, HistoryError
from checker.search import Budget, ModelError
from checker.search import check as search
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
    format: Format,
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
        return Reading(format, names, model, independent, Budget(seconds, megabytes))
    except (HistoryError, ModelError) as problem:
        raise UserError(str(problem)) from None


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
    try:
        if how.model is not None:
            return _searched(records, how, how.model, warnings, started), ()
        history = History.of(to_events(records, how.names), warnings)
    except HistoryError as problem:
        line = problem.line
        # Events are numbered one by one, while a record may begin on any line.
        if how.model is None and line is not None and detect(path) is not Format.JSONL and 0 < line <= len(records):
            line = line if any(record.line == line for record in records) else records[line - 1].line
        raise HistoryError(problem.problem, line=line, path=str(path)) from None
    return checker.check(history, claims, options), history.events


def _searched(
    records: Sequence[Record], how: Reading, model: str, warnings: tuple[str, ...], started: float
) -> checker.Results:
    found = calls(records, independent=how.independent)
    try:
        result = search(found, model, how.budget)
    except ModelError as problem:
        raise UserError(str(problem)) from None
    counted = Counter(call.outcome for call in found)
    outcomes = {name: counted[name] for name in ("ok", "fail", "info")}
    seconds = round(time.perf_counter() - started, 6)
    return checker.Results({"linearizable": result}, outcomes, {}, seconds, warnings)
