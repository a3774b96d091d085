"""A clock that a file turns."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.node.clock import RECORD_BYTES, ClockFileError, ControlledClock, FileClock, Setting

S = 1_000_000_000


class Real:
    """The machine's clock, as tests want it."""

    def __init__(self) -> None:
        self.now = 1_000 * S

    def __call__(self) -> int:
        return self.now


def pair(folder: Path) -> tuple[Real, ControlledClock, FileClock]:
    real = Real()
    controlled = ControlledClock(folder / "clock", real)
    return real, controlled, FileClock(folder / "clock", real)


def test_a_clock_that_nobody_turns_is_the_machines(tmp_path: Path) -> None:
    real, controlled, clock = pair(tmp_path)
    assert clock() == real.now
    real.now += 7 * S
    assert clock() == real.now == controlled.says()


def test_a_jump_forward_is_for_good(tmp_path: Path) -> None:
    real, controlled, clock = pair(tmp_path)
    controlled.turn(60 * S, 1.0)
    assert clock() == real.now + 60 * S
    controlled.right()
    real.now += S
    assert clock() == real.now + 60 * S


def test_a_jump_back_stands_still_until_time_has_caught_up(tmp_path: Path) -> None:
    real, controlled, clock = pair(tmp_path)
    before = clock()
    controlled.turn(-5 * S, 1.0)
    real.now += 4 * S
    assert clock() == before
    real.now += 2 * S
    assert clock() == before + S


def test_a_clock_that_is_put_right_stands_still_no_longer(tmp_path: Path) -> None:
    real, controlled, clock = pair(tmp_path)
    before = clock()
    controlled.turn(-3600 * S, 1.0)
    real.now += S
    assert clock() == before
    controlled.right()
    real.now += S
    assert clock() == before + S


def test_a_rate_counts_from_when_it_was_set(tmp_path: Path) -> None:
    real, controlled, clock = pair(tmp_path)
    start = clock()
    controlled.turn(0, 1.5)
    real.now += 2 * S
    assert clock() == start + 3 * S
    controlled.turn(0, 0.5)
    real.now += 2 * S
    assert clock() == start + 4 * S
    controlled.right()
    real.now += S
    assert clock() == start + 5 * S


steps = st.lists(st.tuples(st.integers(-100 * S, 100 * S), st.sampled_from([0.25, 1.0, 3.0]), st.integers(0, 50 * S)))


@given(steps)
def test_it_never_goes_back(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, float, int]]) -> None:
    real, controlled, clock = pair(tmp_path_factory.mktemp("clock"))
    last = clock()
    for step_ns, rate, pause_ns in steps:
        controlled.turn(step_ns, rate)
        assert clock() >= last
        last = clock()
        real.now += pause_ns
        assert clock() >= last
        last = clock()
    controlled.close()


def test_a_torn_record_leaves_the_clock_as_it_was(tmp_path: Path) -> None:
    real, _, clock = pair(tmp_path)
    assert clock() == real.now
    with (tmp_path / "clock").open("r+b") as file:
        file.write(Setting(0, 5, 1.0).pack()[:12])
    real.now += S
    assert clock() == real.now


@pytest.mark.parametrize("content", [None, b"", bytes(RECORD_BYTES - 1)])
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "clock"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ClockFileError, match="the testbed makes it"):
        FileClock(path)


def test_a_node_refuses_a_clock_file_that_is_missing(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "cluster.node", "serve", "--id", "n1", "--listen", "127.0.0.1:7001"]
    argv += ["--data", str(tmp_path / "data"), "--insecure", "--clock-file", str(tmp_path / "none")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0
    assert "clock file" in done.stderr
    assert "Traceback" not in done.stderr


def test_reading_is_cheap(tmp_path: Path) -> None:
    ControlledClock(tmp_path / "clock")
    clock = FileClock(tmp_path / "clock")
    started = time.perf_counter()
    for _ in range(20_000):
        clock()
    assert (time.perf_counter() - started) / 20_000 < 20e-6, "a few hundred nanoseconds, and far from a file's read"
