"""A snapshot that arrives in chunks, and what the lock service puts into one."""

from __future__ import annotations

import msgspec

from cluster.node.locks import Hold, LockTable
from cluster.node.message import Message
from cluster.node.messages import Snapshot, SnapshotChunk

#: The largest snapshot that is accepted from a leader: some millions of locks.
SNAPSHOT_BYTES_MAX = 1 << 28


class LockState(Message, frozen=True):
    """Everything that the lock state machine knows. The token counter is part of it: it is never derived."""

    last_token: int
    held: tuple[tuple[str, int, int], ...]
    counters: dict[str, int]


_encode = msgspec.msgpack.Encoder().encode
_state_decoder = msgspec.msgpack.Decoder(LockState)
_snapshot_decoder = msgspec.msgpack.Decoder(Snapshot)


def pack_state(table: LockTable, counters: dict[str, int]) -> bytes:
    """`counters` are those that follow from the log alone, so that a node that restarts counts on."""
    held = tuple((key, hold.token, hold.lease_ms) for key, hold in table.held.items())
    return _encode(LockState(table.last_token, held, counters))


def unpack_state(data: bytes, table_type: type[LockTable]) -> tuple[LockTable, dict[str, int]]:
    state = _state_decoder.decode(data)
    held = {key: Hold(token, lease_ms) for key, token, lease_ms in state.held}
    return table_type(held, state.last_token), state.counters


class Assembly:
    """The chunks of one snapshot from one leader, so far."""

    def __init__(self, leader: str, term: int, index: int, size: int) -> None:
        self._source = (leader, term, index, size)
        self._size = size
        self._data = bytearray()

    def continues(self, leader: str, chunk: SnapshotChunk) -> bool:
        return self._source == (leader, chunk.term, chunk.index, chunk.size)

    def take(self, chunk: SnapshotChunk) -> int:
        """Add what follows; gives how much is there. A chunk from elsewhere in the data is left to be sent again."""
        if chunk.offset == len(self._data) and len(self._data) + len(chunk.data) <= min(self._size, SNAPSHOT_BYTES_MAX):
            self._data += chunk.data
        return len(self._data)

    @property
    def complete(self) -> bool:
        return len(self._data) == self._size

    def snapshot(self) -> Snapshot:
        """The whole. Raises msgspec.DecodeError when it is none."""
        return _snapshot_decoder.decode(self._data)
