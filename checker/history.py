"""Histories: what the clients and the nemesis did, in one total order.

A history is a JSON Lines file, one event a line. Positions in it are indices, dense from 0; `time` is in
nanoseconds of the recording harness' monotonic clock since the start of the run.

Who is killed while writing leaves a last line without an end: it is dropped, with a warning. Everything else that is
not as it should be is an error that names the line, since a checker that guesses what a line meant can be made to say
anything. Fields that are not known are let be.
"""

from __future__ import annotations

import codecs
import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from checker.events import NEMESIS, Event, EventType, HistoryError, HistoryWriter, Recorder
from checker.operations import OPEN, Operation, pair

__all__ = [
    "NEMESIS",
    "OPEN",
    "Event",
    "EventType",
    "History",
    "HistoryError",
    "HistoryWriter",
    "Operation",
    "Recorder",
    "read",
]


@dataclass(frozen=True, slots=True)
class History:
    """A well-formed history: `History.of(events)`.

    `operations` are the clients', in the order of their invokes; `by_key` has the same for each key, in its order.
    """

    events: Sequence[Event]
    operations: Sequence[Operation]
    by_key: Mapping[str, Sequence[Operation]]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, events: Iterable[Event], warnings: Sequence[str] = ()) -> History:
        """Pair and validate. Raises HistoryError."""
        listed = list(events)
        if not listed:
            raise HistoryError("the history is empty: there is nothing to check")
        operations, odd = pair(listed)
        by_key: dict[str, list[Operation]] = {}
        for operation in operations:
            of_key = by_key.get(operation.key)
            if of_key is None:
                of_key = by_key[operation.key] = []
            of_key.append(operation)
        return cls(listed, operations, dict(sorted(by_key.items())), (*warnings, *odd))


def read(path: str | os.PathLike[str]) -> History:
    """Read and validate a history file. Raises HistoryError, with the file and the line that is to blame."""
    with paused_collector():
        events, warnings = read_events(path)
        try:
            return History.of(events, warnings)
        except HistoryError as error:
            raise HistoryError(error.problem, line=error.line, path=str(path)) from None


def read_events(path: str | os.PathLike[str]) -> tuple[list[Event], list[str]]:
    """The events of a file, each by itself well-formed, and what was odd. Raises HistoryError."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise HistoryError(f"cannot be read: {error.strerror or error}", path=str(path)) from None
    try:
        return _decode(data)
    except HistoryError as error:
        raise HistoryError(error.problem, line=error.line, path=str(path)) from None


@contextmanager
def paused_collector() -> Iterator[None]:
    """No cyclic garbage collection meanwhile: what is read stays, and walking it again and again triples the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


#: What some editors begin a file with.
BOM = codecs.BOM_UTF8

_DECODER = msgspec.json.Decoder(Event)


def _decode(data: bytes) -> tuple[list[Event], list[str]]:
    data = data.removeprefix(BOM)
    whole, _, tail = data.rpartition(b"\n")
    warnings: list[str] = []
    count = whole.count(b"\n") + 1 if whole or data[:1] == b"\n" else 0
    try:
        events: list[Event] = _DECODER.decode_lines(whole)
    except (msgspec.DecodeError, UnicodeDecodeError):
        events = []
    if len(events) != count:
        events = [_decode_line(line, number) for number, line in enumerate(whole.split(b"\n"), 1)]
    if tail:
        try:
            events.append(_DECODER.decode(tail))
        except (msgspec.DecodeError, UnicodeDecodeError):
            warnings.append(cut_warning(count + 1, len(tail)))
    return events, warnings


def cut_warning(line: int, length: int) -> str:
    return (
        f"the last line ({line}) is cut after {length} bytes and was dropped: the recorder was killed while writing it"
    )


def _decode_line(line: bytes, number: int) -> Event:
    if not line.strip():
        raise HistoryError("the line is empty where an event is due", line=number)
    try:
        return _DECODER.decode(line)
    except UnicodeDecodeError as error:
        raise HistoryError(f"not UTF-8: {error.reason} at byte {error.start + 1}", line=number) from None
    except msgspec.ValidationError as error:
        raise HistoryError(f"not an event: {error}; found {_excerpt(line)}", line=number) from None
    except msgspec.DecodeError as error:
        raise HistoryError(f"not JSON: {error}; found {_excerpt(line)}", line=number) from None


def _excerpt(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return repr(text if len(text) <= 80 else text[:77] + "...")
