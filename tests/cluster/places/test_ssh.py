"""The SSH place with real hosts (containers with sshd): one cluster for most tests, which leave it whole."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest
import pytest_asyncio

from cluster.node.client import Client
from cluster.places import agent_links
from cluster.places.base import (
    Capability,
    Clock,
    ClockSetting,
    DiskMode,
    Limits,
    Link,
    PlaceError,
    ProcessState,
    Shaping,
)
from cluster.places.ssh import estates
from cluster.places.ssh.connection import Connection
from cluster.places.ssh.hosts import Host
from cluster.places.ssh.place import SshPlace
from cluster.readiness import await_ready
from cluster.systems.base import Launch, NodeView
from cluster.systems.lockd import Lockd, LockdClient
from nemesis.clocks import read_closely
from tests import ssh_hosts
from tests.ssh_hosts import ADMIN, PLAIN, Lab, as_user

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

NODES = ("n1", "n2", "n3")
LINKS = {Link(a, b) for a in NODES for b in NODES if a != b}
N1_ALONE = {link for link in LINKS if "n1" in link}

PROBE_S = 1.0
READY_S = 60
#: For clusters beside the shared one.
OTHER_PORT = 7520


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three hosts, with sshd at a port that isn't the usual one."""
    with ssh_hosts.lab(tmp_path_factory.mktemp("hosts"), 3, user=ADMIN, port=2222) as made:
        yield made


async def open_place(
    folder: Path,
    hosts: Collection[Host],
    *,
    packet_filter: str | None = None,
    equipment: Collection[Capability] = SshPlace.capabilities,
) -> SshPlace:
    nodes = NODES[: len(hosts)]
    place = SshPlace(Lockd(), nodes, folder, hosts=tuple(hosts), packet_filter=packet_filter)
    place.equip(equipment)
    await place.start()
    await ready(place)
    return place


async def ready(place: SshPlace) -> None:
    readiness = await await_ready(place, place.nodes, READY_S)
    if not readiness.complete:
        await place.close()
        raise AssertionError(readiness.describe())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SshPlace]:
    place = await open_place(tmp_path_factory.mktemp("ssh"), lab.hosts)
    try:
        yield place
    finally:
        await place.close()
    assert lab.all_left() == []
    assert estates.find() == []


@pytest_asyncio.fixture(loop_scope="module")
async def place(shared: SshPlace) -> AsyncIterator[SshPlace]:
    """The shared cluster, whole before and after."""
    yield shared
    await shared.set_cuts([])
    await shared.cut_clients([])
    await shared.shape_links({})
    for node in NODES:
        await shared.resume_node(node)
        await shared.start_node(node)
    await ready(shared)


async def cut_links(place: SshPlace) -> set[Link]:
    """The links that let no probe through."""
    links = sorted(Link(a, b) for a in place.nodes for b in place.nodes if a != b)
    passed = await asyncio.gather(*(place.probe_link(link, PROBE_S) for link in links))
    return {link for link, answered in zip(links, passed, strict=True) if not answered}


async def incarnation(place: SshPlace, node: str) -> int:
    return (await place.system.status(place.address(node), 2)).incarnation


async def node_client(place: SshPlace, node: str) -> Client:
    """As clients are, over their way."""
    client = await place.system.connect(place.client_address(node), 1)
    assert isinstance(client, LockdClient)
    return client._client


# ---- what is there while a run goes on


async def test_nodes_run_as_the_user_and_agents_as_root(place: SshPlace, lab: Lab) -> None:
    for number, node in enumerate(NODES):
        listed = lab.run(
            number, "ps -ww -eo user:20,args | grep -E 'cluster.(faulty|node|places.ssh.agent) ?' | grep -v grep"
        )
        runs = {line.split()[0] for line in listed.splitlines() if f"serve --id {node}" in line}
        assert runs == {ADMIN}
        assert [line for line in listed.splitlines() if line.startswith("root") and "ssh.agent" in line]
        assert lab.run(number, f"stat -c '%U %a' /home/{ADMIN}/.fencepost/{place.run}").split() == [ADMIN, "700"]
        assert f"table inet fencepost_{place.run}" in lab.run(number, "nft list tables")


