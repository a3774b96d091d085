"""Partitions of one port, at nodes that listen at two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.places import node_names
from cluster.places.base import Capability, Link, PlaceError, PortCut
from nemesis.spec import validate
from tests.cluster.twoports import TwoPorts
from tests.nemesis.arena import LIMIT_NS, Arena, fault, open_arena

NODES = ("n1", "n2")
LINKS = (Link("n1", "n2"), Link("n2", "n1"))
ALL = {PortCut(link, port) for link in LINKS for port in ("main", "peer")}


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    arena = await open_arena(tmp_path, NODES, TwoPorts())
    yield arena
    await arena.place.close()


async def passing(arena: Arena) -> set[PortCut]:
    passed = await asyncio.gather(*(arena.place.probe_port(one, 0.3) for one in sorted(ALL)))
    return {one for one, answered in zip(sorted(ALL), passed, strict=True) if answered}


async def test_a_partition_of_one_port_leaves_the_other(arena: Arena) -> None:
    running = asyncio.create_task(arena.nemesis([fault("partition", shape="one", lasts=1200, port="peer")]).run())
    injected = await arena.until("f1", "injected")
    assert injected["detail"]["port"] == "peer"
    assert "2 links cut" in injected["evidence"]
    assert await passing(arena) == {one for one in ALL if one.port == "main"}
    await running
    assert "probes pass" in arena.event("f1", "healed")["evidence"]
    assert await passing(arena) == ALL


async def test_cuts_of_one_port_and_of_all_overlap(arena: Arena) -> None:
    there = fault("partition", cuts=(("n1", "n2"),), lasts=2500, port="main")
    whole = fault("partition", cuts=(("n1", "n2"), ("n2", "n1")), at=700, lasts=1000)
    running = asyncio.create_task(arena.nemesis([there, whole]).run())
    await arena.until("f1", "injected")
    assert await passing(arena) == ALL - {PortCut(Link("n1", "n2"), "main")}
    await arena.until("f2", "injected")
    assert await passing(arena) == set()
    await arena.until("f2", "healed")
    assert await passing(arena) == ALL - {PortCut(Link("n1", "n2"), "main")}
    await running
    assert await passing(arena) == ALL


async def test_a_place_knows_its_ports(arena: Arena) -> None:
    with pytest.raises(PlaceError, match="admin"):
        await arena.place.cut_ports([PortCut(LINKS[0], "admin")])
    assert await passing(arena) == ALL


def test_a_port_has_to_be_one_of_the_systems() -> None:
    spec = fault("partition", shape="one", port="admin")
    nodes = node_names(3)
    (problem,) = validate(spec, nodes, LIMIT_NS, ports=("main", "peer"))
    assert (problem.field, problem.found, problem.remedy) == ("port", "'admin'", "one of main, peer")
    (problem,) = validate(spec, nodes, LIMIT_NS, set(Capability) - {Capability.CUT_PORTS}, ports=("main",))
    assert (problem.field, problem.remedy) == ("fault", "another place")
