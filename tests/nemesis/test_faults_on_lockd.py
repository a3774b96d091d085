"""Every fault that needs a service with traffic, on real lockd nodes under load, one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from cluster.places import vdso
from cluster.places.base import Capability
from cluster.readiness import await_ready
from cluster.systems.base import NodeUnreachable
from cluster.systems.lockd import Lockd
from nemesis.clocks import ClockBound
from nemesis.spec import FaultSpec
from tests.nemesis.arena import MS, Arena, fault, open_arena

NODES = ("n1", "n2", "n3")

S = 1_000 * MS


@contextlib.asynccontextmanager
async def under_load(folder: Path, *equipment: Capability) -> AsyncIterator[Arena]:
    """Three nodes, and a client on each that acquires and releases without end."""
    arena = await open_arena(folder, NODES, Lockd(), equipment)
    clients = [asyncio.create_task(_use(arena, node)) for node in NODES]
    try:
        yield arena
        readiness = await await_ready(arena.place, NODES, 15)
        assert readiness.complete, readiness.describe()
    finally:
        for client in clients:
            client.cancel()
        await asyncio.wait(clients)
        await arena.place.close()


async def _use(arena: Arena, node: str) -> None:
    while True:
        try:
            client = await arena.place.system.connect(arena.place.address(node), 0.5)
        except NodeUnreachable:
            await asyncio.sleep(0.05)
            continue
        outcome = await client.acquire(node, 500, 0)
        while outcome.type == "ok" and outcome.value is not None:
            await client.release(node, outcome.value["token"])
            await asyncio.sleep(0.005)
            outcome = await client.acquire(node, 500, 0)
        await client.close()
        await asyncio.sleep(0.02)


async def one_after_the_other(
    arena: Arena, specs: Sequence[tuple[FaultSpec, str]], bound: ClockBound | None = None
) -> None:
    """Each fault takes effect with evidence that matches, and is healed."""
    for number, (spec, evidence) in enumerate(specs):
        arena.events.clear()
        await arena.nemesis([spec], seed=number, clock_bound=bound or ClockBound()).run()
        assert arena.actions("f1") == ["inject", "injected", "heal", "healed"], (spec, arena.events)
        found = arena.event("f1", "injected")["evidence"]
        assert re.search(evidence, found), (spec, found)
        assert "undone, but" not in arena.event("f1", "healed")["evidence"], arena.events
        readiness = await await_ready(arena.place, NODES, 10)
        assert readiness.complete, readiness.describe()


async def test_faults_of_links(tmp_path: Path) -> None:
    async with under_load(tmp_path, Capability.SHAPE_FRAMES) as arena:
        await one_after_the_other(
            arena,
            [
                (fault("delay", "leader", delay=(20, 40)), r"a probe took \d+\.\d ms at least"),
                (fault("throttle", "leader", rate=1000), r"\d+ bytes wait in"),
                (fault("stall", "leader"), r"\d+ bytes wait in"),
                (fault("large-packets", "all", largest=64), r"\d+ bytes are stuck in"),
                (fault("duplicate", "all", share=0.5), r"\d+ frames came twice"),
                (fault("reorder", "all", share=0.5), r"\d+ frames were overtaken"),
                (fault("reset", "all", interval=(100, 200)), r"[1-9]\d* resets? of connections"),
            ],
        )


async def test_faults_of_clocks(tmp_path: Path) -> None:
    specs = [
        (fault("clock", "leader", jump=3600 * S), r"the lease clock moved.* by \+3(600\.0|599\.9)"),
        (fault("clock", "leader", jump=-3600 * S), r"the lease clock ran, as the nodes tell: n\d at 0\.0"),
        (fault("clock", "all", rate=1.5), r"n1 at 1\.[45]\d*, n2 at 1\.[45]\d*, n3 at 1\.[45]"),
        (fault("clock", "one", strobe=500 * MS), r"the lease clock moved.*\+0\.[45]"),
    ]
    if vdso.supported():
        specs.append((fault("clock", "one", clock="wall", jump=-3600 * S), r"the wall clock moved.*-3(600\.0|599\.9)"))
    async with under_load(tmp_path, Capability.TURN_LEASE_CLOCKS) as arena:
        await one_after_the_other(arena, specs)


async def test_faults_of_disks(tmp_path: Path) -> None:
    async with under_load(tmp_path, Capability.BREAK_DISKS) as arena:
        await one_after_the_other(
            arena,
            [
                (fault("disk-stall", "leader"), r"a write of n\d waits"),
                (fault("disk-slow", "leader"), r"writes of n\d met a sync of \d+ ms"),
                (fault("disk-full", "leader"), r"1 write of n\d failed; n\d exited with code 255"),
                (fault("disk-error", "one"), r"1 write of n\d failed; n\d exited with code 255"),
                (fault("disk-lose-unsynced", "all"), r"n\d was killed with [1-9]\d* bytes written and not on disk"),
            ],
        )


@pytest.mark.parametrize(
    ("spec", "breaks"),
    [
        (fault("clock", ("n1",), jump=5 * MS), False),
        (fault("clock", ("n1",), jump=50 * MS), True),
        (fault("clock", ("n1",), rate=1.005), False),
        (fault("clock", ("n1",), rate=1.05), True),
        (fault("clock", ("n1",), rate=0.95), True),
        (fault("clock", ("n1",), strobe=-50 * MS), True),
    ],
)
def test_what_breaks_the_declared_bound(spec: FaultSpec, breaks: bool) -> None:
    assert ClockBound(0.01, 1000 * MS).broken_by(spec) is breaks


async def test_only_the_clock_of_leases_excuses_and_one_that_is_turned_is_left_alone(tmp_path: Path) -> None:
    arena = await open_arena(tmp_path, NODES, Lockd(), [Capability.TURN_LEASE_CLOCKS])
    try:
        specs = [
            fault("clock", ("n1",), lasts=1500, jump=60 * S),
            fault("clock", ("n1", "n2"), at=400, lasts=600, rate=2.0),
        ]
        if vdso.supported():
            specs.append(fault("clock", ("n1",), at=900, lasts=600, clock="wall", jump=60 * S))
        await arena.nemesis(specs, clock_bound=ClockBound(0.01, 1000 * MS)).run()
        assert arena.event("f1", "injected")["breaks"] == ["clock_error"]
        assert arena.event("f2", "injected")["targets"] == ["n2"], "another fault has n1's"
        if vdso.supported():
            assert "breaks" not in arena.event("f3", "injected")
    finally:
        await arena.place.close()
