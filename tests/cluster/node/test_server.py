"""Real nodes: processes, sockets, disks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cluster.node.client import Client, Reply, connect
from cluster.node.messages import Append
from cluster.node.protocol import Acquire, Hello, Ping, Pong
from cluster.node.wire import FrameReader, frame

LOCKD = [sys.executable, "-m", "cluster.node"]


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class RealCluster:
    def __init__(self, folder: Path, size: int, extra: Sequence[str] = ()) -> None:
        self.folder, self.extra = folder, extra
        self.ports = dict(zip((f"n{i}" for i in range(1, size + 1)), free_ports(size), strict=True))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        for node in self.ports:
            self.start(node)

    def argv(self, node: str) -> list[str]:
        peers = [f"--peer={other}=127.0.0.1:{port}" for other, port in self.ports.items() if other != node]
        listen = f"127.0.0.1:{self.ports[node]}"
        return [
            *LOCKD,
            "serve",
            "--id",
            node,
            "--listen",
            listen,
            "--data",
            str(self.folder / node),
            *peers,
            *(self.extra or ["--insecure"]),
        ]

    def join(self, node: str) -> None:
        """Start one more node, which waits to be added."""
        [self.ports[node]] = free_ports(1)
        with (self.folder / f"{node}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen([*self.argv(node), "--join"], stderr=log)

    def start(self, node: str) -> None:
        with (self.folder / f"{node}.log").open("ab") as log:
            self.processes[node] = subprocess.Popen(self.argv(node), stderr=log)

    def kill(self, node: str) -> None:
        self.processes[node].kill()
        self.processes[node].wait()

    async def client(self, node: str, timeout_s: float = 5.0) -> Client:
        async with asyncio.timeout(20):
            while True:
                try:
                    return await connect("127.0.0.1", self.ports[node], timeout_s=timeout_s)
                except OSError:
                    await asyncio.sleep(0.02)

    async def serving(self, node: str) -> Client:
        """A client of `node`, once a linearizable read succeeds there."""
        client = await self.client(node)
        async with asyncio.timeout(20):
            while (await client.inspect("ready?")).type != "ok":
                await asyncio.sleep(0.02)
        return client

    async def leader(self) -> str:
        async with asyncio.timeout(20):
            while True:
                for node in self.ports:
                    if self.processes[node].poll() is None:
                        client = await self.client(node)
                        status = await client.status()
                        await client.close()
                        if status["role"] == "leader":
                            return node
                await asyncio.sleep(0.02)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def three(tmp_path: Path) -> Iterator[RealCluster]:
    with closing(RealCluster(tmp_path, 3)) as cluster:
        yield cluster


@pytest.fixture
async def one(tmp_path: Path) -> AsyncIterator[tuple[RealCluster, Client]]:
    with closing(RealCluster(tmp_path, 1)) as cluster:
        client = await cluster.serving("n1")
        yield cluster, client
        await client.close()


async def test_locks_survive_the_leader_and_every_node_serves(three: RealCluster) -> None:
    clients = [await three.serving(node) for node in three.ports]
    reply = await clients[0].acquire("a", 60_000)
    assert reply == Reply("ok", token=1)
    assert await clients[1].acquire("a", 1000) == Reply("fail", error="held")
    three.kill(await three.leader())
    client = await three.serving(next(n for n, p in three.processes.items() if p.poll() is None))
    assert await client.inspect("a") == Reply("ok", token=1)
    assert await client.release("a", 1) == Reply("ok")
    assert (await client.acquire("a", 1000)).token == 2


async def test_after_kill_of_all_nothing_acknowledged_is_lost(three: RealCluster) -> None:
    client = await three.serving("n2")
    tokens = [(await client.acquire(f"k{i}", 60_000)).token for i in range(20)]
    for node in three.ports:
        three.kill(node)
    for node in three.ports:
        three.start(node)
    client = await three.serving("n3")
    assert [(await client.inspect(f"k{i}")).token for i in range(20)] == tokens
    assert (await client.acquire("next", 1000)).token == 21


async def test_sigterm_stops_a_node_cleanly(one: tuple[RealCluster, Client], tmp_path: Path) -> None:
    cluster, client = one
    assert (await client.acquire("a", 60_000)).token == 1
    cluster.processes["n1"].send_signal(signal.SIGTERM)
    assert cluster.processes["n1"].wait(10) == 0
    assert "event=stopped" in (tmp_path / "n1.log").read_text()
    with pytest.raises(ConnectionError):
        await client.ping()
    assert (await client.acquire("b", 1000)) == Reply("fail", error="not-connected")
    cluster.start("n1")
    assert (await (await cluster.serving("n1")).inspect("a")).token == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        (1 << 30).to_bytes(4, "big") + bytes(1000),
        (5).to_bytes(4, "big") + b"\xc1\xc1\xc1\xc1\xc1",
        (2).to_bytes(4, "big") + b"\x91\xa0",
        frame(Append(99, 0, 0, (), 5, 1)),
        frame(Hello("n9", "another")),
        os.urandom(5000),
    ],
    ids=["http", "gigabyte", "no-msgpack", "no-message", "no-hello", "stranger", "noise"],
)
async def test_garbage_is_answered_with_an_error_and_the_node_lives(
    one: tuple[RealCluster, Client], garbage: bytes
) -> None:
    cluster, client = one
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports["n1"])
    writer.write(garbage)
    async with asyncio.timeout(5):
        answer = await reader.read()
    assert b"bad-request: " in answer
    writer.close()
    assert (await client.acquire("a", 1000)).type == "ok"
    assert (await client.status())["term"] == 1


async def test_a_client_that_sends_its_frame_byte_by_byte_is_served(one: tuple[RealCluster, Client]) -> None:
    cluster, _ = one
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.ports["n1"])
    for byte in frame(Ping()):
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.001)
    [body] = FrameReader().feed(await reader.read(100))
    assert body == frame(Pong())[4:]
    writer.close()


async def test_a_client_that_closes_leaves_no_ghost(three: RealCluster) -> None:
    """At once; or a little later without reading; fifty times each, through a node that has to forward."""
    leader = await three.leader()
    node = next(n for n in three.ports if n != leader)
    watcher = await three.serving(node)
    keys = [f"ghost-{i}" for i in range(100)]
    for i, key in enumerate(keys):
        client = await three.client(node)
        call = asyncio.ensure_future(client.acquire(key, 60_000))
        await asyncio.sleep(0)
        client._transport.pause_reading()
        await asyncio.sleep(0 if i % 2 else 0.02)
        await client.close()
        assert (await call).type == "info"
    async with asyncio.timeout(1):
        while any([(await watcher.inspect(key)).token is not None for key in keys]):
            await asyncio.sleep(0.02)


async def test_a_client_that_reads_its_grant_and_does_not_acknowledge_leaves_no_ghost(three: RealCluster) -> None:
    leader = await three.leader()
    node = next(n for n in three.ports if n != leader)
    watcher = await three.serving(node)
    keys = [f"unacknowledged-{i}" for i in range(50)]
    for key in keys:
        reader, writer = await asyncio.open_connection("127.0.0.1", three.ports[node])
        writer.write(frame(Acquire(1, key, 60_000, 0)))
        frames = FrameReader()
        [body] = frames.feed(await reader.read(100))
        assert b"GrantedTo" in body
        writer.close()
    async with asyncio.timeout(1):
        while any([(await watcher.inspect(key)).token is not None for key in keys]):
            await asyncio.sleep(0.02)


async def test_a_waiting_acquire_that_is_given_up_is_cancelled(one: tuple[RealCluster, Client]) -> None:
    cluster, holder = one
    assert (await holder.acquire("a", 60_000)).type == "ok"
    other = await cluster.client("n1", timeout_s=0.3)
    assert await other.acquire("a", 1000, wait_ms=100) == Reply("fail", error="timeout")
    waiting = asyncio.ensure_future(other.acquire("a", 1000, wait_ms=60_000))
    await asyncio.sleep(0.05)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    async with asyncio.timeout(5):
        while (await holder.status())["waiters"]:
            await asyncio.sleep(0.01)


async def test_a_paused_node_answers_nobody_and_says_so_in_time(three: RealCluster) -> None:
    node = next(n for n in three.ports if n != "n1")
    await three.serving(node)
    client = await three.client(node, timeout_s=0.3)
    three.processes[node].send_signal(signal.SIGSTOP)
    try:
        assert await client.acquire("a", 1000) == Reply("info", error="timeout")
        assert await client.release("a", 1) == Reply("info", error="timeout")
        with pytest.raises(TimeoutError):
            await client.status()
    finally:
        three.processes[node].send_signal(signal.SIGCONT)


def lockd(*arguments: str, node: int | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | ({"LOCKD_NODE": f"127.0.0.1:{node}"} if node else {})
    return subprocess.run([*LOCKD, *arguments], capture_output=True, text=True, env=environment, timeout=60)


async def test_the_command_line(one: tuple[RealCluster, Client]) -> None:
    cluster, _ = one
    port = cluster.ports["n1"]
    got = await asyncio.to_thread(lockd, "acquire", "a", "--lease", "1m", node=port)
    assert (got.returncode, got.stdout) == (0, "1\n")
    got = await asyncio.to_thread(lockd, "acquire", "a", "--lease", "1m", "--wait", "50ms", "--json", node=port)
    assert (got.returncode, json.loads(got.stdout)) == (1, {"outcome": "fail", "error": "timeout", "token": None})
    got = await asyncio.to_thread(lockd, "inspect", "a", "--json", node=port)
    assert json.loads(got.stdout) == {"outcome": "ok", "token": 1, "local": False}
    got = await asyncio.to_thread(lockd, "release", "a", "2", node=port)
    assert (got.returncode, got.stderr) == (1, "lockd: refused: not-held\n")
    got = await asyncio.to_thread(lockd, "release", "a", "1", "--json", node=port)
    assert (got.returncode, json.loads(got.stdout)) == (0, {"outcome": "ok"})
    got = await asyncio.to_thread(lockd, "status", "--json", node=port)
    assert json.loads(got.stdout)["counters"]["grants"] == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["acquire", "a", "--lease", "ten"], 254, "'ten' is no duration; write 10s"),
        (["acquire", "a"], 254, "Missing option '--lease'"),
        (["acquire", "a", "--lease", "1s", "--node", "nowhere"], 254, "'nowhere' is no HOST:PORT"),
        (["acquire", "a", "--lease", "1s", "--node", "127.0.0.1:1"], 255, "no answer from 127.0.0.1:1"),
        (["unlock"], 254, "No such command 'unlock'"),
        (["serve", "--id", "n 1", "--listen", "127.0.0.1:1", "--data", "d"], 254, "'n 1' is no node name"),
        (["serve", "--id", "n1", "--listen", "x", "--data", "d"], 254, "'x' is no HOST:PORT"),
        (["serve", "--id", "n1", "--listen", "127.0.0.1:1", "--data", "d", "--peer", "n2"], 254, "no NAME=HOST:PORT"),
        (
            ["serve", "--id", "n1", "--listen", "127.0.0.1:1", "--data", "d", "--peer", "n1=127.0.0.1:2"],
            254,
            "--peer names this very node",
        ),
        (["serve", "--id", "n1", "--listen", "127.0.0.1:1", "--data", "."], 254, "or say --insecure to do without"),
        (
            ["serve", "--id", "n1", "--listen", "0.0.0.0:7000", "--data", ".", "--insecure"],
            254,
            "--insecure needs a loopback address, and 0.0.0.0 is none",
        ),
    ],
)
def test_a_mistake_is_named(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path / "d") if a in ("d", ".") else a for a in arguments]
    got = lockd(*arguments)
    flat = " ".join(got.stderr.replace("\u2502", " ").split())
    assert (got.returncode, message in flat) == (code, True), got.stderr
    assert "Traceback" not in got.stderr


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        got = lockd("serve", "--id", "n1", "--listen", at, "--data", str(tmp_path), "--insecure")
    assert (got.returncode, f"cannot listen on {at}" in got.stderr, "Traceback" in got.stderr) == (255, True, False)
