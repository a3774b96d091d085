"""Lock clients in memory, for the interpreter: what each does is scripted by the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from checker.history import Event, HistoryWriter
from cluster.systems.base import LockClient, NodeUnreachable, Outcome
from workloads.generator import Op
from workloads.interpreter import Call, Interpreter

Behave = Callable[["FakeClient", str], Awaitable[Outcome]]


async def at_once(_client: FakeClient, f: str) -> Outcome:
    """An answer without delay."""
    return Outcome("ok", {"token": 1} if f != "release" else None)


class FakeClient:
    """One connection. `number` counts the connections of the cluster, from 0."""

    def __init__(self, cluster: FakeCluster, node: str, number: int) -> None:
        self.cluster = cluster
        self.node = node
        self.number = number
        self.calls = 0
        self.closed = asyncio.Event()

    async def acquire(self, key: str, lease_ms: int, wait_ms: int) -> Outcome:
        return await self._call("acquire", key)

    async def release(self, key: str, token: int) -> Outcome:
        return await self._call("release", key)

    async def inspect(self, key: str) -> Outcome:
        return await self._call("inspect", key)

    async def close(self) -> None:
        self.closed.set()

    async def _call(self, f: str, key: str) -> Outcome:
        assert not self.closed.is_set(), "a call over a connection that was given up"
        self.calls += 1
        self.cluster.note(key)
        return await self.cluster.behave(self, f)


class FakeCluster:
    """Nodes that do what `behave` says; `down` are those that take no connection."""

    def __init__(self, folder: Path, behave: Behave = at_once, nodes: tuple[str, ...] = ("n1", "n2")) -> None:
        self.path = folder / "history.jsonl"
        self.behave = behave
        self.nodes = nodes
        self.down: set[str] = set()
        self.clients: list[FakeClient] = []
        self.attempts: list[tuple[float, str]] = []
        #: For every call, the types of the events on its key that the file had when it began.
        self.in_file: list[list[str]] = []
        self.events: list[Event] = []
        self._started_ns = time.monotonic_ns()
        self._writer = HistoryWriter(self.path, self.clock)

    def clock(self) -> int:
        return time.monotonic_ns() - self._started_ns

    def note(self, key: str) -> None:
        recorded = map(msgspec.json.decode, self.path.read_bytes().splitlines())
        self.in_file.append([event["type"] for event in recorded if event["key"] == key])

    async def connect(self, node: str) -> LockClient:
        self.attempts.append((self.clock() / 1e9, node))
        await asyncio.sleep(0)
        if node in self.down:
            raise NodeUnreachable(node)
        client = FakeClient(self, node, len(self.clients))
        self.clients.append(client)
        return client

    def interpreter(
        self, threads: int, *, calls: Mapping[str, Call] | None = None, drain_s: float = 5.0
    ) -> Interpreter:
        def record(*args: object, **fields: object) -> Event:
            event = self._writer.append(*args, **fields)  # type: ignore[arg-type]
            self.events.append(event)
            return event

        return Interpreter(
            connect=self.connect,
            nodes=self.nodes,
            threads=threads,
            record=record,
            clock=self.clock,
            calls=calls,
            drain_s=drain_s,
        )


def inspect(thread: int, _count: int = 0) -> Op:
    return Op(thread, "inspect", "a")
