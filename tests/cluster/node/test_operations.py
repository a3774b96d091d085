"""What people who run lockd use: the admin port, dumps, limits, membership from the command line, a clean hand-over."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from cluster.node import server, steward
from cluster.node.client import Reply, connect
from cluster.node.protocol import Ping
from cluster.node.wire import REQUEST_BYTES_MAX, frame
from tests.cluster.node.test_core import Script, cluster
from tests.cluster.node.test_server import LOCKD, RealCluster, free_ports, lockd
from tests.fuzz.targets import FakeTransport, QuietServer


@pytest.fixture
def three(tmp_path: Path) -> Iterator[RealCluster]:
    with closing(RealCluster(tmp_path, 3)) as made:
        yield made


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_the_admin_port_and_the_dumps(tmp_path: Path) -> None:
    [admin] = free_ports(1)
    extra = ["--admin", f"127.0.0.1:{admin}", "--snapshot-every", "10", "--insecure"]
    with closing(RealCluster(tmp_path, 1, extra)) as made:
        client = await made.serving("n1")
        for _ in range(4):
            token = (await client.acquire("a", 60_000)).token
            assert token is not None
            await client.release("a", token)
        await client.acquire("kept", 60_000)
        code, metrics = await asyncio.to_thread(get, admin, "/metrics")
        assert code == 200
        lines = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
        assert float(lines["lockd_grants_total"]) == 5
        assert float(lines["lockd_releases_total"]) == 4
        assert float(lines["lockd_held"]) == 1
        assert float(lines["lockd_leads"]) == 1
        assert float(lines["lockd_fsyncs_total"]) > 0
        assert await asyncio.to_thread(get, admin, "/health") == (200, '{"healthy": true, "leader": "n1"}')
        status = json.loads((await asyncio.to_thread(get, admin, "/status"))[1])
        assert status["applied"] == 10
        assert (await asyncio.to_thread(get, admin, "/"))[0] == 404
    log = [json.loads(line) for line in lockd("log", "dump", str(tmp_path / "n1")).stdout.splitlines()]
    assert [line["index"] for line in log] == list(range(6, 11)), "compacted behind half an interval"
    assert log[-1]["command"] == "Grant"
    snapshot, lock = [json.loads(line) for line in lockd("snapshot", "dump", str(tmp_path / "n1")).stdout.splitlines()]
    assert (snapshot["index"], snapshot["last_token"], snapshot["grants"]) == (10, 5, 5)
    assert lock == {"key": "kept", "token": 5, "lease_ms": 60_000}


def test_a_dump_names_each_result_and_token(tmp_path: Path) -> None:
    missing = lockd("log", "dump", str(tmp_path / "nowhere"))
    assert (missing.returncode, "name the data folder of a node" in missing.stderr) == (255, True)


async def test_an_admin_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with closing(RealCluster(tmp_path, 1)) as made:
        await made.serving("n1")
        command = [*LOCKD, "serve", "--id", "x", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "x")]
        [port] = free_ports(1)
        command[command.index("127.0.0.1:0")] = f"127.0.0.1:{port}"
        command += ["--insecure", "--admin", f"127.0.0.1:{made.ports['n1']}"]
        got = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
        assert got.returncode == 255
        assert "cannot serve the admin port" in got.stderr
        assert "Traceback" not in got.stderr


async def test_a_request_that_is_too_large_is_refused_at_its_length(three: RealCluster) -> None:
    await three.serving("n1")
    reader, writer = await asyncio.open_connection("127.0.0.1", three.ports["n1"])
    writer.write((REQUEST_BYTES_MAX + 1).to_bytes(4, "big"))
    assert f"the limit is {REQUEST_BYTES_MAX}".encode() in await reader.read()
    writer.close()


def test_waiters_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steward, "WAITERS_MAX", 2)
    net = cluster()
    scripts = [Script(net, i, "n1") for i in range(4)]
    scripts[0].acquire()
    for script in scripts[1:]:
        script.queue(wait_ms=60_000)
        net.run_for(20)
    assert scripts[3].wait() == ("fail", None)
    assert scripts[3].error() == "too-many-waiters"


async def test_members_and_leadership_from_the_command_line(three: RealCluster) -> None:
    client = await three.serving("n1")
    assert (await client.acquire("a", 60_000)).token == 1
    port = three.ports["n1"]
    three.join("n4")
    at = f"n4=127.0.0.1:{three.ports['n4']}"
    added = await asyncio.to_thread(lockd, "members", "add", at, node=port)
    assert (added.returncode, added.stdout) == (0, "n4 votes\n")
    listed = json.loads((await asyncio.to_thread(lockd, "members", "list", "--json", node=port)).stdout)
    assert [(one["id"], one["voter"]) for one in listed] == [(f"n{i}", True) for i in range(1, 5)]
    assert await (await three.serving("n4")).inspect("a") == Reply("ok", token=1)
    moved = await asyncio.to_thread(lockd, "transfer", "n4", node=port)
    assert moved.stdout == "n4 was asked to lead\n"
    async with asyncio.timeout(5):
        while await three.leader() != "n4":
            await asyncio.sleep(0.02)
    removed = await asyncio.to_thread(lockd, "members", "remove", "n4", node=port)
    assert (removed.returncode, removed.stdout) == (0, "n4 is no member any more\n")
    assert await (await three.serving("n2")).inspect("a") == Reply("ok", token=1)
    wrong = await asyncio.to_thread(lockd, "members", "add", "n5", node=port)
    assert wrong.returncode == 254


async def test_a_leader_that_stops_hands_over_first(three: RealCluster) -> None:
    """No election timeout passes: the others serve again at once."""
    await three.serving("n1")
    leader = await three.leader()
    other = next(node for node in three.ports if node != leader)
    client = await three.serving(other)
    term = (await client.status())["term"]
    three.processes[leader].send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(three.processes[leader].wait, 10) == 0
    status = await client.status()
    assert status["term"] == term + 1
    assert status["leader"] not in (None, leader)


async def test_only_who_knows_the_secret_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse battery staple\n")
    with closing(RealCluster(tmp_path, 3, ["--secret-file", str(secret)])) as made:
        port = made.ports["n1"]
        monkeypatch.setenv("LOCKD_SECRET", "correct horse battery staple")
        async with asyncio.timeout(20):
            while (got := await asyncio.to_thread(lockd, "acquire", "a", "--lease", "1m", node=port)).returncode:
                await asyncio.sleep(0.1)
        assert got.stdout == "1\n", "the nodes found each other"
        monkeypatch.setenv("LOCKD_SECRET", "another secret of some length")
        got = await asyncio.to_thread(lockd, "release", "a", "1", node=port)
        assert (got.returncode, "refused: the other side does not know this cluster's secret" in got.stderr) == (
            1,
            True,
        )
        monkeypatch.delenv("LOCKD_SECRET")
        got = await asyncio.to_thread(lockd, "release", "a", "1", node=port)
        assert (got.returncode, "the connection must begin with a proof of it" in got.stderr) == (1, True)
        got = await asyncio.to_thread(lockd, "inspect", "a", "--secret-file", str(secret), node=port)
        assert (got.returncode, got.stdout) == (0, "held under token 1\n")
        await (await connect("127.0.0.1", port, timeout_s=5)).ping()
        client = await connect("127.0.0.1", port, timeout_s=5, secret=b"correct horse battery staple")
        assert await client.inspect("a") == Reply("ok", token=1)


async def test_a_secret_where_none_is_asked_for_is_named(three: RealCluster) -> None:
    await three.serving("n1")
    client = await connect("127.0.0.1", three.ports["n1"], timeout_s=5, secret=b"correct horse battery staple")
    reply = await client.inspect("a")
    assert reply == Reply("fail", error="this node asks for no secret; connect without one")


def test_silent_connections_lock_nobody_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At the limit the oldest that never said a word goes; who has spoken stays, and only then is anybody refused."""
    quiet = QuietServer(tmp_path, None)
    monkeypatch.setattr(quiet, "connections_max", 3)
    transports: list[FakeTransport] = []

    def connect_one(*, speaks: bool) -> None:
        connection, transport = server.Connection(quiet, len(transports) + 1), FakeTransport()
        transports.append(transport)
        connection.connection_made(transport)
        if speaks:
            connection.data_received(frame(Ping()))

    for speaks in (True, False, False, True, True):
        connect_one(speaks=speaks)
    assert [transport.closed for transport in transports] == [False, True, True, False, False]
    connect_one(speaks=False)
    assert [transport.closed for transport in transports[:5]] == [False, True, True, False, False]
    assert b"3 connections are open, which is the limit" in transports[5].written
    quiet._storage.close()


