"""Wall clocks that are turned without writing memory. The library is in the development environment."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.places import faketime, vdso
from cluster.places.base import Capability, Clock, ClockSetting, PlaceError
from cluster.places.faketime import FaketimeClock
from cluster.places.local import LocalPlace
from cluster.readiness import await_ready
from cluster.systems.lockd import Lockd
from nemesis.clocks import read_closely

HOUR_NS = 3_600_000_000_000

#: Says what its clocks are whenever it reads a line, and waits in between in every way that a node does.
TELLER = """
import asyncio, select, sys, threading, time
for line in sys.stdin:
    began = time.monotonic()
    time.sleep(0.01)
    threading.Event().wait(0.01)
    select.select([], [], [], 0.01)
    asyncio.run(asyncio.wait_for(asyncio.sleep(0.01), 5))
    print(time.time_ns(), time.monotonic() - began, flush=True)
"""

pytestmark = pytest.mark.skipif(not vdso.supported(), reason="the library of the package is for x86-64 on Linux")


@pytest.fixture
def clock(tmp_path: Path) -> FaketimeClock:
    library = faketime.library()
    assert library is not None
    return FaketimeClock(library, tmp_path / "wall")


@pytest.fixture
def teller(clock: FaketimeClock) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", TELLER]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=dict(clock.environment), text=True, **pipes) as process:  # type: ignore[call-overload]
        yield process
        process.kill()


def ahead_s(teller: subprocess.Popen[str]) -> float:
    assert teller.stdin is not None
    assert teller.stdout is not None
    before_ns = time.time_ns()
    teller.stdin.write("\n")
    teller.stdin.flush()
    says, waited_s = teller.stdout.readline().split()
    assert 0.04 <= float(waited_s) < 5, "waits are as long as they should be"
    took_ns = time.time_ns() - before_ns
    ahead_ns = int(says) - before_ns - took_ns // 2
    assert took_ns < 5e9
    return ahead_ns / 1e9


def test_a_clock_is_moved_to_and_fro_while_its_process_runs(
    clock: FaketimeClock, teller: subprocess.Popen[str]
) -> None:
    assert ahead_s(teller) == pytest.approx(0, abs=3)
    clock.turn(HOUR_NS)
    assert ahead_s(teller) == pytest.approx(3600, abs=3)
    clock.turn(-3 * HOUR_NS)
    assert ahead_s(teller) == pytest.approx(-7200, abs=3)
    clock.right()
    assert ahead_s(teller) == pytest.approx(0, abs=3)


def test_a_rate_is_refused(clock: FaketimeClock) -> None:
    with pytest.raises(PlaceError, match="by steps"):
        clock.turn(0, 1.5)


def test_a_library_that_does_not_work_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libfaketime.so.1").write_bytes(b"for another processor")
    monkeypatch.setattr(faketime, "_file", lambda: tmp_path / "libfaketime.so.1")
    assert faketime.library.__wrapped__() is None
    monkeypatch.setattr(faketime, "_file", lambda: None)
    assert faketime.library.__wrapped__() is None
    assert not faketime.installed()


async def test_a_node_whose_memory_cannot_be_written_has_its_clock_turned_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vdso, "usable", lambda: False)
    place = LocalPlace(Lockd(), ("n1", "n2"), tmp_path)
    place.equip([Capability.TURN_WALL_CLOCKS])
    await place.start()

    async def ahead(node: str) -> float:
        reading = await read_closely(place, node, Clock.WALL)
        return reading.ahead_ns / 1e9

    try:
        assert (await await_ready(place, place.nodes, 30)).complete
        before, other = await ahead("n1"), await ahead("n2")
        await place.turn_clock("n1", Clock.WALL, ClockSetting(-HOUR_NS))
        assert await ahead("n1") - before == pytest.approx(-3600, abs=1)
        assert await ahead("n2") - other == pytest.approx(0, abs=1)
        with pytest.raises(PlaceError, match="by steps"):
            await place.turn_clock("n1", Clock.WALL, ClockSetting(rate=2.0))
        await place.kill_node("n1")
        await place.start_node("n1")
        assert (await await_ready(place, place.nodes, 30)).complete
        assert await ahead("n1") - before == pytest.approx(0, abs=1), (
            "a process that is started again has the true time"
        )
        await place.turn_clock("n1", Clock.WALL, ClockSetting(HOUR_NS))
        assert await ahead("n1") - before == pytest.approx(3600, abs=1)
        await place.true_clock("n1", Clock.WALL)
        assert await ahead("n1") - before == pytest.approx(0, abs=1)
    finally:
        await place.close()


def test_where_memory_can_be_written_nothing_is_preloaded(tmp_path: Path) -> None:
    place = LocalPlace(Lockd(), ("n1",), tmp_path)
    place.equip([Capability.TURN_WALL_CLOCKS])
    assert (place._faketime(tmp_path / "wall") is None) is vdso.usable()
