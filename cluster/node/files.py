"""The calls of the operating system that storage rests on, in one place: tests put a disk there that fails."""

from __future__ import annotations

import os
from pathlib import Path


class Files:
    """File descriptors and paths, as the operating system has them. Every method raises OSError."""

    def open(self, path: Path, *, anew: bool = False) -> int:
        """Open for reading and writing, creating it if need be; with `anew` emptied."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if anew else 0), 0o644)

    def read(self, file: int) -> bytes:
        return os.pread(file, os.fstat(file).st_size, 0)

    def write(self, file: int, data: bytes, offset: int) -> None:
        """Write all of it."""
        while data:
            written = os.pwrite(file, data, offset)
            data, offset = data[written:], offset + written

    def sync(self, file: int) -> None:
        """Return when the file's data, and what is needed to find it again, is on disk."""
        os.fdatasync(file)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)

    def sync_folder(self, folder: Path) -> None:
        """Return when the names in the folder are on disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, file: int) -> None:
        os.close(file)
