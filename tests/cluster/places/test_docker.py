"""The Docker place with real containers: one cluster for most tests, which leave it whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import time
from collections.abc import AsyncIterator, Collection, Iterable
from pathlib import Path

import pytest
import pytest_asyncio

from cluster.node.client import Client
from cluster.places import agent_links
from cluster.places.base import Capability, Clock, ClockSetting, DiskMode, Limits, Link, PlaceError, ProcessState
from cluster.places.docker import DockerPlace
from cluster.places.docker_engine import AGENT_ROLE, HARNESS_LABEL, NODE_ROLE, estates
from cluster.places.node_log import TAIL_LINES
from cluster.places.ownership import Harness
from cluster.places.packet_filter import NODE_PORT
from cluster.readiness import await_ready
from cluster.systems.base import Launch, NodeView
from cluster.systems.lockd import Lockd, LockdClient
from nemesis.clocks import read_closely
from tests.docker_engine import containers, engine, left

pytestmark = [pytest.mark.asyncio(loop_scope="module")]

NODES = ("n1", "n2", "n3")
LINKS = {Link(a, b) for a in NODES for b in NODES if a != b}
N1_ALONE = {link for link in LINKS if "n1" in link}

#: What a probe through a whole link takes at most on a loaded machine; one that is cut is waited for in full.
PROBE_S = 1.0

#: Run in a container: opens a connection to argv[1] and pings whenever it reads a line; says what became of it.
PINGER = """
import fcntl, socket, struct, sys, termios, time
from cluster.node.protocol import Ping
from cluster.node.wire import frame
there = socket.create_connection((sys.argv[1], 7420), 3)
def ping(seconds):
    there.sendall(frame(Ping()))
    there.settimeout(seconds)
    try:
        answer = there.recv(4096)
    except TimeoutError:
        answer = b""
    unacknowledged = struct.unpack("i", fcntl.ioctl(there, termios.TIOCOUTQ, b"    "))[0]
    print("answered" if answer else "silence", "unacknowledged" if unacknowledged else "acknowledged", flush=True)
ping(2)
for line in sys.stdin:
    ping(float(line))
"""


async def open_place(
    folder: Path, nodes: Iterable[str], *, packet_filter: str | None = None, equipment: Collection[Capability] = ()
) -> DockerPlace:
    engine()
    place = DockerPlace(Lockd(), tuple(nodes), folder, packet_filter=packet_filter)
    place.equip(equipment)
    await place.start()
    readiness = await await_ready(place, place.nodes, 30)
    if not readiness.complete:
        await place.close()
        raise AssertionError(readiness.describe())
    return place


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DockerPlace]:
    place = await open_place(tmp_path_factory.mktemp("docker"), NODES)
    try:
        yield place
    finally:
        await place.close()
    assert left(place.run) == []


@pytest_asyncio.fixture(loop_scope="module")
async def place(shared: DockerPlace) -> AsyncIterator[DockerPlace]:
    """The shared cluster, whole before and after."""
    yield shared
    await shared.set_cuts([])
    for node in NODES:
        await shared.resume_node(node)
        await shared.start_node(node)
    readiness = await await_ready(shared, NODES, 30)
    assert readiness.complete, readiness.describe()


async def cut_links(place: DockerPlace) -> set[Link]:
    """The links that let no probe through."""
    links = sorted(Link(a, b) for a in place.nodes for b in place.nodes if a != b)
    passed = await asyncio.gather(*(place.probe_link(link, PROBE_S) for link in links))
    return {link for link, answered in zip(links, passed, strict=True) if not answered}


async def incarnation(place: DockerPlace, node: str) -> int:
    return (await place.system.status(place.address(node), 2)).incarnation


class Pinger:
    """A connection between two nodes' networks that is none of ours, and none of a probe's."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @staticmethod
    @contextlib.asynccontextmanager
    async def open(place: DockerPlace, source: str, target: str) -> AsyncIterator[Pinger]:
        agent = containers(place.run, AGENT_ROLE)[source]
        host = place._node(target).network.inner.host
        process = await asyncio.create_subprocess_exec(
            *("docker", "exec", "-i", str(agent.id), "python3", "-c", PINGER, host),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        pinger = Pinger(process)
        try:
            assert await pinger.says() == "answered acknowledged"
            yield pinger
        finally:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()

    async def says(self) -> str:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), 15)).decode().strip()

    async def ping(self, seconds: float) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n".encode())
        return await self.says()


# ---- what is made