async def test_what_a_run_has_is_recorded_before_it_is_there(place: SshPlace) -> None:
    (estate,) = estates.find()
    assert (estate.run, estate.folder) == (place.run, place._folder)
    assert [str(host) for host in estate.hosts.values()] == [str(host) for host in place._hosts.values()]
    assert estate.harness is not None
    assert estate.harness.alive()


async def test_kill_and_start_again_with_its_data(place: SshPlace) -> None:
    before, address = await incarnation(place, "n1"), place.address("n1")
    await place.kill_node("n1")
    await place.kill_node("n1")
    assert await place.state("n1") is ProcessState.DEAD
    assert not await place.system.ready(address, 0.5)
    assert re.search(r"n1 was ended by SIGKILL \(pid \d+\); its log ends:", await place.account("n1"))
    assert await place.read_data("n1")
    await place.start_node("n1")
    await ready(place)
    assert await incarnation(place, "n1") != before
    await place.start_node("n1")
    assert place.address("n1") == address


async def test_pause_and_resume_and_stop(place: SshPlace, lab: Lab) -> None:
    before = await incarnation(place, "n2")
    await place.pause_node("n2")
    assert await place.state("n2") is ProcessState.PAUSED
    assert lab.run(1, "ps -ww -eo stat,args | grep 'serve --id n2' | grep -v grep").startswith("T")
    assert not await place.system.probe(place.address("n2"), 0.3)
    await place.resume_node("n2")
    assert await place.state("n2") is ProcessState.RUNNING
    assert await incarnation(place, "n2") == before
    await place.pause_node("n2")
    await place.stop_node("n2")
    assert "n2 exited with code 0" in await place.account("n2")
    with pytest.raises(PlaceError, match="a dead node can't be paused: n2 exited with code 0"):
        await place.pause_node("n2")


# ---- links


async def test_exactly_the_links_that_are_named_are_cut(place: SshPlace) -> None:
    for cuts in ({Link("n1", "n2")}, N1_ALONE, LINKS, set()):
        await place.set_cuts(cuts)
        assert await cut_links(place) == cuts
    with pytest.raises(PlaceError, match="there is no link n1->n9"):
        await place.set_cuts([Link("n1", "n9")])


async def test_a_cut_outlives_the_node_and_ends_when_nobody_renews_it(
    place: SshPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_links, "CUT_LASTS_S", 6.0)
    monkeypatch.setattr(agent_links, "RENEWAL_INTERVAL_S", 1.0)
    await place._agents.close()
    await place.set_cuts([])
    await place.set_cuts(N1_ALONE)
    await place.kill_node("n1")
    await place.start_node("n1")
    deadline = time.monotonic() + READY_S
    while not await place.system.probe(place.address("n1"), 1):
        assert time.monotonic() < deadline
    assert await cut_links(place) == N1_ALONE
    await place._agents.close()
    deadline = time.monotonic() + 15
    while await cut_links(place):
        assert time.monotonic() < deadline, "it ends by itself"
    await place.set_cuts([])


async def test_clients_are_cut_off_alone(place: SshPlace) -> None:
    address = place.client_address("n1")
    assert address != place.address("n1"), "who asks past the fault goes through SSH"
    client = await node_client(place, "n1")
    try:
        await client.ping()
        await place.cut_clients(["n1"])
        with pytest.raises(TimeoutError):
            await client.ping()
        assert not await place.system.probe(address, 0.5)
        assert await place.system.probe(place.address("n1"), 2)
        assert await place.system.probe(place.client_address("n2"), 2)
        assert await cut_links(place) == set()
        await place.cut_clients([])
        deadline = time.monotonic() + 10
        while not await place.system.probe(address, 1):
            assert time.monotonic() < deadline
    finally:
        await client.close()


