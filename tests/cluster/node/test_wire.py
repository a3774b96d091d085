from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.node.commands import Grant, Noop
from cluster.node.messages import Append
from cluster.node.progress import APPEND_ENTRIES_MAX
from cluster.node.protocol import Acquire, Forward, Ping, Session, ToNode
from cluster.node.raftlog import Entry
from cluster.node.wire import FRAME_BYTES_MAX, FrameError, FrameReader, frame

MESSAGES = [
    Ping(),
    Acquire(1, "k\u00e9y", 1000, 0),
    Forward(Session("n1", 5, 7), Acquire(1, "a", 1000, 0)),
    Append(3, 1, 2, (Entry(2, 3, Noop()), Entry(3, 3, Grant("a", 5))), 1, 9),
]


@given(st.lists(st.integers(1, 40), min_size=1))
def test_frames_come_out_whole_however_the_bytes_are_cut(cuts: list[int]) -> None:
    stream = b"".join(map(frame, MESSAGES)) * 3
    reader, bodies, at, turn = FrameReader(), [], 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        bodies += reader.feed(stream[at : at + step])
        at, turn = at + step, turn + 1
    assert [msgspec.msgpack.decode(body, type=ToNode) for body in bodies] == MESSAGES * 3


def test_a_frame_of_a_gigabyte_is_refused_at_its_length() -> None:
    with pytest.raises(FrameError, match="1073741824 bytes; the limit is"):
        list(FrameReader().feed((1 << 30).to_bytes(4, "big")))


def test_the_largest_append_fits_into_a_frame() -> None:
    entries = tuple(Entry(2**40 + i, 2**40, Grant("\U0010ffff" * 128, 86_400_000)) for i in range(APPEND_ENTRIES_MAX))
    assert len(frame(Append(2**40, 2**40, 2**40, entries, 2**40, 2**40))) < FRAME_BYTES_MAX / 3