async def test_containers_have_few_rights_and_limits(place: DockerPlace) -> None:
    agents, nodes = containers(place.run, AGENT_ROLE), containers(place.run, NODE_ROLE)
    assert agents.keys() == nodes.keys() == set(NODES)
    for node in NODES:
        agent, host = agents[node].attrs["HostConfig"], nodes[node].attrs["HostConfig"]
        assert [right.removeprefix("CAP_") for right in agent["CapAdd"]] == ["NET_ADMIN"]
        assert not host["CapAdd"]
        assert host["NetworkMode"] == f"container:{agents[node].id}"
        assert host["CpuQuota"] > 0
        for config in (agent, host):
            assert config["CapDrop"] == ["ALL"]
            assert not config["Privileged"]
            assert config["Init"]
            assert config["Memory"] > 0
            assert config["PidsLimit"] > 0
        assert nodes[node].attrs["Config"]["User"] == f"{os.getuid()}:{os.getgid()}"
        published = agents[node].attrs["NetworkSettings"]["Ports"]
        assert {binding["HostIp"] for bindings in published.values() for binding in bindings} == {"127.0.0.1"}


async def test_everything_bears_who_made_it(place: DockerPlace, shared: DockerPlace) -> None:
    (estate,) = estates(engine(), place.run)
    assert (len(estate.containers), len(estate.networks)) == (6, 2)
    assert estate.harness == Harness.this()
    assert estate.folder == shared._folder
    for thing in (*estate.containers, *estate.networks):
        assert Harness.parse(thing.attrs["Labels"][HARNESS_LABEL]) == Harness.this()


async def test_the_network_leads_nowhere_else(place: DockerPlace) -> None:
    inner, outer = (engine().networks.get(f"fencepost-{place.run}-{use}") for use in ("nodes", "clients"))
    assert inner.attrs["Internal"]
    agents = containers(place.run, AGENT_ROLE)
    other = agents["n2"].attrs["NetworkSettings"]["Networks"][outer.name]["IPAddress"]
    dial = f"import socket; socket.create_connection(('{other}', {NODE_PORT}), 1)"
    assert agents["n1"].exec_run(["python3", "-c", dial]).exit_code == 1, "over the network for clients"


async def test_published_ports_lead_to_the_node(place: DockerPlace) -> None:
    for node in NODES:
        status = await place.system.status(place._node(node).network.published, 2)
        assert status.id == node


# ---- processes


async def test_kill_and_start_again_with_its_data_at_the_same_address(place: DockerPlace) -> None:
    before, address = await incarnation(place, "n1"), place.address("n1")
    await place.kill_node("n1")
    await place.kill_node("n1")
    assert await place.state("n1") is ProcessState.DEAD
    assert not await place.system.ready(address, 0.5)
    assert "n1 was ended by SIGKILL; its log ends:" in await place.account("n1")
    assert Link("n2", "n1") in await cut_links(place)
    assert any((place._folder / "nodes" / "n1" / "data").iterdir())
    await place.start_node("n1")
    assert place.address("n1") == address
    assert (await await_ready(place, NODES, 30)).complete
    assert await incarnation(place, "n1") != before


async def test_starting_a_running_node_changes_nothing(place: DockerPlace) -> None:
    before = await incarnation(place, "n2")
    await place.start_node("n2")
    assert await incarnation(place, "n2") == before


async def test_pause_and_resume(place: DockerPlace) -> None:
    before = await incarnation(place, "n2")
    await place.pause_node("n2")
    await place.pause_node("n2")
    assert await place.state("n2") is ProcessState.PAUSED
    assert containers(place.run, NODE_ROLE)["n2"].status == "paused"
    assert not await place.system.probe(place.address("n2"), 0.3)
    assert {link for link in LINKS if link.target == "n2"} == await cut_links(place)
    await place.resume_node("n2")
    await place.resume_node("n2")
    assert await place.state("n2") is ProcessState.RUNNING
    assert await incarnation(place, "n2") == before


async def test_a_paused_node_can_be_killed_and_stopped(place: DockerPlace) -> None:
    await asyncio.gather(place.pause_node("n1"), place.pause_node("n2"))
    await asyncio.gather(place.kill_node("n1"), place.stop_node("n2"))
    assert [await place.state(node) for node in ("n1", "n2")] == [ProcessState.DEAD] * 2
    assert "n1 was ended by SIGKILL" in await place.account("n1")
    assert "n2 exited with code 0" in await place.account("n2")