async def test_links_are_slow_and_reset(place: SshPlace) -> None:
    link = Link("n1", "n2")
    await place.shape_links({link: Shaping(delay_ms=(300, 300))})
    began = time.monotonic()
    assert await place.probe_link(link, 5)
    assert time.monotonic() - began >= 0.3
    await place.shape_links({})
    assert (await place.link_counts(link)).forwarded_bytes > 0
    assert await place.reset_links(LINKS) > 0


# ---- clocks, disks, data, limits, logs


@pytest.mark.parametrize("clock", list(Clock))
async def test_clocks_are_turned(place: SshPlace, clock: Clock) -> None:
    async def ahead(node: str) -> float:
        return (await read_closely(place, node, clock)).ahead_ns / 1e9

    before, other = await ahead("n1"), await ahead("n2")
    await place.turn_clock("n1", clock, ClockSetting(5_000_000_000))
    assert await ahead("n1") - before == pytest.approx(5, abs=0.3)
    assert await ahead("n2") - other == pytest.approx(0, abs=0.3)
    await place.true_clock("n1", clock)
    assert await ahead("n1") - before == pytest.approx(5 if clock is Clock.LEASE else 0, abs=0.3)


async def test_disks_stall_and_work_again(place: SshPlace) -> None:
    for node in NODES:
        await place.break_disk(node, DiskMode.STALL)
    client = await place.system.connect(place.client_address("n1"), 1)
    assert (await client.acquire("stalled", 1000, 0)).type != "ok"
    await client.close()
    assert any([(await place.disk_report(node)).hits for node in NODES])
    for node in NODES:
        await place.break_disk(node, None)
    await ready(place)


async def test_data_is_read_and_replaced(place: SshPlace, lab: Lab) -> None:
    with pytest.raises(PlaceError, match="n3 runs: its data can't be replaced"):
        await place.replace_data("n3", {})
    await place.kill_node("n3")
    data = await place.read_data("n3")
    assert data
    await place.replace_data("n3", {"other/file": b"\x00\xff"})
    home = f"/home/{ADMIN}/.fencepost/{place.run}/node/data"
    assert lab.run(2, f"stat -c %U {home}/other/file").split() == [ADMIN]
    assert await place.read_data("n3") == {"other/file": b"\x00\xff"}
    await place.replace_data("n3", data)
    await place.start_node("n3")
    await ready(place)


async def test_limits_hold_and_end(place: SshPlace) -> None:
    await place.starve_node("n2", Limits(cpu=0.05))
    usage = await place.usage("n2")
    assert usage.limits == Limits(0.05)
    assert usage.cpu_ns > 0
    await place.starve_node("n2", Limits())
    assert (await place.usage("n2")).limits == Limits()


async def test_logs_are_read_while_they_are_written(place: SshPlace) -> None:
    _, end = await place.read_log("n3", -1)
    assert await place.read_log("n3", end) == (b"", end)
    await place.stop_node("n3")
    text, later = await place.read_log("n3", end)
    assert b"event=stopped" in text
    assert later == end + len(text)


# ---- the connection


async def test_a_lost_connection_is_made_again_and_told(place: SshPlace, lab: Lab) -> None:
    told: list[str] = []
    place.tell_to(told.append)
    before = await incarnation(place, "n1")
    await place.set_cuts(N1_ALONE)
    lab.drop_connections(0)
    assert await place.state("n1") is ProcessState.RUNNING
    assert await cut_links(place) == N1_ALONE
    await place.set_cuts([])
    assert await cut_links(place) == set()
    assert await incarnation(place, "n1") == before
    (words,) = told
    assert re.fullmatch(
        rf"n1: the SSH connection to {ADMIN}@[\d.]+:2222 was lost, and made again within [\d.]+ s", words
    )


