"""Taking back what was not synced, against a model that keeps every state of the file."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.mounted.unsynced import Unsynced

steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.binary(min_size=1, max_size=9), st.integers(0, 30)),
        st.tuples(st.just("truncate"), st.integers(0, 30)),
        st.tuples(st.just("sync")),
    ),
    max_size=12,
)


def torn(before: bytes, data: bytes, offset: int) -> list[bytes]:
    """The file after each first part of a write, nothing and all among them."""
    states = []
    for kept in range(len(data) + 1):
        state = bytearray(before)
        if kept:
            state.extend(bytes(max(0, offset + kept - len(state))))
            state[offset : offset + kept] = data[:kept]
        states.append(bytes(state))
    return states


@given(steps, st.integers(0, 2**32))
@settings(max_examples=300)
def test_what_is_left_is_the_file_at_a_moment_since_the_last_sync(script: list[Any], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = os.open(Path(folder) / "f", os.O_CREAT | os.O_RDWR)
        unsynced = Unsynced(random.Random(seed))
        possible, written = [b""], 0
        for step in script:
            now = possible[-1]
            match step:
                case ("write", data, offset):
                    assert unsynced.write(file, data, offset) == len(data)
                    possible += torn(now, data, offset)
                    written += len(data)
                case ("truncate", size):
                    unsynced.truncate(file, size)
                    possible.append((now + bytes(max(0, size - len(now))))[:size])
                case ("sync",):
                    unsynced.synced(file)
                    possible, written = [now], 0
            assert os.pread(file, 1000, 0) == possible[-1], "who reads sees it"
            assert unsynced.total == written
        lost = unsynced.lose()
        assert min(1, written) <= lost <= written
        assert os.pread(file, 1000, 0) in possible
        assert unsynced.total == 0
        os.close(file)


def test_all_of_it_can_be_lost_and_parts_of_it(tmp_path: Path) -> None:
    left = set()
    for seed in range(60):
        file = os.open(tmp_path / str(seed), os.O_CREAT | os.O_RDWR)
        unsynced = Unsynced(random.Random(seed))
        unsynced.write(file, b"synced", 0)
        unsynced.synced(file)
        unsynced.write(file, b"lost!", 6)
        lost = unsynced.lose()
        rest = os.pread(file, 100, 0)
        assert rest == b"syncedlost!"[: 11 - lost]
        left.add(rest)
        os.close(file)
    assert {b"synced", b"syncedlo"} <= left


def test_a_file_that_has_no_name_any_more(tmp_path: Path) -> None:
    file = os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR)
    unsynced = Unsynced(random.Random(1))
    unsynced.write(file, b"12345", 0)
    os.unlink(tmp_path / "f")
    os.close(file)
    unsynced.lose()
    assert unsynced.total == 0


def test_what_is_kept_is_not_lost(tmp_path: Path) -> None:
    file = os.open(tmp_path / "f", os.O_CREAT | os.O_RDWR)
    unsynced = Unsynced(random.Random(1))
    unsynced.write(file, b"12345", 0)
    unsynced.keep()
    assert unsynced.lose() == 0
    assert os.pread(file, 100, 0) == b"12345"
    os.close(file)


def test_descriptors_are_given_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    unsynced = Unsynced(random.Random(1))
    for name in "abc":
        file = os.open(tmp_path / name, os.O_CREAT | os.O_RDWR)
        unsynced.write(file, b"1", 0)
        os.close(file)
    unsynced.lose()
    assert len(os.listdir("/proc/self/fd")) == before


def test_errors_are_the_files(tmp_path: Path) -> None:
    file = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        Unsynced(random.Random(1)).write(file, b"1", 0)
    os.close(file)
