"""Histories as columns: what long ones are read into, at a few dozen bytes an event instead of a thousand.

A file is decoded in pieces, into the fields that decisions need, and only numbers are kept of it; words, nodes and data
are decoded again from the file for the handful of operations that a finding cites. Pairing and validation are the same
as in `checker.operations`, done on whole columns.

Only well-formed histories get here. Whatever is odd, be it ill-formed or merely unusual (a token beyond 64 bits), makes
reading (`checker.column_reader`) raise `Unsuited`; the caller then reads the file the plain way, which knows what is
wrong and says where. Two readers that both explained mistakes would sooner or later explain them differently.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from checker.events import Event
from checker.operations import (
    NANOSECONDS_PER_MS,
    OPEN,
    OPERATIONS,
    Operation,
    is_unnumbered,
    operation_of,
    reuse_warning,
)

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]


class _Codes(dict[Any, int]):
    """What is not known has the code 0."""

    def __missing__(self, _: Any) -> int:
        return 0


class _Keys(dict[Any, int]):
    """Numbers keys as they come."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class _Leases(dict[Any, int]):
    """Milliseconds as nanoseconds."""

    def __missing__(self, lease_ms: float) -> int:
        if not 0 <= lease_ms < float("inf"):
            raise Unsuited("lease_ms")
        self[lease_ms] = lease_ns = round(lease_ms * NANOSECONDS_PER_MS)
        return lease_ns


INVOKE, OK, FAIL, INFO = range(4)
_TYPES = {"invoke": INVOKE, "ok": OK, "fail": FAIL, "info": INFO}

ACQUIRE, RELEASE, RENEW, INSPECT, WRITE, READ = range(6)
_FUNCTIONS = {name: code for code, name in enumerate(OPERATIONS)}
assert list(_FUNCTIONS) == ["acquire", "release", "renew", "inspect", "write", "read"]

OTHER_ERROR, HELD, NOT_HELD, STALE = range(4)
_ERRORS = _Codes({None: OTHER_ERROR, "held": HELD, "not-held": NOT_HELD, "stale-token": STALE})

#: Whether an event's value carries a token: not at all, as null, as a number.
ABSENT, NULL, NUMBER = range(3)

NO_LEASE = -1

NEWLINE = ord("\n")


TOO_LARGE = "a token, time or process in it is beyond 64 bits; the largest is 2^63 - 1, 9223372036854775807"


class Unsuited(Exception):
    """The history is not one that columns can hold; the plain reader decides what it is."""


#: Stand for no token at all and for null until the columns are whole; no service comes so far.
_MISSING = -(1 << 63)
_NULL = _MISSING + 1


class _Value(msgspec.Struct, gc=False):
    token: int | None = _MISSING
    lease_ms: int | float | None = None
    guarded: Any = None


_NO_VALUE = _Value()


class _ClientLine(msgspec.Struct, gc=False):
    """A client's event. Naming the few words that can occur makes decoding a third faster."""

    index: int
    time: int
    process: int
    type: Literal["invoke", "ok", "fail", "info"]
    f: Literal["acquire", "release", "renew", "inspect", "write", "read"]
    key: str
    value: _Value | None = None
    error: str | None = None
    node: str | None = None


_CLIENTS = msgspec.json.Decoder(_ClientLine)
ANY = msgspec.json.Decoder(Event)


@dataclass(frozen=True, slots=True)
class Piece:
    """Where some whole lines are in the file, and the position of the first event in them."""

    offset: int
    length: int
    first: int