async def test_a_host_that_is_gone_is_named(place: SshPlace, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    from cluster.places.ssh import connection, links

    monkeypatch.setattr(links, "AGAIN_BUDGET_S", 1.0)
    monkeypatch.setattr(connection, "RECONNECT_BUDGET_S", 0.5)
    monkeypatch.setattr(connection, "CONNECT_BUDGET_S", 1.0)
    assert await place.lost() is None
    lab.containers[2].pause()
    place._nodes["n3"].connection._drop()
    try:
        lost = await place.lost()
        assert lost is not None
        assert re.match(rf"a host can't be reached any more, .*: n3 on {ADMIN}@[\d.]+:2222 \(", lost)
        with pytest.raises(PlaceError, match="the agent of n3 can't be reached"):
            await place.kill_node("n3")
        assert await place.state("n1") is ProcessState.RUNNING
    finally:
        lab.containers[2].unpause()
    monkeypatch.undo()
    assert await place.lost() is None


def refusal(host: Host) -> str:
    connection = Connection(host)
    try:
        with pytest.raises(PlaceError) as refused:
            connection.connect()
        return str(refused.value)
    finally:
        connection.close()


async def test_a_host_that_nobody_knows_is_refused_with_the_line_to_add(lab: Lab, tmp_path: Path) -> None:
    host = replace(lab.hosts[0], known_hosts=tmp_path / "known" / "hosts")
    told = refusal(host)
    (line,) = [line for line in lab.hosts[0].known_hosts.read_text().splitlines() if host.address in line]
    assert told.splitlines()[-1] == line
    assert f"add this line to {host.known_hosts}, or accept keys of new hosts with --accept-new-host-keys" in told
    accepting = Connection(host, accept_new=True)
    accepting.connect()
    accepting.close()
    assert host.known_hosts.read_text() == f"{line}\n"
    knowing = Connection(host)
    knowing.connect()
    knowing.close()


async def test_a_host_that_shows_another_key_is_always_refused(lab: Lab, tmp_path: Path) -> None:
    host = replace(lab.hosts[0], known_hosts=tmp_path / "known_hosts")
    other = paramiko.ECDSAKey.generate()
    before = f"[{host.address}]:2222 {other.get_name()} {other.get_base64()}\n"
    host.known_hosts.write_text(before)
    told = refusal(host)
    assert f"the host key of {host} has changed: known is ecdsa-sha2-nistp256 SHA256:" in told
    assert f"ssh-keygen -f {host.known_hosts} -R '[{host.address}]:2222'" in told
    with pytest.raises(PlaceError, match="has changed"):
        Connection(host, accept_new=True).connect()
    assert host.known_hosts.read_text() == before


async def test_who_is_not_let_in_is_told_how_to_be(lab: Lab, tmp_path: Path) -> None:
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "other"))
    told = refusal(replace(lab.hosts[0], key=tmp_path / "other"))
    assert f"did not let {ADMIN} in with the key {tmp_path / 'other'}: name the right `user` and `key`" in told
    assert "did not let nobody-there in" in refusal(replace(lab.hosts[0], user="nobody-there"))
    paramiko.ECDSAKey.generate().write_private_key_file(str(tmp_path / "locked"), password="secret")
    assert "has a passphrase; give it to an SSH agent" in refusal(replace(lab.hosts[0], key=tmp_path / "locked"))
    assert "can't be reached: Connection refused" in refusal(replace(lab.hosts[0], port=2223))


@pytest.mark.usefixtures("place")
async def test_what_hosts_lack_is_told_of_all_at_once(lab: Lab) -> None:
    hosts = (replace(lab.hosts[0], python="python9"), lab.hosts[1], replace(lab.hosts[2], node_port=OTHER_PORT))
    said: list[str] = []
    with pytest.raises(PlaceError) as refused:
        SshPlace.prepare_hosts(hosts, said.append, accept_new=False)
    first, second = str(refused.value).splitlines()
    assert f"{hosts[0]} has no python9: install Python 3.11 or newer" in first
    assert f"{hosts[1]}: port 7420 is in use" in second
    assert re.search(r"Python 3\.\d+\.\d+ on x86_64, Linux .*; sudo; packet filter: nft, iptables", said[-1])