async def test_a_dead_node_is_not_paused(place: DockerPlace) -> None:
    await place.kill_node("n1")
    with pytest.raises(PlaceError, match="a dead node can't be paused: n1 was ended by SIGKILL"):
        await place.pause_node("n1")
    await place.resume_node("n1")
    assert await place.state("n1") is ProcessState.DEAD


async def test_a_node_that_dies_by_itself_is_noticed(place: DockerPlace) -> None:
    containers(place.run, NODE_ROLE)["n3"].kill("SIGUSR1")
    deadline = time.monotonic() + 5
    while await place.state("n3") is not ProcessState.DEAD:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    account = await place.account("n3")
    assert "n3 was ended by SIGUSR1" in account
    assert len(account.splitlines()) <= TAIL_LINES + 1


async def test_a_node_whose_end_was_interrupted_is_started_again(place: DockerPlace) -> None:
    before = await incarnation(place, "n1")
    killing = asyncio.create_task(place.kill_node("n1"))
    await asyncio.sleep(0.03)
    killing.cancel()
    await asyncio.wait({killing})
    await place.start_node("n1")
    assert (await await_ready(place, ["n1"], 30)).complete
    assert await incarnation(place, "n1") != before


# ---- links


async def test_a_node_is_starved_and_fed_again(place: DockerPlace) -> None:
    assert (await place.usage("n1")).limits == Limits()
    await place.starve_node("n1", Limits(cpu=0.02, memory=200 * 1024 * 1024))
    assert (await place.usage("n1")).limits == Limits(0.02, 200 * 1024 * 1024)
    burner = "import time; end = time.monotonic() + 2\nwhile time.monotonic() < end: pass"
    process = await asyncio.create_subprocess_exec(
        *("docker", "exec", str(containers(place.run, NODE_ROLE)["n1"].id), "python3", "-c", burner)
    )
    began, used = time.monotonic(), (await place.usage("n1")).cpu_ns
    await process.wait()
    assert ((await place.usage("n1")).cpu_ns - used) / 1e9 / (time.monotonic() - began) < 0.04
    await place.kill_node("n1")
    await place.start_node("n1")
    assert (await place.usage("n1")).limits == Limits(0.02, 200 * 1024 * 1024), "also of the next process"
    await place.starve_node("n1", Limits())
    assert (await place.usage("n1")).limits == Limits()
    with pytest.raises(PlaceError, match="limit"):
        await place.starve_node("n1", Limits(memory=6 * 1024 * 1024))  # less than it has
    await place.starve_node("n1", Limits())


async def test_exactly_the_links_that_are_named_are_cut(place: DockerPlace) -> None:
    assert await cut_links(place) == set()
    for cuts in ({Link("n1", "n2")}, N1_ALONE, {Link("n2", "n1"), Link("n3", "n1"), Link("n1", "n3")}, LINKS, set()):
        await place.set_cuts(cuts)
        assert await cut_links(place) == cuts


async def test_a_cut_outlives_kill_start_and_pause(place: DockerPlace) -> None:
    await place.set_cuts(N1_ALONE)
    await place.kill_node("n1")
    await place.start_node("n1")
    deadline = time.monotonic() + 10
    while not await place.system.probe(place.address("n1"), 1):
        assert time.monotonic() < deadline, await place.account("n1")
    assert await cut_links(place) == N1_ALONE
    await place.pause_node("n2")
    await place.set_cuts([Link("n3", "n2")])
    await place.resume_node("n2")
    assert await cut_links(place) == {Link("n3", "n2")}


async def test_what_is_not_there_can_not_be_cut(place: DockerPlace) -> None:
    for link in (Link("n1", "n9"), Link("n2", "n2")):
        with pytest.raises(PlaceError, match=f"there is no link {link.source}->{link.target}"):
            await place.set_cuts([link])
    with pytest.raises(PlaceError, match="there is no node n9"):
        await place.kill_node("n9")


async def test_one_way_cuts_let_the_other_way_flow(place: DockerPlace) -> None:
    await _one_way(place)


async def _one_way(place: DockerPlace) -> None:
    async with Pinger.open(place, "n1", "n2") as pinger:
        await place.set_cuts([Link("n2", "n1")])
        assert await pinger.ping(0.5) == "silence acknowledged", "n2 got the ping, and its answer is lost"
        await place.set_cuts([Link("n1", "n2")])
        assert (await pinger.ping(2)).startswith("answered"), "what n2 had answered before comes now"
        assert await pinger.ping(0.5) == "silence unacknowledged", "n2 does not get it"
        await place.set_cuts([Link("n1", "n2"), Link("n2", "n1")])
        assert await pinger.ping(0.5) == "silence unacknowledged"
        await place.set_cuts([])
        assert await pinger.ping(10) == "answered acknowledged", "TCP sends again what was lost"


