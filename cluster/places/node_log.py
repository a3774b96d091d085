"""A node's log: a file in the run's folder, to which each of its processes appends what it prints."""

from __future__ import annotations

import os
from pathlib import Path

#: Enough for a traceback, and still readable in an error message.
TAIL_LINES = 15
TAIL_BYTES = 8_192


class NodeLog:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._start = 0

    def begin(self) -> None:
        """A new process is going to write from here on."""
        self._start = self._size()

    def tail(self) -> str:
        """The last lines that the node's current process wrote, for a message."""
        try:
            with self.path.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._start, size - TAIL_BYTES))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        if not lines:
            return "it logged nothing"
        return "its log ends:\n" + "\n".join(f"  {line}" for line in lines[-TAIL_LINES:])

    def read(self, offset: int, bytes_max: int | None = None) -> tuple[bytes, int]:
        """What was logged since `offset`, at most `bytes_max` of it, and the offset behind it; -1: nothing, and where
        it ends now."""
        end = self._size()
        if offset < 0 or end <= offset:
            return b"", end
        with self.path.open("rb") as log:
            log.seek(offset)
            piece = log.read(end - offset if bytes_max is None else min(end - offset, bytes_max))
            return piece, offset + len(piece)

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0
