"""What was written to files and not synced: kept as what it takes to undo it.

Writes go to the files at once, so that whoever reads sees them, and before each the bytes that it replaces are noted. A
sync forgets the notes of its file; losing what was not synced follows them backwards.
"""

from __future__ import annotations

import os
import random
import threading
from dataclasses import dataclass, field

#: A file: its device and inode. Names come and go.
Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Note:
    """Before a change: the bytes at `offset`, and how long the file was; `written` is how many bytes the change has."""

    offset: int
    before: bytes
    size: int
    written: int


@dataclass(slots=True)
class _File:
    descriptor: int  # our own
    notes: list[_Note] = field(default_factory=list)


class Unsynced:
    """Safe for threads. Raises OSError as the files do."""

    def __init__(self, draws: random.Random) -> None:
        self._draws = draws
        self._files: dict[Key, _File] = {}
        self._lock = threading.RLock()

    @property
    def total(self) -> int:
        with self._lock:
            return sum(note.written for file in self._files.values() for note in file.notes)

    def write(self, descriptor: int, data: bytes, offset: int) -> int:
        """Write, and be able to undo it. The descriptor has to be one that can be read, too."""
        with self._lock:
            self._note(descriptor, offset, len(data), len(data))
            return os.pwrite(descriptor, data, offset)

    def truncate(self, descriptor: int, size: int) -> None:
        with self._lock:
            now = os.fstat(descriptor).st_size
            self._note(descriptor, size, max(0, now - size), 0)
            os.ftruncate(descriptor, size)

    def _note(self, descriptor: int, offset: int, replaces: int, written: int) -> None:
        status = os.fstat(descriptor)
        file = self._files.get((status.st_dev, status.st_ino))
        if file is None:
            file = self._files[status.st_dev, status.st_ino] = _File(os.dup(descriptor))
        before = _read(descriptor, replaces, offset) if replaces else b""
        file.notes.append(_Note(offset, before, status.st_size, written))

    def synced(self, descriptor: int) -> None:
        """All that was written to the file is on disk."""
        status = os.fstat(descriptor)
        with self._lock:
            self._forget((status.st_dev, status.st_ino))

    def _forget(self, key: Key) -> None:
        file = self._files.pop(key, None)
        if file is not None:
            os.close(file.descriptor)

    def keep(self) -> None:
        """All that was written to any file is as good as on disk."""
        with self._lock:
            for key in tuple(self._files):
                self._forget(key)

    def lose(self) -> int:
        """Undo what was not synced, as a power failure does: of each file all of it, or all behind a moment that is
        drawn, which may be in the middle of a write. How many bytes were lost, at least one if there were any."""
        lost = 0
        with self._lock:
            for file in self._files.values():
                written = sum(note.written for note in file.notes)
                lost += _undo(file, self._draws.choice((0, self._draws.randrange(written))) if written else 0)
            self.keep()
        return lost


def _undo(file: _File, survives: int) -> int:
    """Undo all but the first `survives` bytes that were written; how many were undone."""
    ends: list[int] = []
    for note in file.notes:
        ends.append((ends[-1] if ends else 0) + note.written)
    lost = 0
    for note, end in zip(reversed(file.notes), reversed(ends), strict=True):
        begin = end - note.written
        if survives and end <= survives:
            break
        kept = max(0, survives - begin)
        size = max(note.size, note.offset + kept) if kept else note.size
        os.ftruncate(file.descriptor, size)
        if note.before[kept:]:
            os.pwrite(file.descriptor, note.before[kept:], note.offset + kept)
        lost += note.written - kept
    return lost


def _read(descriptor: int, count: int, offset: int) -> bytes:
    pieces = []
    while count > 0 and (piece := os.pread(descriptor, count, offset)):
        pieces.append(piece)
        count -= len(piece)
        offset += len(piece)
    return b"".join(pieces)
