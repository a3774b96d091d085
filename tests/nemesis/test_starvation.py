"""Nodes that get too little, at the local place and in the simulation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from cluster.places import node_names
from cluster.places.base import Capability, Limits, ProcessState
from nemesis.spec import validate
from tests.nemesis.arena import LIMIT_NS, Arena, fault, open_arena

NODES = ("n1", "n2")


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    arena = await open_arena(tmp_path, NODES)
    yield arena
    await arena.place.close()


def process(arena: Arena, node: str) -> psutil.Process:
    pid = arena.place._node(node).process.pid
    assert pid is not None
    return psutil.Process(pid)


async def keep_busy(arena: Arena, node: str) -> None:
    """Ask it all the time, so that it wants a core."""

    async def ask() -> None:
        while True:
            await arena.place.system.probe(arena.place.address(node), 1)

    await asyncio.gather(*(ask() for _ in range(4)))


async def test_a_busy_node_gets_its_share_of_a_core(arena: Arena) -> None:
    busy = asyncio.create_task(keep_busy(arena, "n1"))
    running = asyncio.create_task(arena.nemesis([fault("starve", ("n1",), lasts=2500, cpu=0.03)]).run())
    injected = await arena.until("f1", "injected")
    assert "of 3.0%" in injected["evidence"]
    assert (await arena.place.usage("n1")).limits == Limits(0.03)
    assert (await arena.place.usage("n2")).limits == Limits()
    began, used = time.monotonic(), (await arena.place.usage("n1")).cpu_ns
    await asyncio.sleep(1)
    assert ((await arena.place.usage("n1")).cpu_ns - used) / 1e9 / (time.monotonic() - began) < 0.065
    assert await arena.place.state("n1") is ProcessState.RUNNING, "whether or not it is stopped just now"
    await running
    assert arena.event("f1", "healed")["evidence"] == "as read back: n1 is free"
    assert await arena.place.system.probe(arena.place.address("n1"), 2)
    busy.cancel()


async def test_a_starved_node_can_be_paused_killed_and_stopped(arena: Arena) -> None:
    busy = asyncio.create_task(keep_busy(arena, "n1"))
    place = arena.place
    await place.starve_node("n1", Limits(cpu=0.02))
    await asyncio.sleep(0.3)
    await place.pause_node("n1")
    assert await place.state("n1") is ProcessState.PAUSED
    await asyncio.sleep(0.3)
    assert process(arena, "n1").status() == psutil.STATUS_STOPPED
    await place.resume_node("n1")
    assert await place.state("n1") is ProcessState.RUNNING
    await place.kill_node("n1")
    await place.start_node("n1")
    assert (await place.usage("n1")).limits == Limits(cpu=0.02), "the share is the node's, whatever its process"
    await place.stop_node("n1")
    assert await place.state("n1") is ProcessState.DEAD
    await place.starve_node("n1", Limits())
    await place.start_node("n1")
    assert (await place.usage("n1")).limits == Limits()
    busy.cancel()


async def test_memory_is_limited_and_free_again(arena: Arena) -> None:
    before = process(arena, "n1").rlimit(psutil.RLIMIT_AS)
    running = asyncio.create_task(arena.nemesis([fault("starve", ("n1",), lasts=800, memory=10_000_000)]).run())
    assert "n1 may use 10000000 bytes" in (await arena.until("f1", "injected"))["evidence"]
    now = process(arena, "n1")
    assert now.rlimit(psutil.RLIMIT_AS)[0] <= now.memory_info().vms, "it has more than that: it gets nothing more"
    await running
    assert process(arena, "n1").rlimit(psutil.RLIMIT_AS) == before


async def test_overlapping_limits_are_the_least_and_each_ends_alone(arena: Arena) -> None:
    specs = [fault("starve", ("n1",), lasts=4500, cpu=0.5), fault("starve", ("n1",), at=1500, lasts=2200, cpu=0.1)]
    running = asyncio.create_task(arena.nemesis(specs).run())
    await arena.until("f2", "injected")
    assert (await arena.place.usage("n1")).limits.cpu == 0.1
    assert "by another fault" in (await arena.until("f2", "healed"))["evidence"]
    assert (await arena.place.usage("n1")).limits.cpu == 0.5
    await running
    assert (await arena.place.usage("n1")).limits == Limits()


def test_one_of_cpu_and_memory_is_needed() -> None:
    nodes = node_names(3)
    assert [one.field for one in validate(fault("starve", "one"), nodes, LIMIT_NS)] == ["fault"]
    assert [one.field for one in validate(fault("starve", "one", cpu=0.1, memory=10**7), nodes, LIMIT_NS)] == ["memory"]
    able = set(Capability) - {Capability.STARVE_MEMORY}
    assert validate(fault("starve", "one", cpu=0.1), nodes, LIMIT_NS, able) == []
    (problem,) = validate(fault("starve", "one", memory=10**7), nodes, LIMIT_NS, able)
    assert "starve-memory" in problem.found