@dataclass(slots=True)
class Sink:
    """The columns while they grow: of clients' events only."""

    index: array[int] = field(default_factory=lambda: array("q"))
    process: array[int] = field(default_factory=lambda: array("q"))
    type: bytearray = field(default_factory=bytearray)
    f: bytearray = field(default_factory=bytearray)
    key: array[int] = field(default_factory=lambda: array("i"))
    time: array[int] = field(default_factory=lambda: array("q"))
    token: array[int] = field(default_factory=lambda: array("q"))
    lease: array[int] = field(default_factory=lambda: array("q"))
    error: bytearray = field(default_factory=bytearray)
    unguarded: bytearray = field(default_factory=bytearray)
    keys: _Keys = field(default_factory=_Keys)
    node: array[int] = field(default_factory=lambda: array("i"))
    nodes: _Keys = field(default_factory=lambda: _Keys({None: 0}))
    leases: _Leases = field(default_factory=lambda: _Leases({None: NO_LEASE}))

    def append(self, other: Sink) -> None:
        for name in ("index", "process", "type", "f", "time", "token", "lease", "error", "unguarded"):
            column = getattr(self, name)
            column.extend(getattr(other, name))
        for codes, theirs, known, names in (
            (self.key, other.key, self.keys, other.keys),
            (self.node, other.node, self.nodes, other.nodes),
        ):
            ours = np.array([known[name] for name in names], np.int32)
            codes.extend(array("i", ours[np.frombuffer(theirs, np.int32)].tobytes() if len(theirs) else b""))


@dataclass(frozen=True)
class Columns:
    """The operations of a history, in the order of their invokes, as columns of equal length.

    `index` and `end` as in `Operation`; `f`, `outcome`, `error`, `has` (of the token) are the codes of this module;
    `lease` is in nanoseconds, or NO_LEASE; `invoked` and `completed` are times in nanoseconds (`completed` is 0 while
    open), `completion` is the position of the completion, -1 while open. `node` is 0 where it is unknown, else a number
    of its own. `key` counts into `keys`, which are sorted. `others` are the events that are no client's.
    """

    events: int
    index: Ints
    end: Ints
    process: Ints
    f: Codes
    outcome: Codes
    key: npt.NDArray[np.int32]
    has: Codes
    token: Ints
    error: Codes
    lease: Ints
    unguarded: Mask
    invoked: Ints
    completed: Ints
    completion: Ints
    node: npt.NDArray[np.int32]
    keys: tuple[str, ...]
    others: tuple[Event, ...]
    warnings: tuple[str, ...]
    source: Source

    @cached_property
    def by_key(self) -> dict[str, Ints]:
        """The rows of each key, in the order of their invokes."""
        order = stable_order(self.key)
        bounds = np.searchsorted(self.key[order], np.arange(len(self.keys) + 1))
        return {key: order[bounds[code] : bounds[code + 1]] for code, key in enumerate(self.keys)}

    def operations(self, rows: Sequence[int] | Ints) -> list[Operation]:
        """The whole operations in these rows, in the order of their invokes."""
        ordered = sorted({int(row) for row in rows})
        wanted = [int(self.index[row]) for row in ordered]
        wanted += [int(self.completion[row]) for row in ordered if self.completion[row] >= 0]
        events = self.source.events(wanted)
        found = []
        for row in ordered:
            invoke = events[int(self.index[row])]
            completed = int(self.completion[row])
            assert isinstance(invoke.process, int)
            found.append(operation_of(invoke.process, invoke, events[completed] if completed >= 0 else None))
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """Where events can be had again: from a file, or from a list that is there anyhow."""

    path: Path | None
    pieces: tuple[Piece, ...]
    listed: Sequence[Event] = ()

    def events(self, indices: Sequence[int]) -> dict[int, Event]:
        """The events at these positions."""
        if self.path is None:
            return {index: self.listed[index] for index in indices}
        firsts = np.array([piece.first for piece in self.pieces])
        where = np.searchsorted(firsts, np.array(sorted(indices), dtype=np.int64), side="right") - 1
        wanted: dict[int, list[int]] = {}
        for index, piece in zip(sorted(indices), where.tolist(), strict=True):
            wanted.setdefault(piece, []).append(index)
        found: dict[int, Event] = {}
        with self.path.open("rb") as file:
            for number, of_piece in wanted.items():
                piece = self.pieces[number]
                file.seek(piece.offset)
                data = file.read(piece.length)
                lines = data.split(b"\n", max(of_piece) - piece.first + 1)
                for index in of_piece:
                    found[index] = ANY.decode(lines[index - piece.first])
        return found


