"""Cuts of one port between real containers, in both directions and in one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from cluster.places.base import Link, PlaceError, PortCut
from cluster.places.docker import DockerPlace
from cluster.readiness import await_ready
from tests.cluster.twoports import TwoPorts
from tests.docker_engine import engine, left

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

THERE, BACK = Link("n1", "n2"), Link("n2", "n1")
ALL = [PortCut(link, port) for link in (THERE, BACK) for port in ("main", "peer")]


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=["nft", pytest.param("iptables", marks=pytest.mark.slow)]
)
async def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DockerPlace]:
    engine()
    place = DockerPlace(TwoPorts(), ("n1", "n2"), tmp_path_factory.mktemp("docker"), packet_filter=request.param)
    await place.start()
    try:
        readiness = await await_ready(place, place.nodes, 30)
        assert readiness.complete, readiness.describe()
        yield place
    finally:
        await place.close()
    assert left(place.run) == []


async def cut(place: DockerPlace) -> Sequence[PortCut]:
    passed = await asyncio.gather(*(place.probe_port(one, 1.0) for one in ALL))
    return [one for one, answered in zip(ALL, passed, strict=True) if not answered]


@pytest.mark.parametrize("cuts", [[THERE, BACK], [BACK]], ids=["both ways", "one way"])
async def test_one_port_is_cut_and_the_other_is_not(place: DockerPlace, cuts: Sequence[Link]) -> None:
    assert await cut(place) == []
    wanted = [PortCut(link, "peer") for link in cuts]
    await place.cut_ports(wanted)
    assert sorted(await cut(place)) == sorted(wanted)
    await place.set_cuts([BACK])
    assert sorted(await cut(place)) == sorted({*wanted, PortCut(BACK, "main"), PortCut(BACK, "peer")})
    await place.set_cuts([])
    assert sorted(await cut(place)) == sorted(wanted)
    await place.cut_ports([])
    assert await cut(place) == []


async def test_a_port_that_there_is_not(place: DockerPlace) -> None:
    with pytest.raises(PlaceError, match="no port admin at n2"):
        await place.cut_ports([PortCut(THERE, "admin")])
