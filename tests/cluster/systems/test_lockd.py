"""`lockd` as a system under test, with real nodes at the local place."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.places.base import Link
from cluster.places.local import LocalPlace
from cluster.readiness import await_ready
from cluster.systems.base import Address, NodeUnreachable, NodeView, Outcome
from cluster.systems.lockd import Lockd

NODES = ("n1", "n2", "n3")

NOBODY = Address("127.0.0.1", 1)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[LocalPlace]:
    place = LocalPlace(Lockd(), NODES, tmp_path)
    await place.start()
    try:
        readiness = await await_ready(place, NODES, 20)
        assert readiness.complete, readiness.describe()
        yield place
    finally:
        await place.close()


async def test_clients_of_every_node_share_the_locks(place: LocalPlace) -> None:
    first, second, third = [await place.system.connect(place.address(node), 2.0) for node in NODES]
    granted = await first.acquire("a", 5_000, 0)
    assert granted.type == "ok"
    assert granted.value is not None
    token = granted.value["token"]
    assert await second.inspect("a") == Outcome("ok", {"token": token})
    assert await third.acquire("a", 5_000, 0) == Outcome("fail", error="held")
    assert await second.release("a", token + 1) == Outcome("fail", error="not-held")
    assert await second.release("a", token) == Outcome("ok")
    assert await third.inspect("a") == Outcome("ok", {"token": None})
    for client in (first, second, third):
        await client.close()


async def test_exactly_one_node_leads(place: LocalPlace) -> None:
    statuses = [await place.system.status(place.address(node), 1.0) for node in NODES]
    assert [status.id for status in statuses] == list(NODES)
    leading = [status for status in statuses if status.leads]
    assert len(leading) == 1
    assert {status.leader for status in statuses} == {leading[0].id}
    assert {"grants", "releases", "expiries", "ghosts"} <= set(leading[0].counters)


async def test_an_incarnation_lasts_as_long_as_the_process(place: LocalPlace) -> None:
    async def incarnation() -> int:
        return (await place.system.status(place.address("n1"), 1.0)).incarnation

    before = await incarnation()
    assert await incarnation() == before
    await place.kill_node("n1")
    await place.start_node("n1")
    assert (await await_ready(place, NODES, 20)).complete
    assert await incarnation() != before


async def test_probes_go_through_links(place: LocalPlace) -> None:
    assert await place.probe_link(Link("n1", "n2"), 1.0)
    await place.set_cuts([Link("n1", "n2")])
    assert not await place.probe_link(Link("n1", "n2"), 0.2)
    assert await place.probe_link(Link("n2", "n1"), 1.0)


async def test_an_isolated_leader_is_replaced_and_the_cluster_mends(place: LocalPlace) -> None:
    statuses = [await place.system.status(place.address(node), 1.0) for node in NODES]
    old = next(status for status in statuses if status.leads)
    rest = [node for node in NODES if node != old.id]
    cuts = [link for node in rest for link in (Link(old.id, node), Link(node, old.id))]
    await place.set_cuts(cuts)
    assert (await await_ready(place, rest, 10)).complete
    statuses = [await place.system.status(place.address(node), 1.0) for node in rest]
    assert [status.leads for status in statuses].count(True) == 1
    assert min(status.term for status in statuses) > old.term
    assert set((await await_ready(place, [old.id], 1.0)).missing) == {old.id}
    await place.set_cuts([])
    assert (await await_ready(place, NODES, 10)).complete


async def test_nobody_there() -> None:
    lockd = Lockd()
    with pytest.raises(NodeUnreachable):
        await lockd.status(NOBODY, 0.5)
    with pytest.raises(NodeUnreachable):
        await lockd.connect(NOBODY, 0.5)
    assert not await lockd.ready(NOBODY, 0.5)
    assert not await lockd.probe(NOBODY, 0.5)


async def test_a_port_that_says_nothing_is_no_answer() -> None:
    connections = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    silent = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    lockd = Lockd()
    with pytest.raises(NodeUnreachable):
        await lockd.status(silent, 0.1)
    assert not await lockd.ready(silent, 0.1)
    assert not await lockd.probe(silent, 0.1)
    server.close()
    for writer in connections:
        writer.close()


def test_the_command_of_a_node(tmp_path: Path) -> None:
    view = NodeView("n1", Address("127.0.0.1", 7001), {"n2": Address("127.0.0.1", 7102)}, tmp_path)
    argv = list(Lockd().launch(view).argv)
    assert argv[0] == sys.executable
    serves = ["serve", "--id", "n1", "--listen", "127.0.0.1:7001", "--peer", "n2=127.0.0.1:7102"]
    expected = [*serves, "--data", str(tmp_path), "--applied", str(view.applied), "--insecure"]
    assert argv[argv.index("serve") :] == expected


def test_nodes_that_others_can_reach_share_a_secret_of_the_run(tmp_path: Path) -> None:
    system = Lockd()
    launches = [system.launch(NodeView(f"n{i}", Address("0.0.0.0", 7001), {}, tmp_path)) for i in (1, 2)]
    assert not any("--insecure" in launch.argv for launch in launches)
    one, other = (launch.env["LOCKD_SECRET"] for launch in launches)
    assert one == other
    assert len(one) >= 16
    assert Lockd().launch(NodeView("n1", Address("0.0.0.0", 7001), {}, tmp_path)).env["LOCKD_SECRET"] != one


async def test_a_mutant_runs_in_place_of_the_true_node(tmp_path: Path) -> None:
    place = LocalPlace(Lockd(mutant="every-node-grants"), NODES, tmp_path)
    await place.start()
    try:
        readiness = await await_ready(place, NODES, 20)
        assert readiness.complete, readiness.describe()
        clients = [await place.system.connect(place.address(node), 2.0) for node in NODES]
        outcomes = [await client.acquire("a", 5_000, 0) for client in clients]
        assert [outcome.type for outcome in outcomes] == ["ok"] * 3, "which the true node never does"
        for client in clients:
            await client.close()
    finally:
        await place.close()
