"""Frames: four bytes of length, big end first, then that many bytes of MessagePack."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from cluster.node.protocol import ToClient, ToNode, encode

#: The largest append that the core makes stays below a third of this.
FRAME_BYTES_MAX = 1 << 20

#: A client's largest request is a few bytes more than the largest key; a connection that has not said that it is a
#: node's can make us hold no more than this.
REQUEST_BYTES_MAX = 4096

_LENGTH = struct.Struct(">I")


class FrameError(Exception):
    """The other side does not speak our protocol."""


class FrameReader:
    """Cuts a stream of bytes into frames; holds one frame of at most `limit` bytes, and no more.

    `check`, which may be set at any time, is given the length of each frame and its first `head_bytes` bytes before the
    rest is waited for, and raises FrameError if they don't belong together: who believes a length that was changed on
    its way waits for bytes that never come.
    """

    def __init__(self, limit: int = FRAME_BYTES_MAX, head_bytes: int = 0) -> None:
        self.limit = limit
        self.check: Callable[[int, bytes], None] | None = None
        self._head_bytes = head_bytes
        self._checked = False
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies of the frames that `data` completes, one after another; `limit` may be changed in between. Raises
        FrameError on a frame that is too large."""
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer, start)
            if size > self.limit:
                raise FrameError(f"a frame of {size} bytes; the limit is {self.limit}")
            end = start + _LENGTH.size + size
            if self.check is not None and not self._checked:
                head = bytes(buffer[start + _LENGTH.size : start + _LENGTH.size + self._head_bytes])
                if len(head) < self._head_bytes:
                    break
                self.check(size, head)
                self._checked = True
            if len(buffer) < end:
                break
            yield bytes(buffer[start + _LENGTH.size : end])
            start, self._checked = end, False
        del buffer[:start]


def framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def frame(message: ToNode | ToClient) -> bytes:
    """A message as it travels where no secret is asked for."""
    return framed(encode(message))