async def test_a_connection_that_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(server, "INTRODUCTION_S_MAX", 0.2)
    monkeypatch.setattr(QuietServer, "call_later", server.Server.call_later)
    quiet = QuietServer(tmp_path, None)
    connection, transport = server.Connection(quiet, 1), FakeTransport()
    connection.connection_made(transport)
    spoke, other = server.Connection(quiet, 2), FakeTransport()
    spoke.connection_made(other)
    spoke.data_received(frame(Ping()))
    async with asyncio.timeout(5):
        while not transport.closed:
            await asyncio.sleep(0.01)
    assert b"nothing was said within 0.2 s" in transport.written
    assert not other.closed
    quiet._storage.close()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["release", "a", "99999999999999999999999"], 254, "a token is a number from 0 to"),
        (["acquire", "k" * 100_000, "--lease", "1s"], 254, "a key has 1 to 512 bytes, this one has 100000"),
        (["acquire", b"\xff\xfe", "--lease", "1s"], 254, "a key is Unicode text"),
        (["members", "remove", "nx"], 254, "nx is no member of this cluster"),
    ],
)
async def test_what_can_not_be_asked_is_refused_in_one_line(
    three: RealCluster, arguments: list[str | bytes], code: int, message: str
) -> None:
    await three.serving("n1")
    command = [*LOCKD, *arguments, "--node", f"127.0.0.1:{three.ports['n1']}"]
    got = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
    assert (got.returncode, message in got.stderr) == (code, True), got.stderr
    assert got.stderr.count("\n") == 1
