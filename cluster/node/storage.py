"""What a node keeps on disk: term, vote and log, in one file that is only ever appended to.

The file is a sequence of records: length, CRC-32, MessagePack. An entry replaces whatever was recorded from its index
on, and a hard state replaces the one before, so that nothing is ever overwritten and one fsync covers both. The space
behind the last record is zero-filled ahead of time: overwriting allocated blocks spares each fsync the file system's
own bookkeeping. A length of zero therefore ends the log.

After a crash the last records may be torn. Nothing that rests on them was sent (they were never fsynced), so they are
cut: the file is truncated behind the last whole record.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from cluster.node.commands import Message
from cluster.node.raft import Batch, HardState
from cluster.node.raftlog import Entry

#: Zero-filled ahead in one go: some ten thousand entries.
ALLOCATE_BYTES = 1 << 20

FORMAT = 1

_HEADER = struct.Struct("<II")


class Identity(Message, frozen=True):
    """The first record: whose file this is."""

    format: int
    node: str


Record = Identity | HardState | Entry

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Record)


class StorageError(Exception):
    """The data folder can't be used: it says which, why, and what would do."""


def pack(record: Record) -> bytes:
    body = _encode(record)
    return _HEADER.pack(len(body), zlib.crc32(body)) + body


def unpack(data: bytes) -> Iterator[tuple[Record, int]]:
    """The whole records at the start of `data`, each with the offset behind it."""
    offset = 0
    while offset + _HEADER.size <= len(data):
        size, crc = _HEADER.unpack_from(data, offset)
        body = data[offset + _HEADER.size : offset + _HEADER.size + size]
        if size == 0 or len(body) < size or zlib.crc32(body) != crc:
            return
        offset += _HEADER.size + size
        yield _decoder.decode(body), offset


class Storage:
    """The one user of a data folder. `hard_state` and `entries` are what was found at the start."""

    def __init__(self, folder: Path, node: str) -> None:
        """Open or create. Raises StorageError."""
        self.hard_state = HardState(0, None)
        self.entries: list[Entry] = []
        path = folder / "log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageError(f"cannot use data folder {folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise StorageError(f"data folder {folder} is in use by another node; stop that one first") from error
        data = path.read_bytes()
        self._end = self._recover(data, node, path)
        self.torn_bytes = len(data[self._end :].rstrip(b"\0"))
        os.ftruncate(self._file, self._end)
        self._allocated = self._end
        if self._end == 0:
            self._append(pack(Identity(FORMAT, node)))
        self._allocate(ALLOCATE_BYTES)
        os.fsync(self._file)
        self._sync_folder(folder)

    def write(self, batches: Iterable[Batch]) -> None:
        """Record the batches, in order, with one fsync. After an OSError nothing may be assumed: the node must stop."""
        records: list[bytes] = []
        for batch in batches:
            if batch.hard_state is not None:
                records.append(pack(batch.hard_state))
            records.extend(map(pack, batch.entries))
        self._append(b"".join(records))
        os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)

    def _recover(self, data: bytes, node: str, path: Path) -> int:
        end = 0
        try:
            for record, behind in unpack(data):
                if (end == 0) != isinstance(record, Identity):
                    raise StorageError(f"{path} is no lockd log: it does not begin with a node's name")
                self._take(record, node, path)
                end = behind
        except msgspec.DecodeError as error:
            raise StorageError(f"{path} has a record that this lockd can't read, at byte {end}: {error}") from error
        if end == 0 and not pack(Identity(FORMAT, node)).startswith(data.rstrip(b"\0")):
            raise StorageError(f"{path} is no lockd log; choose another data folder, or move that file away")
        return end

    def _take(self, record: Record, node: str, path: Path) -> None:
        match record:
            case Identity():
                if record.format != FORMAT:
                    raise StorageError(f"{path} has format {record.format}; this lockd reads format {FORMAT}")
                if record.node != node:
                    raise StorageError(f"{path} belongs to node {record.node}, not to {node}; give each its own folder")
            case HardState():
                self.hard_state = record
            case Entry():
                if not 1 <= record.index <= len(self.entries) + 1:
                    raise StorageError(f"{path} has a hole before entry {record.index}; restore or wipe this node")
                del self.entries[record.index - 1 :]
                self.entries.append(record)

    def _append(self, data: bytes) -> None:
        if self._end + len(data) > self._allocated:
            self._allocate(len(data) + ALLOCATE_BYTES)
        self._write_at(data, self._end)
        self._end += len(data)

    def _allocate(self, size: int) -> None:
        self._write_at(bytes(size), self._end)
        self._allocated = self._end + size

    def _write_at(self, data: bytes, offset: int) -> None:
        while data:
            written = os.pwrite(self._file, data, offset)
            data, offset = data[written:], offset + written

    def _sync_folder(self, folder: Path) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
