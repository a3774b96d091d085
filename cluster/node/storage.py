"""What a node keeps on disk: term, vote, snapshot and log, in one file that is only ever appended to.

The file is a sequence of records: length, CRC-32, MessagePack. An entry replaces whatever was recorded from its index
on, and a hard state replaces the one before, so that nothing is ever overwritten and one fsync covers both. With a
snapshot the file begins anew: it is written beside the old one, fsynced, and renamed over it. The space
behind the last record is zero-filled ahead of time: overwriting allocated blocks spares each fsync the file system's
own bookkeeping. A length of zero therefore ends the log.

After a crash the last records may be torn. Nothing that rests on them was sent (they were never fsynced), so they are
cut: zeros take their place. A broken record further up is another matter: it was on disk once, and others count on it.
So each write begins with a mark, which says that all before it was fsynced; a mark behind a broken record means that
the disk has lost something, and the node refuses to start. It does so too when the file doesn't end with zeros: the
space for a write is there, and fsynced, before the write begins, so no crash leaves such a file; somebody cut it short.
What can't be told from a crash is damage to the last write alone.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from cluster.node.files import Files
from cluster.node.message import Message
from cluster.node.messages import Batch, Compaction, HardState, Snapshot
from cluster.node.raft import Persistent
from cluster.node.raftlog import Entry

#: Zero-filled ahead in one go: some ten thousand entries.
ALLOCATE_BYTES = 1 << 20

FORMAT = 1

_HEADER = struct.Struct("<II")

#: At every moment the file has so many zeros at its end, at least.
ZEROS_BEHIND = _HEADER.size


class Identity(Message, frozen=True):
    """The first record: whose file this is."""

    format: int
    node: str


class Base(Message, frozen=True):
    """The log begins behind this index."""

    index: int
    term: int


class Mark(Message, frozen=True):
    """All before this was fsynced before this was written."""


Record = Identity | HardState | Snapshot | Base | Entry | Mark

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Record)


class StorageError(Exception):
    """The data folder can't be used: it says which, why, and what would do."""


class DamageError(StorageError):
    """The disk has not kept what was on it."""


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


def log_anew(node: str, hard_state: HardState, compaction: Compaction) -> list[Record]:
    """The records of a log that begins with a snapshot."""
    base = Base(compaction.base_index, compaction.base_term)
    # Nobody reads it before all of it is on disk, so it ends with a mark.
    return [Identity(FORMAT, node), hard_state, compaction.snapshot, base, *compaction.entries, Mark()]


MARK = pack(Mark())


@dataclass(slots=True)
class Contents:
    """What the records say, one after another."""

    node: str | None = None
    hard_state: HardState = field(default_factory=lambda: HardState(0, None))
    snapshot: Snapshot | None = None
    base: Base = field(default_factory=lambda: Base(0, 0))
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def read(cls, data: bytes, path: Path) -> tuple[Contents, int]:
        """The contents, and how many bytes of `data` are whole records. Raises StorageError."""
        contents, end = cls(), 0
        try:
            for record, behind in unpack(data):
                contents.take(record, path)
                end = behind
        except msgspec.DecodeError as error:
            raise StorageError(f"{path} has a record that this lockd can't read, at byte {end}: {error}") from error
        return contents, end

    def take(self, record: Record, path: Path) -> None:
        if (self.node is None) != isinstance(record, Identity):
            raise StorageError(f"{path} is no lockd log: it does not begin with a node's name")
        match record:
            case Identity():
                if record.format != FORMAT:
                    raise StorageError(f"{path} has format {record.format}; this lockd reads format {FORMAT}")
                self.node = record.node
            case HardState():
                self.hard_state = record
            case Snapshot():
                self.snapshot = record
            case Base():
                self.base = record
                self.entries.clear()
            case Entry():
                at = record.index - self.base.index
                if not 1 <= at <= len(self.entries) + 1:
                    raise StorageError(f"{path} has a hole before entry {record.index}; restore or wipe this node")
                del self.entries[at - 1 :]
                self.entries.append(record)

    @property
    def empty(self) -> bool:
        """Whether nothing was ever written behind the node's name."""
        return self.hard_state == HardState(0, None) and self.snapshot is None and not self.entries

    def persistent(self) -> Persistent:
        return Persistent(self.hard_state, self.snapshot, self.base.index, self.base.term, self.entries)


