"""Faults of links, processes and clients on real processes that do nothing: what takes effect, ends, and is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest

from cluster.places.base import Capability, Link, ProcessState
from nemesis.clients import ClientPauses
from nemesis.spec import Moment, validate
from tests.nemesis.arena import LIMIT_NS, Arena, fault, open_arena

NODES = ("n1", "n2", "n3")

FULL = ["inject", "injected", "heal", "healed"]


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    arena = await open_arena(tmp_path, NODES, equipment=[Capability.CUT_CLIENTS])
    try:
        yield arena
    finally:
        await arena.place.close()


async def taken(arena: Arena, link: Link) -> float:
    started = time.monotonic()
    assert await arena.place.probe_link(link, 2.0)
    return time.monotonic() - started


async def test_a_delay_takes_effect_on_the_links_of_its_target_and_ends(arena: Arena) -> None:
    nemesis = arena.nemesis([fault("delay", ("n1",), lasts=1500, delay=(300, 320))])
    running = asyncio.create_task(nemesis.run())
    injected = await arena.until("f1", "injected")
    assert await taken(arena, Link("n1", "n2")) >= 0.3
    assert await taken(arena, Link("n3", "n1")) >= 0.3
    assert await taken(arena, Link("n2", "n3")) < 0.3
    assert injected["detail"]["delay"] == [300, 320]
    assert "a probe took" in injected["evidence"]
    await running
    assert await taken(arena, Link("n1", "n2")) < 0.3
    assert arena.actions("f1") == FULL
    (again,) = nemesis.resolved()
    assert validate(again, NODES, LIMIT_NS) == []
    assert again.cuts == (("n1", "n2"), ("n1", "n3"), ("n2", "n1"), ("n3", "n1"))
    assert again.options == (("delay", (300, 320)),)


async def test_two_delays_add_up_and_each_ends_for_itself(arena: Arena) -> None:
    cuts = (("n1", "n2"),)
    specs = [
        fault("delay", cuts=cuts, lasts=4000, delay=(200, 200)),
        fault("delay", cuts=cuts, at=600, lasts=1800, delay=(250, 250)),
    ]
    running = asyncio.create_task(arena.nemesis(specs).run())
    await arena.until("f2", "injected")
    assert await taken(arena, Link("n1", "n2")) >= 0.45
    await arena.until("f2", "healed")
    assert 0.2 <= await taken(arena, Link("n1", "n2")) < 0.45
    await running


async def test_a_link_that_nobody_talks_over_cannot_be_shown_to_be_narrow(arena: Arena) -> None:
    await arena.nemesis([fault("throttle", ("n1",), lasts=600, rate=1000)]).run()
    assert arena.actions("f1") == ["inject", "skipped", "heal", "healed"]
    assert "nothing came of it" in arena.event("f1", "skipped")["reason"]
    assert await arena.passing(1.0) == arena.all_links()


async def test_links_without_connections_cannot_be_reset(arena: Arena) -> None:
    await arena.nemesis([fault("reset", "all")]).run()
    assert "no connection" in arena.event("f1", "skipped")["reason"]


async def test_flapping_links_are_cut_on_and_off_and_whole_in_the_end(arena: Arena) -> None:
    nemesis = arena.nemesis([fault("flapping", ("n1",), shape="one", lasts=1600, down=(100, 100), up=(100, 100))])
    running = asyncio.create_task(nemesis.run())
    await arena.until("f1", "injected")
    seen = set()
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        seen.add(await arena.place.probe_link(Link("n1", "n2"), 0.05))
        await asyncio.sleep(0.01)
    assert seen == {True, False}
    await running
    assert await arena.passing(1.0) == arena.all_links()
    assert arena.actions("f1") == FULL


async def test_a_flapping_link_stays_cut_while_a_partition_cuts_it(arena: Arena) -> None:
    cuts = (("n1", "n2"),)
    specs = [
        fault("flapping", cuts=cuts, lasts=2000, down=(50, 50), up=(200, 200)),
        fault("partition", cuts=(("n1", "n2"), ("n3", "n2")), at=500, lasts=1000),
    ]
    running = asyncio.create_task(arena.nemesis(specs).run())
    await arena.until("f2", "injected")
    for _ in range(10):
        assert not await arena.place.probe_link(Link("n1", "n2"), 0.05)
    await running


async def test_a_stop_is_a_clean_end(arena: Arena) -> None:
    running = asyncio.create_task(arena.nemesis([fault("stop", ("n2",))]).run())
    injected = await arena.until("f1", "injected")
    assert await arena.place.state("n2") is ProcessState.DEAD
    assert "SIGTERM" in injected["evidence"], "the stand-in has no handler; a node would exit with a code"
    await running
    assert await arena.place.state("n2") is ProcessState.RUNNING
    assert arena.actions("f1") == FULL


async def test_a_crash_loop_kills_again_and_again_and_leaves_the_node_running(arena: Arena) -> None:
    spec = fault("crash-loop", ("n3",), lasts=2500, down=(50, 100), up=(150, 250))
    await arena.nemesis([spec]).run()
    assert await arena.place.state("n3") is ProcessState.RUNNING
    kills, _, rest = arena.event("f1", "healed")["evidence"].partition(" kills")
    assert int(kills) >= 3
    assert "n3 runs" in rest


async def test_a_kill_in_a_crash_loop_takes_the_node_over(arena: Arena) -> None:
    specs = [
        fault("crash-loop", ("n3",), lasts=3000, down=(50, 50), up=(700, 700)),
        fault("kill", ("n3",), at=400, lasts=1500),
    ]
    running = asyncio.create_task(arena.nemesis(specs).run())
    await arena.until("f2", "injected")
    for _ in range(12):
        assert await arena.place.state("n3") is ProcessState.DEAD, "the loop does not start it again"
        await asyncio.sleep(0.1)
    await running
    assert await arena.place.state("n3") is ProcessState.RUNNING
    assert arena.actions("f1") == arena.actions("f2") == FULL


async def test_a_staggered_kill_starts_one_node_after_the_other(arena: Arena) -> None:
    running = asyncio.create_task(arena.nemesis([fault("kill", "all", stagger=(400, 400))]).run())
    await arena.until("f1", "heal")
    counts = []
    while "healed" not in arena.actions("f1"):
        states = [await arena.place.state(node) for node in NODES]
        counts.append(states.count(ProcessState.RUNNING))
        await asyncio.sleep(0.02)
    await running
    assert {1, 2} <= set(counts), "one after the other"
    assert [await arena.place.state(node) for node in NODES] == [ProcessState.RUNNING] * 3


async def test_clients_are_cut_off_and_nodes_are_not(arena: Arena) -> None:
    running = asyncio.create_task(arena.nemesis([fault("client-partition", ("n1",), lasts=900)]).run())
    await arena.until("f1", "injected")
    system, place = arena.place.system, arena.place
    assert not await system.probe(place.client_address("n1"), 0.2)
    assert await system.probe(place.client_address("n2"), 1.0)
    assert await system.probe(place.address("n1"), 1.0), "whoever watches asks past the fault"
    assert await arena.passing() == arena.all_links()
    await running
    assert await system.probe(place.client_address("n1"), 1.0)
    assert arena.actions("f1") == FULL


class Clients:
    """Stands in for a run's clients."""

    threads = range(4)

    def __init__(self, holding: Collection[int] = ()) -> None:
        self._holding = holding
        self._frozen: set[int] = set()

    def holding(self) -> Collection[int]:
        return self._holding

    def freeze(self, threads: Collection[int]) -> None:
        self._frozen |= set(threads)

    def thaw(self, threads: Collection[int]) -> None:
        self._frozen -= set(threads)

    def frozen(self) -> Collection[int]:
        return self._frozen


