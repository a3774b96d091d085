"""lockd beside etcd: cycles of acquire and release on three nodes of this machine, with real fsyncs.

A cycle of etcd is lease grant, lock, unlock, revoke, through its JSON gateway; or, with a lease that each client keeps,
lock and unlock. Hand-off is from the call of release to the next waiter's grant, ten clients at one lock. Compare the
systems within one run; numbers of two runs, or of two machines, say little.

python -m bench.lockd [--seconds S] [--applied]

With --applied it measures another thing, and only that: what it costs nodes to write down what they apply.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import psutil

from bench.etcd import EtcdClient
from cluster.node.client import Client, connect

CLIENTS = (1, 10, 50, 200)
HAND_OFF_CLIENTS = 10
APPLIED_CLIENTS = (1, 50)
#: Turns of each cluster, by which other work on the machine is evened out.
ROUNDS = 7
NODES = 3

#: Ignored by git, and on the disk that is to be measured; the system's folder for temporary files may be in memory.
BUILD = Path(__file__).parents[1] / "build"

T = TypeVar("T")
Cycle = Callable[[], Awaitable[None]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.lockd", description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each line is measured")
    parser.add_argument("--applied", action="store_true", help="what it costs nodes to write down what they apply")
    chosen = parser.parse_args() if __name__ == "__main__" else parser.parse_args(["--seconds", "2"])
    seconds = chosen.seconds
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-lockd-", dir=BUILD) as folder:
        if chosen.applied:
            asyncio.run(_measure_applied(Path(folder), seconds))
            return
        print(f"lockd: p50 of write + fdatasync here: {fsync_ms(Path(folder)):.2f} ms")
        print(f"{'system':<26} {'clients':>7} {'cycles/s':>9} {'p50 ms':>8} {'p99 ms':>8}")
        asyncio.run(_measure_lockd(Path(folder) / "lockd", seconds))
        if shutil.which("etcd"):
            asyncio.run(_measure_etcd(Path(folder) / "etcd", seconds))
        else:
            print("etcd: not installed (Debian: etcd-server), so there is nothing to compare with")


def fsync_ms(folder: Path) -> float:
    """The median of 200 small overwrites in a zero-filled file, each synced."""
    file = os.open(folder / "fsync", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(1 << 20), 0)
    os.fsync(file)
    times = []
    for i in range(200):
        started = time.perf_counter()
        os.pwrite(file, bytes(100), 100 * i)
        os.fdatasync(file)
        times.append(time.perf_counter() - started)
    os.close(file)
    return statistics.median(times) * 1000


async def _measure_lockd(folder: Path, seconds: float) -> None:
    async with _lockd(folder) as (ports, _):
        for clients in CLIENTS:
            cycles = [await _lockd_cycle(ports, i) for i in range(clients)]
            _print("lockd", clients, await _run(cycles, seconds), seconds)
        contenders = [await connect("127.0.0.1", ports[i % NODES], timeout_s=10) for i in range(HAND_OFF_CLIENTS)]
        _print_hand_off("lockd", await _hand_offs([_lockd_contender(client) for client in contenders], seconds))


async def _lockd_cycle(ports: list[int], number: int, tag: str = "") -> Cycle:
    client = await connect("127.0.0.1", ports[number % NODES], timeout_s=10)
    client.tag = tag

    async def once() -> None:
        grant = await client.acquire(f"lock-{number}", 10_000)
        assert grant.token is not None, grant
        assert (await client.release(f"lock-{number}", grant.token)).type == "ok"

    return once


async def _measure_applied(folder: Path, seconds: float) -> None:
    """Two clusters, of which one writes down what it applies, take turns."""
    print(f"{'lockd':<26} {'clients':>7} {'cycles/s':>9} {'CPU us a cycle, all nodes':>26}   (medians of {ROUNDS})")
    async with _lockd(folder / "without") as without, _lockd(folder / "with", applied=True) as writing:
        for clients in APPLIED_CLIENTS:
            rates: dict[str, list[float]] = {"without": [], "with": []}
            costs: dict[str, list[float]] = {"without": [], "with": []}
            turns = {
                name: (
                    processes,
                    [await _lockd_cycle(ports, i, "12345" if name == "with" else "") for i in range(clients)],
                )
                for name, (ports, processes) in (("without", without), ("with", writing))
            }
            for _ in range(ROUNDS):
                for name, (processes, cycles) in turns.items():
                    before = processes.cpu_s()
                    times = await _run(cycles, seconds)
                    rates[name].append(len(times) / seconds)
                    costs[name].append((processes.cpu_s() - before) / len(times) * 1e6)
            for name in turns:
                rate, cost = statistics.median(rates[name]), statistics.median(costs[name])
                print(f"{f'{name} --applied':<26} {clients:>7} {rate:>9.0f} {cost:>26.0f}", flush=True)


async def _measure_etcd(folder: Path, seconds: float) -> None:
    async with _etcd(folder) as ports:

        async def cycle(number: int, keep_lease: bool) -> Cycle:
            client = EtcdClient(ports[number % NODES])
            await client.connect()
            kept = await client.grant_lease(600) if keep_lease else None

            async def once() -> None:
                lease = kept or await client.grant_lease(10)
                await client.unlock(await client.lock(f"lock-{number}", lease))
                if kept is None:
                    await client.revoke(lease)

            return once

        for name, keep in (("etcd", False), ("etcd, lease kept", True)):
            for clients in CLIENTS:
                cycles = [await cycle(i, keep) for i in range(clients)]
                _print(name, clients, await _run(cycles, seconds), seconds)
        contenders = []
        for i in range(HAND_OFF_CLIENTS):
            client = EtcdClient(ports[i % NODES])
            await client.connect()
            contenders.append(_etcd_contender(client, await client.grant_lease(600)))
        _print_hand_off("etcd, lease kept", await _hand_offs(contenders, seconds))


async def _run(cycles: list[Cycle], seconds: float) -> list[float]:
    """The seconds that each cycle took, of all clients together."""
    times: list[float] = []
    end = time.perf_counter() + seconds

    async def client(cycle: Cycle) -> None:
        while (started := time.perf_counter()) < end:
            await cycle()
            times.append(time.perf_counter() - started)

    await asyncio.gather(*map(client, cycles))
    return times


Contender = tuple[Callable[[], Awaitable[object]], Callable[[object], Awaitable[object]]]


def _lockd_contender(client: Client) -> Contender:
    async def acquire() -> object:
        grant = await client.acquire("contended", 10_000, wait_ms=60_000)
        assert grant.token is not None, grant
        return grant.token

    async def release(token: object) -> object:
        assert isinstance(token, int)
        return await client.release("contended", token)

    return acquire, release


def _etcd_contender(client: EtcdClient, lease: str) -> Contender:
    async def acquire() -> object:
        return await client.lock("contended", lease)

    async def release(key: object) -> object:
        return await client.unlock(str(key))

    return acquire, release


async def _hand_offs(contenders: list[Contender], seconds: float) -> list[float]:
    """The seconds from each call of release to the next grant."""
    times: list[float] = []
    released: float | None = None
    end = time.perf_counter() + seconds

    async def contend(acquire: Callable[[], Awaitable[object]], release: Callable[[object], Awaitable[object]]) -> None:
        nonlocal released
        while time.perf_counter() < end:
            got = await acquire()
            if released is not None:
                times.append(time.perf_counter() - released)
            released = time.perf_counter()
            await release(got)

    await asyncio.gather(*(contend(*contender) for contender in contenders))
    return times


@asynccontextmanager
async def _lockd(folder: Path, *, applied: bool = False) -> AsyncIterator[tuple[list[int], _Processes]]:
    ports = _free_ports(NODES)
    commands = []
    for i, port in enumerate(ports):
        peers = [f"--peer=n{j}=127.0.0.1:{other}" for j, other in enumerate(ports) if j != i]
        serve = ["serve", "--id", f"n{i}", "--listen", f"127.0.0.1:{port}", "--data", str(folder / f"n{i}")]
        written = ["--applied", str(folder / f"n{i}.jsonl")] if applied else []
        commands.append([sys.executable, "-m", "cluster.node", *serve, *peers, "--insecure", *written])
    with _Processes(folder, commands) as processes:
        for port in ports:
            client = await _retry(lambda port=port: connect("127.0.0.1", port, timeout_s=5))  # type: ignore[misc]
            while (await client.inspect("ready?")).type != "ok":
                await asyncio.sleep(0.02)
            await client.close()
        yield ports, processes


@asynccontextmanager
async def _etcd(folder: Path) -> AsyncIterator[list[int]]:
    ports, peers = _free_ports(NODES), _free_ports(NODES)
    members = ",".join(f"n{i}=http://127.0.0.1:{peer}" for i, peer in enumerate(peers))
    commands = [
        ["etcd", "--name", f"n{i}", "--data-dir", str(folder / f"n{i}"), "--log-level", "error",
         "--listen-client-urls", f"http://127.0.0.1:{port}", "--advertise-client-urls", f"http://127.0.0.1:{port}",
         "--listen-peer-urls", f"http://127.0.0.1:{peer}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
         "--initial-cluster", members]
        for i, (port, peer) in enumerate(zip(ports, peers, strict=True))
    ]  # fmt: skip
    with _Processes(folder, commands):
        for port in ports:
            client = EtcdClient(port)
            await _retry(client.connect)
            await _retry(lambda client=client: client.grant_lease(60))  # type: ignore[misc]
            client.close()
        yield ports


class _Processes:
    """Runs commands, with their output in `folder`, and ends them."""

    def __init__(self, folder: Path, commands: list[list[str]]) -> None:
        folder.mkdir()
        self._log = (folder / "log").open("wb")
        self._running = [subprocess.Popen(command, stdout=self._log, stderr=self._log) for command in commands]

    def __enter__(self) -> _Processes:
        return self

    def cpu_s(self) -> float:
        """What all of them have used of the processor."""
        times = [psutil.Process(process.pid).cpu_times() for process in self._running]
        return sum(of_one.user + of_one.system for of_one in times)

    def __exit__(self, *_: object) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self._log.close()


async def _retry(attempt: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(30):
        while True:
            try:
                return await attempt()
            except OSError:
                await asyncio.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _print(system: str, clients: int, times: list[float], seconds: float) -> None:
    quantiles = statistics.quantiles(times, n=100)
    p50, p99 = quantiles[49] * 1000, quantiles[98] * 1000
    print(f"{system:<26} {clients:>7} {len(times) / seconds:>9.0f} {p50:>8.2f} {p99:>8.2f}", flush=True)


def _print_hand_off(system: str, times: list[float]) -> None:
    quantiles = statistics.quantiles(times, n=100)
    p50, p99 = quantiles[49] * 1000, quantiles[98] * 1000
    label = f"{system}: hand-off"
    print(f"{label:<26} {HAND_OFF_CLIENTS:>7} {len(times):>9} {p50:>8.2f} {p99:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