def _lock(folder: Path) -> int:
    """Make the folder and take it for this process. Raises StorageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StorageError(f"cannot use data folder {folder}: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StorageError(f"data folder {folder} is in use by another node; stop that one first") from error
    return lock


class Storage:
    """The one user of a data folder. `found` is what was there at the start."""

    def __init__(self, folder: Path, node: str, files: Files | None = None) -> None:
        """Open or create. Raises StorageError."""
        self._node, self._folder = node, folder
        self._files = files or Files()
        self._path = folder / "log"
        self._lock = _lock(folder)
        try:
            self._file = self._files.open(self._path)
            try:
                self._recover()
            except BaseException:
                self._files.close(self._file)
                raise
        except BaseException as error:
            os.close(self._lock)
            if isinstance(error, OSError):
                raise StorageError(f"cannot use data folder {folder}: {error.strerror or error}") from error
            raise

    def _recover(self) -> None:
        data = self._files.read(self._file)
        contents, self._end = self.recover(data, self._path)
        self._check_owner(contents, data)
        self.found = contents.persistent()
        self._hard_state = contents.hard_state
        self.torn_bytes = len(data[self._end :].rstrip(b"\0"))
        self._end = self.goes_on_at(data, self._end)
        self._allocate(max(ALLOCATE_BYTES, len(data) - self._end))
        if self._end == 0:
            self._append(pack(Identity(FORMAT, self._node)))
            self._files.sync(self._file)
        self._files.sync_folder(self._folder)

    @staticmethod
    def recover(data: bytes, path: Path) -> tuple[Contents, int]:
        """As `Contents.read`; what a crash can't have done to the file is damage. Raises StorageError, DamageError."""
        contents, end = Contents.read(data, path)
        remedy = "wipe this node, remove it from its cluster and add it again"
        if data.find(MARK, end) >= 0:
            raise DamageError(f"{path} is damaged at byte {end}, before records that were on disk already; {remedy}")
        if not contents.empty and data[-ZEROS_BEHIND:] != bytes(ZEROS_BEHIND):
            raise DamageError(f"{path} is damaged: it was cut short, to {len(data)} bytes; {remedy}")
        return contents, end

    @staticmethod
    def goes_on_at(data: bytes, end: int) -> int:
        """Where the next record goes in a file that holds `data`, of which whole records reach to `end`."""
        return end

    def write(self, batches: Iterable[Batch]) -> None:
        """Record the batches, in order, with one fsync. After an OSError nothing may be assumed: the node must stop."""
        records: list[bytes] = []
        for batch in batches:
            if batch.hard_state is not None:
                self._hard_state = batch.hard_state
                records.append(pack(batch.hard_state))
            if batch.compaction is not None:
                self._begin_anew(batch.compaction)
                records.clear()
            records.extend(map(pack, batch.entries))
        if records:
            self._append(b"".join((MARK, *records)))
            self._files.sync(self._file)

    @property
    def log_bytes(self) -> int:
        """What the log takes, without what is allocated ahead."""
        return self._end

    def close(self) -> None:
        self._files.close(self._file)
        os.close(self._lock)

    def _check_owner(self, contents: Contents, data: bytes) -> None:
        if contents.node is None and not pack(Identity(FORMAT, self._node)).startswith(data.rstrip(b"\0")):
            raise StorageError(f"{self._path} is no lockd log; choose another data folder, or move that file away")
        if contents.node not in (None, self._node):
            owner = contents.node
            raise StorageError(f"{self._path} belongs to node {owner}, not to {self._node}; give each its own folder")

    def _begin_anew(self, compaction: Compaction) -> None:
        """A crash at any point leaves either the old file or the new one, whole."""
        records = log_anew(self._node, self._hard_state, compaction)
        beside = self._folder / "log.new"
        old, self._file = self._file, self._files.open(beside, anew=True)
        self._files.close(old)
        self._end = self._allocated = 0
        self._append(b"".join(map(pack, records)))
        self._files.sync(self._file)
        self._files.rename(beside, self._path)
        self._files.sync_folder(self._folder)

    def _append(self, data: bytes) -> None:
        if self._end + len(data) + ZEROS_BEHIND > self._allocated:
            self._allocate(len(data) + ALLOCATE_BYTES)
        self._files.write(self._file, data, self._end)
        self._end += len(data)

    def _allocate(self, size: int) -> None:
        """Have zeros behind the last record, on disk."""
        self._files.write(self._file, bytes(size), self._end)
        self._files.sync(self._file)
        self._allocated = self._end + size