@pytest.mark.parametrize(("target", "count"), [("one", 1), ("minority", 1), ("majority", 3), ("all", 4)])
async def test_so_many_clients_freeze_and_thaw(arena: Arena, target: str, count: int) -> None:
    clients = Clients()
    nemesis = arena.nemesis([fault("client-pause", target)], families=[ClientPauses(clients)])
    running = asyncio.create_task(nemesis.run())
    await arena.until("f1", "injected")
    assert len(clients.frozen()) == count
    await running
    assert not clients.frozen()
    (again,) = nemesis.resolved()
    assert len(again.target or ()) == count
    assert validate(again, NODES, LIMIT_NS, clients=4) == []


async def test_a_holder_freezes(arena: Arena) -> None:
    clients = Clients(holding=[2])
    running = asyncio.create_task(
        arena.nemesis([fault("client-pause", "holder")], families=[ClientPauses(clients)]).run()
    )
    injected = await arena.until("f1", "injected")
    assert injected["targets"] == ["client-2"]
    assert "client-2 held a lock" in injected["evidence"]
    await running


async def test_without_a_holder_nobody_freezes(arena: Arena) -> None:
    clients = Clients()
    await arena.nemesis([fault("client-pause", "holder")], families=[ClientPauses(clients)]).run()
    assert "no client held a lock" in arena.event("f1", "skipped")["reason"]
    assert not clients.frozen()


async def test_a_kill_waits_for_its_counter_and_still_lasts_as_long(arena: Arena) -> None:
    arena.lead("n1", 1, **{name: {"counters": {"grants": 7}} for name in NODES})
    spec = fault("kill", ("n2",), lasts=600, when=Moment(counter="grants", grows=2))
    nemesis = arena.nemesis([spec])
    running = asyncio.create_task(nemesis.run())
    await asyncio.sleep(0.5)
    arena.lead("n1", 1, **{name: {"counters": {"grants": 8}} for name in NODES})
    await asyncio.sleep(0.3)
    assert arena.actions("f1") == []
    arena.lead("n1", 1, **{name: {"counters": {"grants": 9}} for name in NODES})
    injected = await arena.until("f1", "injected")
    assert "grew to 9" in injected["detail"]["when"]
    began = time.monotonic()
    await running
    assert time.monotonic() - began > 0.4
    (again,) = nemesis.resolved()
    assert again.when is None
    assert again.at_ns is not None
    assert again.at_ns >= 800_000_000


async def test_a_kill_waits_for_a_line_in_a_log(arena: Arena) -> None:
    specs = [
        fault("kill", ("n2",), when=Moment(log=r"n1 listens as \d+", after_ns=300_000_000)),
        fault("kill", ("n1",), at=500, lasts=500),
    ]
    nemesis = arena.nemesis(specs)
    await nemesis.run()
    killed_again, killed_late = nemesis.resolved()
    assert (killed_late.at_ns or 0) - (killed_again.at_ns or 0) > 300_000_000
    assert "n1 logged n1 listens" in arena.event("f1", "injected")["detail"]["when"]
    order = [(event["fault"], event["action"]) for event in arena.events if event.get("action") == "injected"]
    assert order == [("f2", "injected"), ("f1", "injected")]


async def test_a_counter_that_there_is_not_is_said(arena: Arena) -> None:
    arena.lead("n1", 1, **{name: {"counters": {"grants": 7}} for name in NODES})
    await arena.nemesis([fault("kill", ("n2",), when=Moment(counter="grunts"))]).run()
    assert "no counter grunts; it counts grants" in arena.event("f1", "skipped")["reason"]