async def test_a_cut_that_is_not_renewed_ends(place: DockerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    await _unrenewed(place, monkeypatch)


async def _unrenewed(place: DockerPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_links, "CUT_LASTS_S", 2.5)
    monkeypatch.setattr(agent_links, "RENEWAL_INTERVAL_S", 0.5)
    await place._agents.close()
    await place.set_cuts([])
    cuts = {Link("n1", "n2"), Link("n2", "n1")}
    await place.set_cuts(cuts)
    await asyncio.sleep(3)
    assert await cut_links(place) == cuts, "it is renewed"
    await place._agents.close()
    await asyncio.sleep(2.7)
    assert await cut_links(place) == set()
    await place.set_cuts([])


@pytest.mark.slow
async def test_iptables_does_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clients = [Capability.CUT_CLIENTS]
    place = await open_place(tmp_path, ("n1", "n2"), packet_filter="iptables", equipment=clients)
    try:
        for cuts in ({Link("n1", "n2")}, {Link("n1", "n2"), Link("n2", "n1")}, set()):
            await place.set_cuts(cuts)
            assert await cut_links(place) == cuts
        await _one_way(place)
        await _unrenewed(place, monkeypatch)
        await _clients_cut(place)
    finally:
        await place.close()
    assert "filtering with iptables" in (tmp_path / "nodes" / "n1" / "agent.log").read_text()


async def test_agents_answer_nobody_without_the_secret(place: DockerPlace) -> None:
    control = place._node("n1").network.control
    reader, writer = await asyncio.open_connection(control.host, control.port)
    writer.write(json.dumps({"secret": "guess", "do": "blocked"}).encode() + b"\n")
    assert await reader.read() == b""
    writer.close()


async def _clients_cut(place: DockerPlace) -> None:
    """In both directions, for clients alone."""
    address = place.client_address("n1")
    assert address != place.address("n1")
    client = await node_client(place, "n1")
    try:
        await client.ping()
        await place.cut_clients(["n1"])
        with pytest.raises(TimeoutError):
            await client.ping()
        assert not await place.system.probe(address, 0.5)
        assert await place.system.probe(place.address("n1"), 2), "we reach it all the same"
        assert await place.system.probe(place.client_address("n2"), 2)
        assert await cut_links(place) == set()
        await place.cut_clients([])
        deadline = time.monotonic() + 10
        while not await place.system.probe(address, 1):
            assert time.monotonic() < deadline
        with contextlib.suppress(TimeoutError):
            await client.ping()
        await client.ping()
    finally:
        await client.close()


async def node_client(place: DockerPlace, node: str) -> Client:
    """As clients are, over their way."""
    client = await place.system.connect(place.client_address(node), 1)
    assert isinstance(client, LockdClient)
    return client._client


# ---- clients, clocks, disks, logs


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def equipped(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DockerPlace]:
    place = await open_place(
        tmp_path_factory.mktemp("equipped"), ("n1", "n2", "n3"), equipment=DockerPlace.capabilities
    )
    try:
        yield place
    finally:
        await place.close()
    assert left(place.run) == []


async def test_clients_are_cut_off_alone(equipped: DockerPlace) -> None:
    await _clients_cut(equipped)


@pytest.mark.parametrize("clock", list(Clock))
async def test_clocks_are_turned(equipped: DockerPlace, clock: Clock) -> None:
    async def ahead(node: str) -> float:
        reading = await read_closely(equipped, node, clock)
        return reading.ahead_ns / 1e9

    before, other = await ahead("n1"), await ahead("n2")
    await equipped.turn_clock("n1", clock, ClockSetting(5_000_000_000))
    assert await ahead("n1") - before == pytest.approx(5, abs=0.2)
    assert await ahead("n2") - other == pytest.approx(0, abs=0.2), "its own alone, and not the machine's"
    await equipped.true_clock("n1", clock)
    if clock is Clock.WALL:
        assert await ahead("n1") - before == pytest.approx(0, abs=0.2)
    await equipped.turn_clock("n1", clock, ClockSetting(rate=2.0))
    begin = await ahead("n1")
    await asyncio.sleep(1)
    assert await ahead("n1") - begin == pytest.approx(1, abs=0.5)
    await equipped.true_clock("n1", clock)


async def test_a_process_that_is_started_again_has_the_true_time(equipped: DockerPlace) -> None:
    await equipped.turn_clock("n1", Clock.WALL, ClockSetting(60_000_000_000))
    await equipped.kill_node("n1")
    with pytest.raises(PlaceError, match="n1 is dead, and has no clock"):
        await equipped.turn_clock("n1", Clock.WALL, ClockSetting(1))
    await equipped.start_node("n1")
    assert (await await_ready(equipped, ["n1"], 30)).complete
    status = await equipped.system.status(equipped.address("n1"), 2)
    assert status.wall_ns is not None
    assert abs(status.wall_ns - time.time_ns()) < 2_000_000_000
    await equipped.true_clock("n1", Clock.WALL)


async def test_disks_stall_and_work_again(equipped: DockerPlace) -> None:
    for node in equipped.nodes:
        await equipped.break_disk(node, DiskMode.STALL)
    client = await equipped.system.connect(equipped.client_address("n1"), 1)
    assert (await client.acquire("stalled", 1000, 0)).type != "ok"
    await client.close()
    assert any([(await equipped.disk_report(node)).hits for node in equipped.nodes])
    for node in equipped.nodes:
        await equipped.break_disk(node, None)
    assert (await await_ready(equipped, equipped.nodes, 30)).complete


async def test_logs_are_read_while_they_are_written(equipped: DockerPlace) -> None:
    _, end = await equipped.read_log("n3", -1)
    assert await equipped.read_log("n3", end) == (b"", end)
    await equipped.stop_node("n3")
    text, later = await equipped.read_log("n3", end)
    assert b"event=stopped" in text
    assert later == end + len(text)
    await equipped.start_node("n3")
    assert (await await_ready(equipped, ["n3"], 30)).complete


# ---- the end


async def test_closing_leaves_logs_and_data_and_nothing_else(tmp_path: Path) -> None:
    place = await open_place(tmp_path, ("n1",))
    await place.pause_node("n1")
    await place.close()
    await place.close()
    assert left(place.run) == []
    assert "event=started" in (tmp_path / "nodes" / "n1" / "node.log").read_text()
    files = [path for path in (tmp_path / "nodes" / "n1" / "data").rglob("*") if path.is_file()]
    assert files
    assert {path.stat().st_uid for path in files} == {os.getuid()}


class NoProgram(Lockd):
    def launch(self, node: NodeView) -> Launch:
        return Launch(["/nowhere/lockd"]) if node.id == "n2" else super().launch(node)


class NoLicence(Lockd):
    def launch(self, node: NodeView) -> Launch:
        if node.id == "n2":
            raise PlaceError("no licence for n2")
        return super().launch(node)


async def test_a_program_that_there_is_not_is_told_of(tmp_path: Path) -> None:
    engine()
    place = DockerPlace(NoProgram(), ("n1", "n2"), tmp_path)
    await place.start()
    try:
        readiness = await await_ready(place, ["n2"], 20)
        assert re.search(r"n2 exited with code 127; .*\n.*/nowhere/lockd: not found", readiness.missing["n2"])
    finally:
        await place.close()


async def test_a_start_that_fails_leaves_nothing_but_logs(tmp_path: Path) -> None:
    engine()
    place = DockerPlace(NoLicence(), ("n1", "n2"), tmp_path)
    with pytest.raises(PlaceError, match="no licence for n2"):
        await place.start()
    assert left(place.run) == []
    assert (tmp_path / "nodes" / "n1" / "agent.log").exists()


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    engine()
    place = DockerPlace(Lockd(), NODES, tmp_path)
    starting = asyncio.create_task(place.start())
    deadline = time.monotonic() + 20
    while not left(place.run):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert left(place.run) == []


async def test_an_agent_without_a_working_filter_says_so(tmp_path: Path) -> None:
    engine()
    place = DockerPlace(Lockd(), ("n1",), tmp_path, packet_filter="none")
    with pytest.raises(PlaceError, match=r"the agent of n1 exited with code 1: .*no packet filter works here"):
        await place.start()
    assert left(place.run) == []


@pytest.mark.slow
async def test_twenty_clusters_in_a_row_leave_nothing(tmp_path: Path) -> None:
    networks = len(engine().networks.list())
    for number in range(20):
        place = await open_place(tmp_path / str(number), NODES)
        await place.set_cuts(N1_ALONE)
        await place.kill_node("n2")
        await place.close()
        assert left(place.run) == []
    assert len(engine().networks.list()) == networks
