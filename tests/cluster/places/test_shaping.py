"""What shaping does to a stream, without sockets and clocks."""

from __future__ import annotations

import random
import struct
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cluster.places.base import Shaping
from cluster.places.shaping import OVERTAKE_S, PLAIN, QUEUE_BYTES_MAX, Flow, Frames, Tally

chunks = st.lists(st.binary(min_size=1, max_size=40), max_size=20)
bodies = st.lists(st.binary(max_size=30), min_size=1, max_size=20)


def flow(*, framed: bool = False, seed: int = 1) -> tuple[Flow, Tally]:
    tally = Tally()
    return Flow(random.Random(seed), tally, framed=framed), tally


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def unframed(stream: bytes) -> list[bytes]:
    found = []
    while stream:
        (size,) = struct.unpack_from(">I", stream)
        found.append(stream[4 : 4 + size])
        assert len(found[-1]) == size, "a frame is whole"
        stream = stream[4 + size :]
    return found


def cut(stream: bytes, draws: random.Random) -> list[bytes]:
    pieces = []
    while stream:
        size = draws.randint(1, 12)
        pieces.append(stream[:size])
        stream = stream[size:]
    return pieces


def test_a_delay_is_kept_to_the_moment() -> None:
    delayed, _ = flow()
    delayed.push(10.0, b"late", Shaping(delay_ms=(50, 50)))
    assert delayed.next_due() == 10.05
    assert delayed.pop(10.0499) == []
    assert delayed.pop(10.0501) == [b"late"]
    assert delayed.empty


@given(chunks, st.tuples(st.integers(1, 50), st.integers(50, 100)))
def test_jitter_never_changes_the_order(pieces: list[bytes], delay_ms: tuple[int, int]) -> None:
    jittered, _ = flow()
    for number, piece in enumerate(pieces):
        jittered.push(number / 1000, piece, Shaping(delay_ms=delay_ms))
    came: list[bytes] = []
    for tick in range(200):
        came += jittered.pop(tick / 1000)
    assert came == pieces


def test_a_narrow_line_takes_its_time() -> None:
    narrow, _ = flow()
    for _ in range(4):
        narrow.push(0.0, bytes(250), Shaping(rate=1000))
    assert sum(map(len, narrow.pop(0.5001))) == 500
    assert sum(map(len, narrow.pop(1.0001))) == 500


def test_what_waits_is_bounded_by_whoever_asks() -> None:
    narrow, _ = flow()
    narrow.push(0.0, bytes(QUEUE_BYTES_MAX), Shaping(rate=1))
    assert narrow.full
    narrow.hurry(1.0)
    narrow.pop(1.0)
    assert not narrow.full
    assert narrow.waiting_bytes == 0


def test_what_is_too_large_blocks_all_behind_it_until_the_link_is_plain() -> None:
    blocked, _ = flow()
    shaping = Shaping(largest=10)
    blocked.push(0.0, b"small", shaping)
    assert blocked.pop(0.0) == [b"small"]
    blocked.push(0.0, b"x" * 11, shaping)
    blocked.push(0.0, b"small", shaping)
    assert blocked.pop(9.0) == []
    assert blocked.stuck
    blocked.hurry(9.0)
    assert b"".join(blocked.pop(9.0)) == b"x" * 11 + b"small"


@given(bodies, st.integers(0, 2**32))
def test_frames_are_followed_wherever_they_are_cut(bodies: list[bytes], seed: int) -> None:
    draws = random.Random(seed)
    frames = Frames()
    stream = b"".join(map(frame, bodies))
    pieces = [part for piece in cut(stream, draws) for part in frames.feed(piece, whole=draws.random() < 0.5)]
    pieces += frames.feed(b"", whole=False)
    assert b"".join(piece for piece, _ in pieces) == stream
    for piece, whole in pieces:
        if whole:
            assert unframed(piece)


@given(bodies, st.floats(0.1, 1), st.floats(0, 1), st.integers(0, 2**32))
def test_whole_frames_come_twice_or_late_and_none_is_lost(
    bodies: list[bytes], duplicate: float, reorder: float, seed: int
) -> None:
    shaped, tally = flow(framed=True, seed=seed)
    shaping = Shaping(duplicate=duplicate, reorder=reorder)
    came = b""
    for piece in cut(b"".join(map(frame, bodies)), random.Random(seed)):
        shaped.push(0.0, piece, shaping)
        came += b"".join(shaped.pop(0.0))
    came += b"".join(shaped.pop(OVERTAKE_S))
    assert shaped.empty
    received = unframed(came)
    assert received[0] == bodies[0], "the first frame says who speaks"
    assert len(received) == len(bodies) + tally.duplicated
    assert set(received) == set(bodies)
    assert not Counter(bodies) - Counter(received)


def test_frames_go_on_when_shaping_begins_and_ends_in_the_middle_of_one() -> None:
    shaped, _ = flow(framed=True)
    stream = b"".join(map(frame, [b"hello", b"first", b"second", b"third"]))
    came = b""
    for number, byte in enumerate(stream):
        shaping = Shaping(duplicate=1.0) if 12 <= number < 24 else PLAIN
        if number in (12, 24):
            shaped.hurry(0.0)
        shaped.push(0.0, bytes([byte]), shaping)
        came += b"".join(shaped.pop(0.0))
    received = unframed(came)
    assert list(dict.fromkeys(received)) == [b"hello", b"first", b"second", b"third"]


def test_a_stream_without_frames_is_left_alone() -> None:
    shaped, tally = flow(framed=True)
    shaped.push(0.0, b"\xff" * 50, Shaping(duplicate=1.0))
    shaped.push(0.0, b"more", Shaping(duplicate=1.0))
    assert b"".join(shaped.pop(0.0)) == b"\xff" * 50 + b"more"
    assert tally.duplicated == 0


def test_faults_of_a_link_add_up() -> None:
    both = Shaping(delay_ms=(1, 2), rate=100, duplicate=0.5) | Shaping(delay_ms=(10, 20), rate=50, duplicate=0.5)
    assert both == Shaping(delay_ms=(11, 22), rate=50, duplicate=0.75)
    assert Shaping(stall=True) | Shaping(largest=7) == Shaping(stall=True, largest=7)


@given(chunks, st.integers(0, 2**32))
def test_one_bit_is_changed_and_counted(pieces: list[bytes], seed: int) -> None:
    shaped, tally = flow(seed=seed)
    for piece in pieces:
        shaped.push(0.0, piece, Shaping(corrupt=1.0))
    came = shaped.pop(0.0)
    changed = [
        sum((a ^ b).bit_count() for a, b in zip(piece, got, strict=True))
        for piece, got in zip(pieces, came, strict=True)
    ]
    assert changed == [1] * len(pieces)
    assert tally.corrupted == len(pieces)


def test_a_share_is_changed_and_the_rest_is_left_alone() -> None:
    shaped, tally = flow()
    for _ in range(1_000):
        shaped.push(0.0, b"piece", Shaping(corrupt=0.1))
    assert shaped.pop(0.0).count(b"piece") == 1_000 - tally.corrupted
    assert 60 < tally.corrupted < 150
