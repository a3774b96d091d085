"""Reads a history file into columns, in pieces, by several processes where there is much of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from checker.columns import ANY, TOO_LARGE, Columns, Piece, Sink, Source, Unsuited, demand, paired, take
from checker.events import Event
from checker.history import BOM, cut_warning
from checker.jobs import in_processes

#: Parts of a file that each process reads, so that all end at about the same time.
PARTS_PER_PROCESS = 3

#: Bytes that are decoded at a time: enough to forget the cost of the call, few enough to stay in the cache.
PIECE_BYTES = 1 << 18


def read_columns(path: str | os.PathLike[str], jobs: int = 1) -> Columns:
    """Read a history file, in `jobs` processes. Raises Unsuited for all that is not a plain, well-formed history."""
    try:
        ranges = _ranges(Path(path), jobs)
        parts = in_processes(_read_part, [(Path(path), *where) for where in ranges], jobs)
    except OSError as problem:
        raise Unsuited(str(problem)) from None
    whole, *more = parts
    for part in more:
        demand(part.first == whole.first + whole.count or not part.count, "positions are not dense")
        whole.append(part)
    if not whole.count:
        raise Unsuited("empty")
    demand(whole.first == 0, "positions are not dense")
    return paired(whole.sink, whole.others, whole.count, whole.warnings, Source(Path(path), tuple(whole.pieces)))


@dataclass(slots=True)
class _Part:
    """What a part of a file holds; `first` is the position that its first event claims to have."""

    first: int = 0
    count: int = 0
    sink: Sink = field(default_factory=Sink)
    others: list[Event] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def append(self, part: _Part) -> None:
        """The part that comes next in the file."""
        self.sink.append(part.sink)
        self.count += part.count
        self.others += part.others
        self.pieces += part.pieces
        self.warnings += part.warnings


def _read_part(path: Path, start: int, end: int) -> _Part:
    """The lines that begin from `start` on and before `end`. Raises Unsuited."""
    part = _Part()
    try:
        for offset, data in _pieces(path, start, end):
            if not data.endswith(b"\n"):
                try:
                    ANY.decode(data)
                except (msgspec.DecodeError, UnicodeDecodeError):
                    part.warnings.append(cut_warning(part.first + part.count + 1, len(data)))
                    continue
            if not part.pieces and start:
                part.first = ANY.decode(data[: data.find(b"\n")]).index
            first = part.first + part.count
            part.pieces.append(Piece(offset, len(data), first))
            part.count += take(data, first, part.sink, part.others)
    except OverflowError:
        raise Unsuited(TOO_LARGE) from None
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as problem:
        raise Unsuited(str(problem)) from None
    return part


def _ranges(path: Path, jobs: int) -> list[tuple[int, int]]:
    """The file in parts of whole lines, some for each process."""
    with path.open("rb") as file:
        start = len(BOM) if file.read(len(BOM)) == BOM else 0
        size = file.seek(0, os.SEEK_END)
        cuts = [start]
        for number in range(1, PARTS_PER_PROCESS * jobs if jobs > 1 else 1):
            file.seek(start + (size - start) * number // (PARTS_PER_PROCESS * jobs))
            file.readline()
            if file.tell() > cuts[-1]:
                cuts.append(file.tell())
    ends = [*cuts[1:], size]
    return [(begin, end) for begin, end in zip(cuts, ends, strict=True) if begin < end] or [(start, size)]


def _pieces(path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines with their place in the file; a last line without an end comes by itself."""
    rest, offset = b"", start
    with path.open("rb", buffering=0) as file:
        file.seek(start)
        while data := file.read(min(PIECE_BYTES, end - file.tell())):
            data = rest + data
            cut = data.rfind(b"\n") + 1
            rest = data[cut:]
            if cut:
                yield offset, data[:cut]
                offset += cut
    if rest:
        yield offset, rest