def take(data: bytes, first: int, sink: Sink, others: list[Event]) -> int:
    """Append the events of some lines; returns how many lines there are."""
    count = int(np.count_nonzero(np.frombuffer(data, np.uint8) == NEWLINE)) + (not data.endswith(b"\n"))
    try:
        lines = _CLIENTS.decode_lines(data)
        mixed = False
    except msgspec.ValidationError:
        lines = [_client_line(line, others) for line in data.removesuffix(b"\n").split(b"\n")]
        mixed = True
    if len(lines) != count:
        raise Unsuited("an empty line")
    due = np.arange(first, first + count)
    if mixed:
        due = due[[line is not None for line in lines]]
        lines = [line for line in lines if line is not None]
        if not lines:
            return count
    index = _append(lines, sink)
    demand(np.array_equal(np.frombuffer(index, np.int64), due), "positions are not dense")
    return count


def _client_line(line: bytes, others: list[Event]) -> Any:
    """The line, or None when it is no client's. Another reader's line would be refused here, by the same rules."""
    event = ANY.decode(line)
    if isinstance(event.process, int):
        return _CLIENTS.decode(line)
    _take_other(event, others)
    return None


def _take_other(event: Event, others: list[Event]) -> None:
    demand(not is_unnumbered(event), "a client that is text")
    others.append(event)


def _append(lines: list[_ClientLine], sink: Sink) -> array[int]:
    """Returns the positions of the events."""
    columns = zip(*map(msgspec.structs.astuple, lines), strict=True)
    index, time, process, kinds, functions, keys, values, errors, nodes = columns
    positions = array("q", index)
    sink.index.extend(positions)
    sink.time.extend(array("q", time))
    sink.process.extend(array("q", process))
    sink.type.extend(bytes(map(_TYPES.__getitem__, kinds)))
    sink.f.extend(bytes(map(_FUNCTIONS.__getitem__, functions)))
    sink.error.extend(bytes(map(_ERRORS.__getitem__, errors)))
    sink.key.extend(array("i", list(map(sink.keys.__getitem__, keys))))
    sink.node.extend(array("i", list(map(sink.nodes.__getitem__, nodes))))
    said = [_NO_VALUE if value is None else value for value in values]
    guarded = [value.guarded for value in said]
    sink.token.extend(array("q", [_NULL if value.token is None else value.token for value in said]))
    sink.lease.extend(array("q", list(map(sink.leases.__getitem__, [value.lease_ms for value in said]))))
    sink.unguarded.extend(bytes([word is False for word in guarded]) if False in guarded else bytes(len(lines)))
    return positions


def paired(sink: Sink, others: list[Event], count: int, warnings: list[str], source: Source) -> Columns:
    """What `operations.pair` does, on columns."""
    demand(len(sink.index) > 0, "no operations")
    index, time, process = (_ints(column) for column in (sink.index, sink.time, sink.process))
    kind, f, error, unguarded = (
        np.frombuffer(column, np.int8) for column in (sink.type, sink.f, sink.error, sink.unguarded)
    )
    key, node = (np.frombuffer(column, np.int32) if len(column) else _NO_CODES for column in (sink.key, sink.node))
    token, lease = _ints(sink.token), _ints(sink.lease)
    has = np.where(token == _MISSING, ABSENT, np.where(token == _NULL, NULL, NUMBER)).astype(np.int8)
    _check_order(index, time, others)
    order = stable_order(process)
    grouped = process[order]
    same = np.concatenate((grouped[1:] == grouped[:-1], [False]))  # as the next one
    after = np.concatenate((order[1:], [0]))
    invokes = kind[order] == INVOKE
    # Within a process every invoke is followed by its completion or by nothing, and every completion follows one.
    follows = np.concatenate(([False], same[:-1] & invokes[:-1]))
    completed = invokes & same
    demand(not np.any(completed & (kind[after] == INVOKE)), "an invoke while another is open")
    demand(bool(np.all(invokes | follows)), "a completion without its invoke")
    first, second = order[completed], after[completed]
    demand(np.array_equal(f[first], f[second]) and np.array_equal(key[first], key[second]), "another's completion")
    _check_invokes(kind, f, has)
    _check_oks(kind, f, has)
    reused = np.unique(grouped[(kind[order] == INFO) & same])
    if len(reused):
        warnings.append(reuse_warning(reused.tolist()))

    rows = np.flatnonzero(kind == INVOKE)
    completion_of = np.full(len(index), -1, np.int64)
    completion_of[first] = second
    place = completion_of[rows]
    is_open = place < 0
    place[is_open] = 0  # any; masked below
    outcome = np.where(is_open, INFO, kind[place]).astype(np.int8) if len(rows) else np.empty(0, np.int8)
    known = outcome != INFO
    named = np.isin(f[rows], (RELEASE, RENEW, WRITE))
    shows = ~named & (outcome == OK)
    names = sorted(sink.keys)
    recoded = np.empty(len(names), np.int32)
    recoded[[sink.keys[name] for name in names]] = np.arange(len(names), dtype=np.int32)
    return Columns(
        events=count,
        index=index[rows],
        end=np.where(known, index[place], OPEN) if len(rows) else np.empty(0, np.int64),
        process=process[rows],
        f=f[rows],
        outcome=outcome,
        key=recoded[key[rows]] if len(rows) else _NO_CODES,
        has=np.where(named, has[rows], np.where(shows, has[place], ABSENT)).astype(np.int8),
        token=np.where(named, token[rows], np.where(shows, token[place], 0)),
        error=np.where(is_open, OTHER_ERROR, error[place]).astype(np.int8),
        lease=lease[rows],
        unguarded=unguarded[rows] != 0,
        invoked=time[rows],
        completed=np.where(is_open, 0, time[place]),
        completion=np.where(is_open, -1, index[place]),
        node=np.where(node[rows] != 0, node[rows], np.where(is_open, 0, node[place])),
        keys=tuple(names),
        others=tuple(others),
        warnings=tuple(warnings),
        source=source,
    )


