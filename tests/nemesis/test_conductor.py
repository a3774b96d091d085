"""The nemesis on real processes and real links: every fault takes effect and ends, seen from outside."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from cluster.places.base import Link, PlaceError, ProcessState
from cluster.places.local import LocalPlace
from nemesis.spec import FOR_NS_MIN, validate
from tests.nemesis.arena import LIMIT_NS, MS, Arena, fault, open_arena

NODES = ("n1", "n2", "n3", "n4", "n5")

FULL = ["inject", "injected", "heal", "healed"]


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    arena = await open_arena(tmp_path, NODES)
    try:
        yield arena
    finally:
        await arena.place.close()


def both_ways(pairs: Iterable[tuple[str, str]]) -> set[Link]:
    return {link for pair in pairs for link in (Link(*pair), Link(*pair).reverse)}


async def test_a_partition_takes_effect_and_ends(arena: Arena) -> None:
    arena.lead("n2", 3)
    nemesis = arena.nemesis([fault("partition", shape="isolated-leader", lasts=1000)])
    running = asyncio.create_task(nemesis.run())
    injected = await arena.until("f1", "injected")
    cut = both_ways(("n2", other) for other in NODES if other != "n2")
    assert await arena.passing() == arena.all_links() - cut
    assert [active.fault.id for active in nemesis.active] == ["f1"]
    assert injected["targets"] == ["n2"]
    assert {Link(*pair) for pair in injected["detail"]["cuts"]} == cut
    assert "probes passed" in injected["evidence"]
    assert arena.ledger() == [("f1", "inject")]
    await running
    assert await arena.passing(1.0) == arena.all_links()
    assert nemesis.active == ()
    assert "again" in arena.event("f1", "healed")["evidence"]
    assert arena.actions("f1") == FULL
    assert arena.ledger() == [("f1", "inject"), ("f1", "healed")]


async def test_two_partitions_unite_and_each_heals_its_own(arena: Arena) -> None:
    first = (("n1", "n2"), ("n2", "n1"), ("n1", "n3"))
    second = (("n1", "n2"), ("n4", "n5"))
    nemesis = arena.nemesis(
        [fault("partition", cuts=first, lasts=2000), fault("partition", cuts=second, at=800, lasts=2500)]
    )
    running = asyncio.create_task(nemesis.run())
    await arena.until("f2", "injected")
    everything = arena.all_links()
    assert await arena.passing() == everything - {Link(*pair) for pair in (*first, *second)}
    await arena.until("f1", "healed")
    assert await arena.passing() == everything - {Link(*pair) for pair in second}
    await running
    assert await arena.passing(1.0) == everything
    assert arena.actions("f1") == arena.actions("f2") == FULL
    assert "n1->n2" not in arena.event("f2", "injected")["evidence"], "it was cut before: no proof"
    assert "n1->n2" not in arena.event("f1", "healed")["evidence"], "it is still cut"


async def test_a_partition_of_links_that_are_cut_already_is_skipped(arena: Arena) -> None:
    cuts = (("n1", "n2"),)
    nemesis = arena.nemesis([fault("partition", cuts=cuts, lasts=3000), fault("partition", cuts=cuts, at=600)])
    running = asyncio.create_task(nemesis.run())
    skipped = await arena.until("f2", "skipped")
    assert "even before the cut" in skipped["reason"]
    assert Link("n1", "n2") not in await arena.passing()
    await running
    assert ("f2", "inject") not in arena.ledger()


async def test_kill_takes_effect_and_ends(arena: Arena) -> None:
    nemesis = arena.nemesis([fault("kill", "minority", lasts=800)])
    running = asyncio.create_task(nemesis.run())
    injected = await arena.until("f1", "injected")
    targets = injected["targets"]
    assert len(targets) == 2
    for node in NODES:
        expected = ProcessState.DEAD if node in targets else ProcessState.RUNNING
        assert await arena.place.state(node) is expected
        assert await arena.place.system.ready(arena.place.address(node), 1.0) is (node not in targets)
    await running
    for node in NODES:
        assert await arena.place.state(node) is ProcessState.RUNNING
    assert arena.actions("f1") == FULL
    assert "runs" in arena.event("f1", "healed")["evidence"]


async def test_pause_takes_effect_and_ends(arena: Arena) -> None:
    arena.lead("n4", 7)
    nemesis = arena.nemesis([fault("pause", "leader", lasts=800)])
    running = asyncio.create_task(nemesis.run())
    injected = await arena.until("f1", "injected")
    assert injected["targets"] == ["n4"]
    assert injected["detail"]["leader"] == {"node": "n4", "term": 7}
    assert "no status within 300 ms" in injected["evidence"]
    assert await arena.place.state("n4") is ProcessState.PAUSED
    await running
    assert await arena.place.system.ready(arena.place.address("n4"), 1.0)
    assert arena.actions("f1") == FULL


async def test_the_leader_is_the_one_of_the_highest_term(arena: Arena) -> None:
    arena.lead("n3", 5, n1={"leads": True, "leader": "n1", "term": 4})
    await arena.nemesis([fault("kill", "leader")]).run()
    assert arena.event("f1", "injected")["targets"] == ["n3"]


async def test_no_leader_is_a_reason_to_skip(arena: Arena) -> None:
    await arena.nemesis([fault("kill", "leader")]).run()
    assert arena.actions("f1") == ["skipped"]
    assert "no node leads" in arena.event("f1", "skipped")["reason"]


async def test_a_kill_takes_a_paused_node_over(arena: Arena) -> None:
    nemesis = arena.nemesis([fault("pause", ("n1", "n2"), lasts=1500), fault("kill", ("n1",), at=600, lasts=2000)])
    running = asyncio.create_task(nemesis.run())
    await arena.until("f2", "injected")
    await arena.until("f1", "healed")
    assert await arena.place.state("n1") is ProcessState.DEAD, "healing the pause is not to start the node"
    assert await arena.place.state("n2") is ProcessState.RUNNING
    await running
    assert await arena.place.state("n1") is ProcessState.RUNNING
    assert arena.actions("f1") == arena.actions("f2") == FULL


async def test_a_pause_of_a_killed_node_is_skipped_and_the_kill_heals_alone(arena: Arena) -> None:
    nemesis = arena.nemesis(
        [
            fault("kill", ("n1",), lasts=2500),
            fault("pause", ("n1",), at=500, lasts=500),
            fault("kill", ("n1",), at=600, lasts=500),
            fault("pause", ("n1", "n3"), at=700, lasts=800),
        ]
    )
    running = asyncio.create_task(nemesis.run())
    injected = await arena.until("f4", "injected")
    assert injected["targets"] == ["n3"]
    assert injected["detail"]["left_out"] == "n1 is dead by f1"
    await arena.until("f4", "healed")
    assert await arena.place.state("n1") is ProcessState.DEAD
    await running
    assert arena.event("f2", "skipped")["reason"] == "nothing to pause: n1 is dead by f1"
    assert arena.event("f3", "skipped")["reason"] == "nothing to kill: n1 is dead by f1"
    assert await arena.place.state("n1") is ProcessState.RUNNING


async def test_a_node_that_died_by_itself_is_left_dead(arena: Arena) -> None:
    assert isinstance(arena.place, LocalPlace)
    pid = arena.place._nodes["n5"].process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    while await arena.place.state("n5") is not ProcessState.DEAD:
        await asyncio.sleep(0.01)
    await arena.nemesis([fault("kill", ("n5",)), fault("pause", "all")]).run()
    assert arena.event("f1", "skipped")["reason"] == "nothing to kill: n5 is dead"
    assert arena.event("f2", "injected")["targets"] == ["n1", "n2", "n3", "n4"]
    assert await arena.place.state("n5") is ProcessState.DEAD


async def test_partition_kill_and_pause_overlap(arena: Arena) -> None:
    nemesis = arena.nemesis(
        [
            fault("partition", shape="majorities-ring", lasts=3000),
            fault("kill", ("n1",), at=500, lasts=1500),
            fault("pause", ("n2",), at=1000, lasts=1500),
        ]
    )
    running = asyncio.create_task(nemesis.run())
    await arena.until("f3", "injected")
    assert len(nemesis.active) == 3
    ring = {Link(*pair) for pair in arena.event("f1", "injected")["detail"]["cuts"]}
    down = {link for link in arena.all_links() if link.target in ("n1", "n2")}
    assert await arena.passing() == arena.all_links() - ring - down
    await running
    assert await arena.passing(1.0) == arena.all_links()
    assert [arena.actions(id) for id in ("f1", "f2", "f3")] == [FULL] * 3


async def test_cancelling_heals_everything(arena: Arena) -> None:
    nemesis = arena.nemesis(
        [
            fault("partition", ("n1",), shape="one", lasts=20_000),
            fault("kill", ("n2",), lasts=20_000),
            fault("pause", ("n3",), lasts=20_000),
            fault("kill", ("n4",), at=15_000),
        ]
    )
    running = asyncio.create_task(nemesis.run())
    for id in ("f1", "f2", "f3"):
        await arena.until(id, "injected")
    running.cancel()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert nemesis.active == ()
    assert arena.actions("f4") == []
    states = [await arena.place.state(node) for node in NODES]
    assert states == [ProcessState.RUNNING] * 5
    assert await arena.passing(1.0) == arena.all_links()
    assert sorted(arena.ledger()) == [(f"f{n}", action) for n in (1, 2, 3) for action in ("healed", "inject")]


async def test_cancelling_in_the_middle_of_an_injection_leaves_nothing(arena: Arena) -> None:
    nemesis = arena.nemesis([fault("kill", "all", lasts=5000), fault("pause", "all", lasts=5000)])
    running = asyncio.create_task(nemesis.run())
    await arena.until("f1", "inject")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [await arena.place.state(node) for node in NODES] == [ProcessState.RUNNING] * 5
    assert arena.actions("f1") == FULL


async def test_an_error_in_one_fault_heals_all(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(node: str) -> None:
        raise RuntimeError(f"a bug, at {node}")

    monkeypatch.setattr(arena.place, "pause_node", broken)
    nemesis = arena.nemesis(
        [fault("partition", ("n1",), shape="one", lasts=20_000), fault("pause", ("n2",), at=600, lasts=20_000)]
    )
    with pytest.raises(ExceptionGroup, match="unhandled"):
        await nemesis.run()
    assert nemesis.active == ()
    assert await arena.passing(1.0) == arena.all_links()


async def test_what_a_place_cannot_do_is_skipped_and_undone(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(node: str) -> None:
        raise PlaceError(f"not permitted to stop {node}")

    monkeypatch.setattr(arena.place, "pause_node", refused)
    await arena.nemesis([fault("pause", ("n2",)), fault("kill", ("n2",), at=700)]).run()
    assert arena.actions("f1") == ["inject", "skipped", "heal", "healed"]
    assert arena.event("f1", "skipped")["reason"] == "not permitted to stop n2"
    assert arena.actions("f2") == FULL, "the skipped fault no longer holds the node"


async def test_a_cut_that_does_not_cut_is_skipped(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(links: Iterable[Link]) -> None:
        assert links is not None

    monkeypatch.setattr(arena.place, "set_cuts", nothing)
    nemesis = arena.nemesis([fault("partition", ("n1",), shape="one")])
    await nemesis.run()
    assert arena.actions("f1") == ["inject", "skipped", "heal", "healed"]
    assert "still went through" in arena.event("f1", "skipped")["reason"]
    assert nemesis.resolved() == ()


@pytest.mark.slow
async def test_what_cannot_be_healed_is_said_after_the_rest_was(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(node: str) -> None:
        raise PlaceError(f"{node} could not be started")

    monkeypatch.setattr(arena.place, "start_node", refused)
    nemesis = arena.nemesis([fault("kill", ("n1",)), fault("pause", ("n2",), lasts=1000)])
    with pytest.raises(PlaceError, match="kill n1 could not be healed: n1 could not be started"):
        await nemesis.run()
    assert await arena.place.state("n2") is ProcessState.RUNNING
    assert [active.fault.id for active in nemesis.active] == ["f1"]
    assert ("f1", "healed") not in arena.ledger()


async def test_the_resolved_schedule_does_the_same_again(arena: Arena) -> None:
    arena.lead("n2", 1)
    nemesis = arena.nemesis(
        [
            fault("partition", "leader", shape="majority-minority", at=100, lasts=1200),
            fault("kill", "follower", at=700),
            fault("pause", ("n2", "n3"), at=1500, lasts=700),
        ],
        seed=7,
    )
    await nemesis.run()
    resolved = nemesis.resolved()
    assert [spec.fault for spec in resolved] == ["partition", "kill", "pause"]
    for spec, planned_ms, lasts_ms in zip(resolved, (100, 700, 1500), (1200, 600, 700), strict=True):
        assert validate(spec, NODES, LIMIT_NS) == []
        assert spec.every_ns is None
        assert spec.at_ns is not None
        assert planned_ms <= spec.at_ns / MS < planned_ms + 500
        assert max(lasts_ms - 500, FOR_NS_MIN / MS) <= spec.for_ns / MS < lasts_ms + 500
    partition, kill, pause = resolved
    assert partition.cuts is not None
    assert len(partition.cuts) == 12
    assert (partition.shape, partition.target) == (None, None)
    assert kill.target not in (("n2",), "follower")
    assert pause.target == ("n2", "n3")

    first = {id: arena.event(id, "injected")["targets"] for id in ("f2", "f3")}
    cuts = arena.event("f1", "injected")["detail"]["cuts"]
    arena.events.clear()
    await arena.nemesis(resolved, seed=8).run()
    assert {id: arena.event(id, "injected")["targets"] for id in ("f2", "f3")} == first
    assert arena.event("f1", "injected")["detail"]["cuts"] == cuts


async def test_the_same_seed_hits_the_same(arena: Arena) -> None:
    specs = [fault("pause", "one", lasts=500), fault("partition", shape="bridge", at=1000, lasts=500)]

    async def hits(seed: int) -> list[object]:
        arena.events.clear()
        await arena.nemesis(specs, seed).run()
        return [arena.event("f1", "injected")["targets"], arena.event("f2", "injected")["detail"]]

    assert await hits(3) == await hits(3)
