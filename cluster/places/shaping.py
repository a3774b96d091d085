"""What happens to the bytes of one direction of one connection on a link that is not plain: later, slower, twice.

Pure: time comes in (seconds of any steady clock), pieces come out when they are due. A TCP stream has no packets that
could be lost or swapped under it, so what is faithful here is time: pieces wait (`delay_ms`), the line is narrow
(`rate`), or everything behind a piece that is too large is stuck (`largest`, as where path MTU discovery fails).

Twice and out of order is another matter: TCP never does that, but protocols that reconnect and send again do it to
themselves, and systems over datagrams live with it. It is done to whole frames, where the system's streams have any;
the first frame of a connection says who is speaking and is left alone.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from dataclasses import dataclass

from cluster.places.base import Shaping

#: What may wait here for each direction of a connection, as behind a router with a queue of this size; then the sender
#: is no longer read from.
QUEUE_BYTES_MAX = 256 * 1024

#: A frame that is to be overtaken waits so long for one that overtakes it.
OVERTAKE_S = 0.05

#: A stream with a longer frame is not framed as it should be, and is from there on left as it is.
FRAME_BYTES_MAX = 64 * 1024 * 1024

PLAIN = Shaping()

_LENGTH = struct.Struct(">I")


@dataclass(slots=True)
class Tally:
    """What a link did beyond passing bytes on."""

    forwarded_bytes: int = 0
    duplicated: int = 0
    reordered: int = 0
    corrupted: int = 0


class Frames:
    """Follows the frames of a stream from its beginning, so that it can be cut between them at any time."""

    def __init__(self) -> None:
        self._buffer = bytearray()  # of the current frame, from its beginning
        self._passed = 0  # how much of it was handed out already
        self._lost = False
        self._first = True

    def feed(self, data: bytes, *, whole: bool) -> list[tuple[bytes, bool]]:
        """Pieces that together are the stream, each with whether it is a whole frame, and not the first one. `whole`:
        hold the beginning of a frame back until all of it is there."""
        if self._lost:
            return [(data, False)]
        self._buffer += data
        pieces: list[tuple[bytes, bool]] = []
        while (end := self._frame_end()) is not None:
            later = self._passed == 0 and not self._first
            pieces.append((bytes(self._buffer[self._passed : end]), later))
            del self._buffer[:end]
            self._passed, self._first = 0, False
        if (self._lost or not whole) and len(self._buffer) > self._passed:
            pieces.append((bytes(self._buffer[self._passed :]), False))
            self._passed = len(self._buffer)
        return pieces

    def _frame_end(self) -> int | None:
        if len(self._buffer) < _LENGTH.size:
            return None
        end = int(_LENGTH.unpack_from(self._buffer)[0]) + _LENGTH.size
        self._lost = end > FRAME_BYTES_MAX
        return end if not self._lost and len(self._buffer) >= end else None


class Flow:
    """One direction of one connection. `framed`: its stream consists of frames."""

    def __init__(self, draws: random.Random, tally: Tally, *, framed: bool) -> None:
        self._draws = draws
        self._tally = tally
        self._frames = Frames() if framed else None
        self._queue: deque[tuple[float, bytes]] = deque()
        self._overtaken: tuple[float, bytes] | None = None
        self._line_free_at = 0.0
        self._last_due = 0.0
        self.waiting_bytes = 0
        self.stuck = False
        """A piece came that is larger than the link lets through."""

    @property
    def empty(self) -> bool:
        return not self._queue and self._overtaken is None

    @property
    def full(self) -> bool:
        return self.waiting_bytes >= QUEUE_BYTES_MAX

    def next_due(self) -> float | None:
        """When `pop` has something, if nothing more comes."""
        if self.stuck:
            return None
        waiting = self._queue[0] if self._queue else self._overtaken
        return None if waiting is None else waiting[0]

    def push(self, now: float, data: bytes, shaping: Shaping) -> None:
        if self._frames is None:
            self._pass(now, data, shaping)
            return
        touched = shaping.duplicate > 0 or shaping.reorder > 0
        for piece, whole in self._frames.feed(data, whole=touched):
            if touched and whole:
                self._pass_frame(now, piece, shaping)
            else:
                self._pass(now, piece, shaping)

    def pop(self, now: float) -> list[bytes]:
        """The pieces that are due, in the order in which they arrive."""
        if self.stuck:
            return []
        pieces = []
        while self._queue and self._queue[0][0] <= now:
            pieces.append(self._queue.popleft()[1])
        if self._overtaken is not None and self._overtaken[0] <= now and not self._queue:
            pieces.append(self._overtaken[1])
            self._overtaken = None
        self.waiting_bytes -= sum(map(len, pieces))
        return pieces

    def hurry(self, now: float) -> None:
        """The link is plain again: what waits is due."""
        self.stuck = False
        self._queue = deque((now, piece) for _, piece in self._queue)
        if self._overtaken is not None:
            self._queue.append((now, self._overtaken[1]))
            self._overtaken = None
        if self._frames is not None:
            self._queue.extend((now, piece) for piece, _ in self._frames.feed(b"", whole=False))
        self.waiting_bytes = sum(len(piece) for _, piece in self._queue)
        self._line_free_at = self._last_due = now

    def _pass_frame(self, now: float, frame: bytes, shaping: Shaping) -> None:
        twice = self._draws.random() < shaping.duplicate
        self._tally.duplicated += twice
        if self._overtaken is None and self._draws.random() < shaping.reorder:
            self._overtaken = now + OVERTAKE_S, frame * (1 + twice)
            self.waiting_bytes += len(self._overtaken[1])
            return
        self._pass(now, frame * (1 + twice), shaping)
        if self._overtaken is not None:
            (_, overtaken), self._overtaken = self._overtaken, None
            self.waiting_bytes -= len(overtaken)
            self._tally.reordered += 1
            self._pass(now, overtaken, shaping)

    def _pass(self, now: float, piece: bytes, shaping: Shaping) -> None:
        if shaping.corrupt and self._draws.random() < shaping.corrupt:
            piece = self._corrupted(piece)
        self.stuck = self.stuck or (shaping.largest is not None and len(piece) > shaping.largest)
        low_ms, high_ms = shaping.delay_ms
        leaves = now
        if shaping.rate is not None:
            self._line_free_at = max(self._line_free_at, now) + len(piece) / shaping.rate
            leaves = self._line_free_at
        # A stream keeps its order: what is drawn earlier than the piece before comes right behind that one.
        self._last_due = max(self._last_due, leaves + self._draws.uniform(low_ms, high_ms) / 1000)
        self._queue.append((self._last_due, piece))
        self.waiting_bytes += len(piece)

    def _corrupted(self, piece: bytes) -> bytes:
        """One bit is another. What TCP carries seldom changes on its way, as its checksum finds most of that; programs
        in between, and memory, do it unseen."""
        self._tally.corrupted += 1
        changed = bytearray(piece)
        changed[self._draws.randrange(len(piece))] ^= 1 << self._draws.randrange(8)
        return bytes(changed)
