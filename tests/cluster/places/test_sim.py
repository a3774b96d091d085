"""The simulated place: the same seed gives the same bytes, faults are faults, and nobody waits for real."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cluster.node.commands import Noop
from cluster.node.messages import Batch, HardState
from cluster.node.raftlog import Entry
from cluster.node.storage import Storage
from cluster.places.base import ClockSetting, Link, ProcessState, Shaping
from cluster.places.sim import SimPlace
from cluster.places.sim.clocks import SimClock
from cluster.places.sim.disk import SimDisk
from cluster.places.sim.draws import Quick
from cluster.places.sim.loop import Stuck, VirtualLoop
from cluster.readiness import await_ready
from cluster.systems.lockd import Lockd

ROOT = Path(__file__).parents[3]
NODES = ("n1", "n2", "n3")

ONE_RUN = """
import hashlib, sys
from pathlib import Path
from fencepost import runner
from fencepost.simulation import simulate
from fencepost.variants import variant
import msgspec
run = simulate(variant(runner.load(Path(sys.argv[1])), int(sys.argv[2])))
assert run.failure is None, run.failure
print(len(run.events), hashlib.sha256(msgspec.json.encode(run.events)).hexdigest())
"""


@pytest.mark.parametrize(("scenario", "seed"), [("older-term-commit", 0), ("guarded-resource-pauses", 3)])
def test_a_seed_gives_the_same_bytes_in_every_process(scenario: str, seed: int) -> None:
    def once(hash_seed: str) -> str:
        path = ROOT / "workloads" / "scenarios" / f"{scenario}.yaml"
        command = [sys.executable, "-c", ONE_RUN, str(path), str(seed)]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    first = once("1")
    assert int(first.split()[0]) > 200
    assert once("2") == first


async def opened(tmp_path: Path, seed: int = 1) -> SimPlace:
    place = SimPlace(Lockd(), NODES, tmp_path, seed=seed)
    await place.start()
    assert (await await_ready(place, NODES, 30.0)).complete
    return place


def simulated(body: object) -> None:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(body)  # type: ignore[arg-type]


def test_processes_links_and_clients_obey(tmp_path: Path) -> None:
    async def body() -> None:
        place = await opened(tmp_path)
        client = await place.system.connect(place.client_address("n1"), 2.0)
        granted = await client.acquire("a", 60_000, 0)
        assert granted.type == "ok"
        await place.set_cuts({Link("n1", "n2")})
        assert not await place.probe_link(Link("n1", "n2"), 0.5)
        assert await place.probe_link(Link("n2", "n1"), 0.5)
        await place.set_cuts(())
        assert await place.probe_link(Link("n1", "n2"), 0.5)
        await place.pause_node("n2")
        assert await place.state("n2") is ProcessState.PAUSED
        assert not await place.system.probe(place.address("n2"), 0.5)
        await place.resume_node("n2")
        assert await place.system.probe(place.address("n2"), 0.5)
        await place.kill_node("n1")
        assert await place.state("n1") is ProcessState.DEAD
        assert (await client.release("a", 1)).type in ("fail", "info")
        await place.start_node("n1")
        assert (await await_ready(place, NODES, 30.0)).complete
        again = await place.system.connect(place.client_address("n1"), 2.0)
        assert granted.value is not None
        assert (await again.inspect("a")).value == granted.value
        await place.cut_clients({"n1"})
        assert (await again.inspect("a")).type == "info"
        await place.cut_clients(())
        await place.close()
        assert "event=started" in (tmp_path / "nodes" / "n1" / "node.log").read_text()

    simulated(body())


def test_all_nodes_apply_the_same_and_say_so(tmp_path: Path) -> None:
    async def body() -> None:
        place = await opened(tmp_path)
        client = await place.system.connect(place.client_address("n2"), 2.0)
        for _ in range(5):
            token = ((await client.acquire("a", 1_000, 0)).value or {})["token"]
            assert (await client.release("a", token)).type == "ok"
        await asyncio.sleep(1)
        logs = [[one for _, _, one in applied] for applied in place.applied().values()]
        assert len(logs[0]) >= 11
        assert logs[0] == logs[1] == logs[2]
        assert place.failures() == []
        await place.close()

    simulated(body())


@pytest.mark.parametrize("shaping", [Shaping(duplicate=0.5), Shaping(reorder=0.5), Shaping(delay_ms=(5, 30))])
def test_shaped_links_still_serve(tmp_path: Path, shaping: Shaping) -> None:
    async def body() -> None:
        place = await opened(tmp_path)
        link = Link("n1", "n2")
        await place.shape_links(dict.fromkeys((link, link.reverse, Link("n3", "n1"), Link("n1", "n3")), shaping))
        client = await place.system.connect(place.client_address("n1"), 5.0)
        for _ in range(10):
            token = ((await client.acquire("a", 1_000, 0)).value or {})["token"]
            assert (await client.release("a", token)).type == "ok"
        counts = [await place.link_counts(one) for one in (link, link.reverse)]
        assert sum(count.forwarded_bytes for count in counts) > 20
        assert any(count.duplicated for count in counts) == bool(shaping.duplicate)
        assert any(count.reordered for count in counts) == bool(shaping.reorder)
        await place.close()

    simulated(body())


def test_an_hour_takes_no_time() -> None:
    started = time.monotonic()

    async def body() -> None:
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.sleep(3600)
        assert loop.time() - before == 3600
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await loop.create_future()

    simulated(body())
    assert time.monotonic() - started < 5


def test_waiting_for_what_can_never_happen_is_told() -> None:
    async def body() -> None:
        await asyncio.get_running_loop().create_future()

    loop = VirtualLoop()
    with pytest.raises(Stuck, match="nothing is left to happen"):
        loop.run_until_complete(body())


def test_tasks_are_cancelled_in_the_order_in_which_they_were_made() -> None:
    cancelled: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def fail() -> None:
        await asyncio.sleep(1)
        raise RuntimeError("enough")

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(wait(number))
            group.create_task(fail())

    with pytest.raises(ExceptionGroup):
        simulated(body())
    assert cancelled == list(range(20))


def batch(first: int, last: int, term: int = 1) -> Batch:
    return Batch(HardState(term, "n1"), tuple(Entry(index, term, Noop()) for index in range(first, last + 1)))


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_loses_nothing_that_was_synced_and_tears_the_rest(seed: int) -> None:
    disk = SimDisk("n1", Storage, random.Random(seed))
    disk.recover()
    disk.write([batch(1, 5)])
    disk.sync()
    disk.write([batch(6, 9)])
    disk.write([batch(10, 12)])
    disk.crash()
    found = disk.recover()
    assert 5 <= len(found.entries) <= 12
    assert [entry.index for entry in found.entries] == list(range(1, len(found.entries) + 1))
    disk.write([batch(len(found.entries) + 1, 20)])
    disk.sync()
    disk.crash()
    assert len(disk.recover().entries) == 20


def test_crashes_leave_every_number_of_records_and_torn_ones() -> None:
    ends, torn = set(), 0
    for seed in range(200):
        disk = SimDisk("n1", Storage, random.Random(seed))
        disk.recover()
        disk.write([batch(1, 5)])
        disk.crash()
        ends.add(len(disk.recover().entries))
        torn += disk.torn_bytes > 0
    assert ends == {0, 1, 2, 3, 4, 5}
    assert torn > 20


def test_a_clock_can_be_turned() -> None:
    clock = SimClock(1_000, monotonic=False)
    assert clock.read(5) == 1_005
    clock.turn(ClockSetting(step_ns=500, rate=2.0), 10)
    assert clock.read(10) == 1_510
    assert clock.read(20) == 1_530
    assert clock.read(clock.moment(1_600, 20)) >= 1_600
    clock.turn(ClockSetting(step_ns=-1_000), 20)
    assert clock.read(20) == 530
    clock.make_true(20)
    assert clock.read(30) == 1_030


def test_a_monotonic_clock_stands_still_and_keeps_what_it_is_ahead() -> None:
    clock = SimClock(0, monotonic=True)
    assert clock.read(100) == 100
    clock.turn(ClockSetting(step_ns=-50), 100)
    assert [clock.read(now) for now in (100, 130, 150, 160)] == [100, 100, 100, 110]
    assert clock.moment(105, 160) == 160
    clock.turn(ClockSetting(step_ns=1_000), 160)
    clock.make_true(160)
    assert clock.read(170) == 1_120


def test_a_stream_is_named_by_what_it_is_for() -> None:
    first = [Quick(1, 2, 3).between(0, 99) for _ in range(3)]
    assert len(set(first)) == 1
    draws = Quick(1, 2, 3)
    numbers = [draws.between(0, 99) for _ in range(2_000)]
    assert numbers[0] == first[0]
    assert set(numbers) == set(range(100))
    other = Quick(1, 2, 4)
    assert [other.between(0, 99) for _ in range(20)] != numbers[:20]
