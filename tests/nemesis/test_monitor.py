from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nemesis.monitor import INTERVAL_S, Monitor
from nemesis.targets import Leader
from tests.nemesis.arena import Arena, open_arena

NODES = ("n1", "n2", "n3")


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    arena = await open_arena(tmp_path, NODES)
    try:
        yield arena
    finally:
        await arena.place.close()


@pytest.fixture
async def monitor(arena: Arena) -> AsyncIterator[Monitor]:
    monitor = Monitor(arena.place, record=arena.record)
    running = asyncio.create_task(monitor.run())
    yield monitor
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def until_leader(monitor: Monitor, leader: Leader) -> float:
    started = time.monotonic()
    while monitor.leader != leader:
        assert time.monotonic() < started + 3
        await asyncio.sleep(0.01)
    return time.monotonic() - started


async def test_changes_of_leader_are_recorded_once_each(arena: Arena, monitor: Monitor) -> None:
    for node, term in (("n1", 1), ("n2", 2), ("n1", 5)):
        arena.lead(node, term)
        await until_leader(monitor, Leader(node, term))
    arena.lead("n1", 5, n3={"leads": True, "term": 4})
    await asyncio.sleep(2 * INTERVAL_S)
    assert [event for event in arena.events if event["f"] == "leader"] == [
        {"f": "leader", "node": "n1", "term": 1},
        {"f": "leader", "node": "n2", "term": 2},
        {"f": "leader", "node": "n1", "term": 5},
    ]
    assert len(monitor.leaders) == 3


async def test_two_leaders_of_one_term_are_both_seen(arena: Arena, monitor: Monitor) -> None:
    arena.lead("n1", 3, n2={"leads": True, "leader": "n2"})
    await asyncio.sleep(3 * INTERVAL_S)
    assert set(monitor.leaders) == {Leader("n1", 3), Leader("n2", 3)}


async def test_a_paused_node_delays_no_other(arena: Arena, monitor: Monitor) -> None:
    arena.lead("n1", 1)
    await until_leader(monitor, Leader("n1", 1))
    await arena.place.pause_node("n1")
    await asyncio.sleep(0.1)
    for term in (2, 3, 4):
        arena.lead("n2", term)
        assert await until_leader(monitor, Leader("n2", term)) < 3 * INTERVAL_S
    await asyncio.sleep(0.7)
    assert monitor.latest["n1"] is None
    await arena.place.resume_node("n1")
    await asyncio.sleep(1.0)
    assert monitor.latest["n1"] is not None


async def test_counters_of_the_log_are_shared_and_others_add_up(arena: Arena) -> None:
    monitor = Monitor(arena.place, record=arena.record)
    arena.lead(
        "n1",
        1,
        n1={"counters": {"grants": 10, "expiries": 2, "ghosts": 3, "elections": 1}},
        n2={"counters": {"grants": 9, "expiries": 2, "ghosts": 0, "elections": 0}},
        n3={"counters": {"grants": 4, "expiries": 1, "ghosts": 1, "elections": 4}},
    )
    await monitor.ask_once()
    await arena.place.kill_node("n3")
    await arena.place.start_node("n3")
    arena.lead("n1", 1, n3={"counters": {"grants": 12, "expiries": 2, "ghosts": 2, "elections": 0}})
    deadline = time.monotonic() + 5
    while monitor.totals().get("grants") != 12:
        assert time.monotonic() < deadline
        await monitor.ask_once()
    assert monitor.totals() == {"elections": 4, "expiries": 2, "ghosts": 3, "grants": 12}
    monitor.record_counters()
    assert arena.events[-1] == {"f": "counters"} | monitor.totals()


async def test_clocks_are_compared_with_ours_through_the_run(arena: Arena) -> None:
    def say(ahead_ms: float) -> None:
        now = time.monotonic_ns()
        arena.lead("n1", 1, n1={"lease_ns": now + int(ahead_ms * 1e6)}, n2={"wall_ns": now})

    monitor = Monitor(arena.place, record=arena.record)
    say(500)
    await monitor.ask_once()
    running = asyncio.create_task(monitor.run())
    deadline = time.monotonic() + 5
    while not (samples := [event for event in arena.events if event["f"] == "clocks"]):
        say(2500)
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    running.cancel()
    (first, *_) = samples
    assert first["lease_ms"]["n1"] == pytest.approx(2000, abs=200), "what counts is the change"
    assert set(first["lease_ms"]) == {"n1"}
    assert set(first["wall_ms"]) == {"n2"}