def stable_order(numbers: npt.NDArray[np.signedinteger[Any]]) -> Ints:
    """Where each comes in their order, equal ones as they were. Small numbers are sorted by their digits."""
    if len(numbers) and numbers.min() >= 0 and numbers.max() < 1 << 16:
        return np.argsort(numbers.astype(np.uint16), kind="stable")
    return np.argsort(numbers, kind="stable")


_NO_CODES: npt.NDArray[np.int32] = np.empty(0, np.int32)


def _ints(column: array[int]) -> Ints:
    return np.frombuffer(column, np.int64) if len(column) else np.empty(0, np.int64)


def demand(holds: bool, problem: str) -> None:
    if not holds:
        raise Unsuited(problem)


def _check_order(index: Ints, time: Ints, others: list[Event]) -> None:
    """Time may not go back, over all events."""
    if others:
        index = np.concatenate((index, np.array([event.index for event in others], np.int64)))
        time = np.concatenate((time, np.array([event.time for event in others], np.int64)))
        order = np.argsort(index)
        demand(np.array_equal(index[order], np.arange(len(index))), "positions are not dense")
        time = time[order]
    demand(bool(np.all(time[1:] >= time[:-1])) and (not len(time) or time[0] >= 0), "time goes back")


def _check_invokes(kind: Codes, f: Codes, has: Codes) -> None:
    needs = (kind == INVOKE) & ((f == RELEASE) | (f == RENEW) | (f == WRITE))
    demand(bool(np.all(has[needs] == NUMBER)), "a token is missing")


def _check_oks(kind: Codes, f: Codes, has: Codes) -> None:
    oks = kind == OK
    demand(bool(np.all(has[oks & (f == ACQUIRE)] == NUMBER)), "a grant without a token")
    demand(bool(np.all(has[oks & (f == INSPECT)] != ABSENT)), "an inspect without a token")


def columns_of(events: Sequence[Event]) -> Columns:
    """The columns of events that are there already. Raises Unsuited as `read_columns` does."""
    sink = Sink()
    others: list[Event] = []
    lines = []
    for due, event in enumerate(events):
        if event.index != due:
            raise Unsuited("positions are not dense")
        if isinstance(event.process, str):
            _take_other(event, others)
            continue
        try:
            lines.append(msgspec.convert(event, _ClientLine, from_attributes=True))
        except msgspec.ValidationError as problem:
            raise Unsuited(str(problem)) from None
    try:
        if lines:
            _append(lines, sink)
    except OverflowError:
        raise Unsuited(TOO_LARGE) from None
    if not len(events):
        raise Unsuited("empty")
    return paired(sink, others, len(events), [], Source(None, (), events))
