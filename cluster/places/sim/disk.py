"""A node's disk: the bytes of its log, of which only those that were synced are sure to outlive a crash.

The log's own format is used in both directions, so recovery meets what it meets on a real disk: a write that was not
synced may be there, be missing, or be torn anywhere, with zeros or noise behind it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cluster.node.messages import Batch, HardState
from cluster.node.raft import Persistent
from cluster.node.storage import FORMAT, MARK, ZEROS_BEHIND, Identity, Storage, log_anew, pack

LOG = "log"

#: Bytes of noise or zeros behind a torn write, at most.
TAIL_MAX = 64


class _Write(NamedTuple):
    """Bytes on their way to the disk; `anew` takes the place of the whole file by a rename."""

    data: bytes
    anew: bool


class SimDisk:
    """`draws` decides what a crash leaves."""

    def __init__(self, node: str, storage_type: type[Storage], draws: random.Random) -> None:
        self._node, self._storage_type, self._draws = node, storage_type, draws
        self._image = bytearray()
        self._unsynced: list[_Write] = []
        self._hard_state = HardState(0, None)
        self._cut_short = False
        self.torn_bytes = 0

    def recover(self) -> Persistent:
        """What a node that starts finds. Raises StorageError."""
        data = self.read()
        contents, end = self._storage_type.recover(data, Path(self._node) / LOG)
        self.torn_bytes = len(data[end:].rstrip(b"\0"))
        del self._image[self._storage_type.goes_on_at(data, end) :]
        if not self._image:
            self._image += pack(Identity(FORMAT, self._node))
        self._hard_state = contents.hard_state
        return contents.persistent()

    def write(self, batches: Sequence[Batch]) -> None:
        """Hand over to the disk, not synced yet."""
        records: list[bytes] = []
        for batch in batches:
            if batch.hard_state is not None:
                self._hard_state = batch.hard_state
                records.append(pack(batch.hard_state))
            if batch.compaction is not None:
                anew = log_anew(self._node, self._hard_state, batch.compaction)
                self._unsynced.append(_Write(b"".join(map(pack, anew)), True))
                records.clear()
            records.extend(map(pack, batch.entries))
        if records:
            self._unsynced.append(_Write(b"".join((MARK, *records)), False))

    def sync(self) -> None:
        for write in self._unsynced:
            self._put(write)
        self._unsynced.clear()

    @property
    def unsynced_bytes(self) -> int:
        return sum(len(write.data) for write in self._unsynced)

    def read(self) -> bytes:
        """The log as a file: of the zeros behind it, the fewest that there are."""
        return bytes(self._image) + bytes(0 if self._cut_short or not self._image else ZEROS_BEHIND)

    def replace(self, data: bytes) -> None:
        """Have other bytes in the log's place, whatever these may be."""
        self._cut_short = data != b"" and not data.endswith(bytes(ZEROS_BEHIND))
        self._image = bytearray(data if self._cut_short else data[:-ZEROS_BEHIND])
        self._unsynced.clear()

    def crash(self, *, keep_nothing: bool = False) -> None:
        """What was not synced is there, torn, or missing, and after a torn or missing write comes no other."""
        for write in self._unsynced:
            fate = 1.0 if keep_nothing else self._draws.random()
            if fate < 0.4:
                self._put(write)
                continue
            if fate < 0.8 and not write.anew:
                self._image += write.data[: self._draws.randrange(len(write.data))]
                tail = self._draws.randrange(TAIL_MAX)
                self._image += self._draws.randbytes(tail) if self._draws.random() < 0.3 else bytes(tail)
            break
        self._unsynced.clear()

    def _put(self, write: _Write) -> None:
        if write.anew:
            self._image.clear()
        self._image += write.data
