"""Histories of others, read as they are: records, whatever their operations are called.

jsonl       ours: one JSON object a line
edn         Jepsen's history.edn: one map a line, or one vector of maps
jepsen-log  lines of Jepsen's log, as Porcupine's test data has them:
            INFO  jepsen.util - 3 :invoke :acquire nil
kv-log      Porcupine's key-value logs: {:process 0, :type :invoke, :f :get, :key "7", :value nil}
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from checker.events import Event, HistoryError
from checker.formats import edn
from checker.history import read_events
from checker.operations import check_named
from checker.search.calls import OPEN, Call

TYPES = ("invoke", "ok", "fail", "info")

#: A line of Jepsen's log that is an operation; all other lines are other people's.
_LOG_LINE = re.compile(
    r"^\S*(?:.*?\s)?jepsen\.util - (?P<process>\S+)\s+:(?P<type>invoke|ok|fail|info)\s+:(?P<f>\S+)\s+(?P<value>.*)$"
)


class Format(StrEnum):
    AUTO = "auto"
    JSONL = "jsonl"
    EDN = "edn"
    JEPSEN_LOG = "jepsen-log"
    KV_LOG = "kv-log"


@dataclass(frozen=True, slots=True)
class Record:
    """One event as it was found. `process` is None where the record is no client's."""

    line: int
    process: int | str | None
    type: str
    f: str
    value: Any = None
    key: Any = None
    time: int | None = None
    error: str | None = None
    node: str | None = None


def detect(path: str | os.PathLike[str]) -> Format:
    """By the first line that says anything. Raises HistoryError for a file that can't be read, or is none of these."""
    for line in _text(path).splitlines():
        start = line.strip()
        if not start or start.startswith(";"):
            continue
        if re.match(r'\{\s*"', start):
            return Format.JSONL
        if start.startswith("{:process") and ":key" in start:
            return Format.KV_LOG
        if start[0] in "{[(#":
            return Format.EDN
        if _LOG_LINE.match(line):
            return Format.JEPSEN_LOG
        if not re.match(r"(INFO|WARN|DEBUG|ERROR|\d{4}-\d\d-\d\d)\b", start):
            break
    known = ", ".join(format.value for format in Format if format is not Format.AUTO)
    raise HistoryError(f"the format is not known; name it with --format ({known})", line=1, path=str(path))


def read_records(path: str | os.PathLike[str], format: Format = Format.AUTO) -> list[Record]:
    """All records of a file, in its order. Raises HistoryError, with the file and the line that is to blame."""
    if format is Format.AUTO:
        format = detect(path)
    if format is Format.JSONL:
        return _of_events(path)
    text = _text(path)
    try:
        records = list(_log(text) if format is Format.JEPSEN_LOG else _maps(text))
    except HistoryError as problem:
        raise HistoryError(problem.problem, line=problem.line, path=str(path)) from None
    if not records:
        raise HistoryError("no operation was found in it", path=str(path))
    return records


def _text(path: str | os.PathLike[str]) -> str:
    try:
        data = Path(path).read_bytes()
    except OSError as problem:
        raise HistoryError(f"cannot be read: {problem.strerror or problem}", path=str(path)) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        raise HistoryError(f"not UTF-8: {problem.reason}", line=line, path=str(path)) from None


def _of_events(path: str | os.PathLike[str]) -> list[Record]:
    records = []
    for event in read_events(path)[0]:
        try:
            check_named(event)
        except HistoryError as problem:
            raise HistoryError(problem.problem, line=problem.line, path=str(path)) from None
        records.append(_of_event(event))
    return records


def _of_event(event: Event) -> Record:
    process = event.process if isinstance(event.process, int) else None
    return Record(
        event.index + 1, process, event.type, event.f, event.value, event.key, event.time, event.error, event.node
    )