@pytest.mark.slow
async def test_without_root_what_needs_it_is_refused_and_the_rest_works(lab: Lab, tmp_path: Path) -> None:
    hosts = [replace(host, node_port=OTHER_PORT) for host in as_user(lab, PLAIN)[:1]]
    with pytest.raises(PlaceError, match=r"cuts and wall clocks need root: the user is not root, and sudo asks for a"):
        await open_place(tmp_path / "refused", hosts)
    with pytest.raises(PlaceError, match="sudo is not to be used"):
        await open_place(tmp_path / "refused", [replace(hosts[0], sudo=False)])
    place = await open_place(tmp_path / "works", hosts, equipment=[Capability.KILL, Capability.PAUSE])
    try:
        await place.pause_node("n1")
        assert await place.state("n1") is ProcessState.PAUSED
        with pytest.raises(PlaceError, match="no packet filter may be used here"):
            await place._agents.ask("n1", "block", seconds=1, lost=["192.0.2.1"])
    finally:
        await place.close()
    assert place.run not in "".join(lab.left(0))


# ---- the end


@pytest.mark.slow
async def test_root_closes_with_logs_and_data_and_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    """With iptables, for hosts without nft."""
    hosts = [replace(host, node_port=OTHER_PORT) for host in as_user(lab, "root")[:2]]
    place = await open_place(tmp_path, hosts, packet_filter="iptables")
    try:
        for cuts in ({Link("n1", "n2")}, {Link("n1", "n2"), Link("n2", "n1")}, set()):
            await place.set_cuts(cuts)
            assert await cut_links(place) == cuts
        assert f"FENCEPOST-{place.run.upper()}" in lab.run(0, "iptables-save")
        await place.pause_node("n1")
    finally:
        await place.close()
        await place.close()
    assert not [line for number in (0, 1) for line in lab.left(number) if place.run in line.lower()]
    for node in ("n1", "n2"):
        home = tmp_path / "nodes" / node
        assert "event=started" in (home / "node.log").read_text()
        assert "filtering with iptables" in (home / "agent.log").read_text()
        assert any((home / "data").iterdir())
    assert [estate for estate in estates.find() if estate.run == place.run] == []


class NoLicence(Lockd):
    def launch(self, node: NodeView) -> Launch:
        if node.id == "n2":
            raise PlaceError("no licence for n2")
        return super().launch(node)


class Interrupted(Lockd):
    """Its testbed is interrupted when the hosts are about to start their nodes."""

    interrupt: Callable[[], object]

    def launch(self, node: NodeView) -> Launch:
        self.interrupt()
        return super().launch(node)


async def test_a_start_that_fails_or_is_cancelled_leaves_nothing(lab: Lab, tmp_path: Path) -> None:
    hosts = [replace(host, node_port=OTHER_PORT) for host in lab.hosts[:2]]
    place = SshPlace(NoLicence(), ("n1", "n2"), tmp_path, hosts=hosts)
    with pytest.raises(PlaceError, match="no licence for n2"):
        await place.start()
    assert place.run not in "".join(lab.all_left())
    system = Interrupted()
    place = SshPlace(system, ("n1", "n2"), tmp_path, hosts=hosts)
    starting = asyncio.create_task(place.start())
    begun: list[bool] = []

    def interrupt() -> None:
        begun.append(place.run in lab.run(0, f"ls /home/{ADMIN}/.fencepost"))
        starting.cancel()

    system.interrupt = interrupt
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert begun[0], "there was something to leave"
    assert place.run not in "".join(lab.all_left())