def _log(text: str) -> Iterator[Record]:
    for number, line in enumerate(text.splitlines(), 1):
        match = _LOG_LINE.match(line)
        if match is None:
            continue
        try:
            values = [value for _, value in edn.read_all(match["value"])]
        except HistoryError as problem:
            raise HistoryError(problem.problem, line=number) from None
        value, *more = values or [None]
        error = " ".join(map(str, more)) or None
        type = match["type"]
        if type in ("info", "fail") and isinstance(value, edn.Keyword):
            value, error = None, str(value)
        yield Record(number, _process(edn_value(match["process"])), type, match["f"], value, error=error)


def edn_value(text: str) -> Any:
    return next((value for _, value in edn.read_all(text)), None)


def _maps(text: str) -> Iterator[Record]:
    for line, value in edn.read_all(text, unwrap=True):
        yield _record(value, line)


def _record(value: Any, line: int) -> Record:
    if not isinstance(value, dict):
        raise HistoryError(f"not an operation, which is a map: {edn.write(value)[:60]}", line=line)
    type, f = value.get("type"), value.get("f")
    if type not in TYPES:
        raise HistoryError(
            f"the operation has :type {edn.write(type)}; :invoke, :ok, :fail or :info is needed", line=line
        )
    if not isinstance(f, str):
        raise HistoryError(f"the operation has :f {edn.write(f)}; a name is needed", line=line)
    time, error = value.get("time"), value.get("error")
    if time is not None and not isinstance(time, int):
        raise HistoryError(f"the operation has :time {edn.write(time)}; nanoseconds are needed", line=line)
    words = None if error is None else error if isinstance(error, str) else edn.write(error)
    return Record(
        line=line,
        process=_process(value.get("process")),
        type=str(type),
        f=f,
        value=value.get("value"),
        key=value.get("key"),
        time=time,
        error=words,
        node=str(node) if isinstance(node := value.get("node"), str) else None,
    )


def _process(value: Any) -> int | None:
    """Jepsen's nemesis has a name for its process, clients have numbers."""
    return value if type(value) is int else None


def calls(records: Iterable[Record], *, independent: bool = False) -> list[Call]:
    """The clients' operations for the search. Raises HistoryError for what can't be paired.

    `independent`: values are pairs [key, value], as Jepsen's independent generators make them.
    """
    found: list[Call] = []
    waiting: dict[int | str, tuple[int, Record]] = {}
    for position, record in enumerate(records):
        process = record.process
        if process is None:
            continue
        if record.type == "invoke":
            if process in waiting:
                other = waiting[process][1]
                raise HistoryError(
                    f"process {process} invokes {record.f!r} while its {other.f!r} of line {other.line} is open",
                    line=record.line,
                )
            waiting[process] = (position, record)
            continue
        if process not in waiting:
            raise HistoryError(f"process {process} completes {record.f!r} without having invoked it", line=record.line)
        start, invoke = waiting.pop(process)
        if invoke.f != record.f:
            raise HistoryError(
                f"{record.f!r} completes process {process}'s {invoke.f!r} of line {invoke.line}", line=record.line
            )
        found.append(_call(start, invoke, position, record, independent))
    found += [_call(start, invoke, OPEN, None, independent) for start, invoke in waiting.values()]
    return sorted(found, key=_start)


def _start(call: Call) -> int:
    return call.start


def _call(start: int, invoke: Record, end: int, completion: Record | None, independent: bool) -> Call:
    outcome = "info" if completion is None else completion.type
    key, value = invoke.key, invoke.value
    result = completion.value if completion is not None and outcome == "ok" else None
    if independent:
        key, value = _split(value, invoke.line)
        if outcome == "ok" and completion is not None:
            result = _split(result, completion.line)[1]
    assert invoke.process is not None
    return Call(
        process=invoke.process,
        f=invoke.f,
        value=value,
        result=result,
        outcome=outcome,
        start=start,
        end=OPEN if outcome == "info" else end,
        key=key if key is None or isinstance(key, str | int) else edn.write(key),
        error=None if completion is None else completion.error,
        line=invoke.line,
    )


def _split(value: Any, line: int) -> tuple[Any, Any]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise HistoryError(f"an independent operation needs a value [key value], found {edn.write(value)}", line=line)
    return value[0], value[1]
