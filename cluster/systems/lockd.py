"""Fencepost's own lock service, `lockd`, and its deliberately broken variants."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from importlib import metadata
from typing import Any

from cluster.node import client as node_client
from cluster.node.address import is_loopback
from cluster.node.core import Core
from cluster.node.storage import Storage
from cluster.systems.base import (
    Address,
    Feature,
    Launch,
    LockClient,
    Member,
    NodeStatus,
    NodeUnreachable,
    NodeView,
    Outcome,
)

#: Any key does: readiness is that a linearizable read comes back, not what it says.
READY_KEY = "fencepost-ready"


class Lockd:
    """`lockd`, or the mutant of it called `mutant`. Raises ValueError for a mutant that there is not."""

    tokens_span_keys = True
    features = frozenset(Feature) - {Feature.PORTS, Feature.DATA}  # its disk fails by itself

    def __init__(self, mutant: str | None = None) -> None:
        self.mutant = mutant
        #: Of nodes that others than this machine can reach, or over links that change bytes; drawn for each run.
        self._secret: str | None = None
        #: What a simulation runs instead of a process.
        self.core_type: type[Core] = Core
        self.storage_type: type[Storage] = Storage
        self.name = "lockd" if mutant is None else f"lockd ({mutant})"
        if mutant is not None:
            from cluster import mutants  # only runs on a mutant load the mutants

            if mutant not in mutants.names():
                raise ValueError(f"no mutant {mutant!r}: there are {', '.join(mutants.names())}")
            self.core_type = mutants.MUTANTS[mutant].core_type
            self.storage_type = mutants.MUTANTS[mutant].storage_type

    def launch(self, node: NodeView) -> Launch:
        program = [*node.python.command]
        mutant = [] if self.mutant is None else [self.mutant]
        if node.disk is not None:
            program += ["cluster.faulty", str(node.disk), *mutant]
        else:
            program += ["cluster.mutants", *mutant] if mutant else ["cluster.node"]
        peers = [part for peer, address in node.peers.items() for part in ("--peer", f"{peer}={address}")]
        arguments = ["serve", "--id", node.id, "--listen", str(node.listen), *peers, "--data", str(node.data)]
        arguments += ["--applied", str(node.applied)]
        if node.join:
            arguments += ["--join"]
        if node.advertise is not None:
            arguments += ["--advertise", str(node.advertise)]
        if node.clock is not None:
            arguments += ["--clock-file", str(node.clock)]
        if is_loopback(node.listen.host) and not node.hostile:
            return Launch([*program, *arguments, "--insecure"], node.python.env)
        self._secret = self._secret or secrets.token_hex(16)
        return Launch([*program, *arguments], {**node.python.env, "LOCKD_SECRET": self._secret})

    async def status(self, address: Address, timeout: float) -> NodeStatus:
        try:
            async with asyncio.timeout(timeout):
                client = await self._client(address, timeout)
                try:
                    says = await client.status()
                finally:
                    await client.close()
        except OSError as problem:  # time-outs and broken connections
            raise NodeUnreachable(f"{address} gave no status within {timeout:g}s: {problem!r}") from problem
        return told(says)

    async def ready(self, address: Address, timeout: float) -> bool:
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout
        try:
            client = await self.connect(address, timeout)
        except NodeUnreachable:
            return False
        try:
            async with asyncio.timeout(max(0.0, deadline - clock())):
                return (await client.inspect(READY_KEY)).type == "ok"
        except TimeoutError:
            return False
        finally:
            await client.close()

    async def probe(self, address: Address, timeout: float) -> bool:
        try:
            async with asyncio.timeout(timeout):
                client = await self._client(address, timeout)
                try:
                    await client.ping()
                finally:
                    await client.close()
        except OSError:
            return False
        return True

    async def move_leadership(self, leader: Address, to: str, timeout: float) -> Outcome:
        return await self._ask(leader, timeout, lambda client: client.move_leadership(to, forward=False))

    async def add_member(self, leader: Address, node: str, where: str, timeout: float) -> Outcome:
        return await self._ask(leader, timeout, lambda client: client.add_member(node, where, forward=False))

    async def remove_member(self, leader: Address, node: str, timeout: float) -> Outcome:
        outcome = await self._ask(leader, timeout, lambda client: client.remove_member(node, forward=False))
        return Outcome("ok") if outcome.error == f"bad-request: {node} is no member of this cluster" else outcome

    async def _ask(
        self, address: Address, timeout: float, call: Callable[[node_client.Client], Awaitable[node_client.Reply]]
    ) -> Outcome:
        try:
            client = await self._client(address, timeout)
        except OSError as problem:
            return Outcome("fail", error=repr(problem))
        try:
            reply = await call(client)
        finally:
            await client.close()
        return Outcome(reply.type, error=reply.error)

    async def connect(self, address: Address, timeout: float) -> LockClient:
        try:
            return LockdClient(await self._client(address, timeout))
        except OSError as problem:
            raise NodeUnreachable(f"{address} took no connection within {timeout:g}s: {problem!r}") from problem

    async def _client(self, address: Address, timeout: float) -> node_client.Client:
        secret = None if self._secret is None else self._secret.encode()
        return await node_client.connect(address.host, address.port, timeout_s=timeout, secret=secret)

    def version(self) -> str:
        return f"{self.name} {metadata.version('fencepost')}"


class LockdClient:
    """`cluster.node.client.Client` in the testbed's terms."""

    def __init__(self, client: node_client.Client) -> None:
        self._client = client

    @property
    def tag(self) -> str:
        return self._client.tag

    @tag.setter
    def tag(self, tag: str) -> None:
        self._client.tag = tag

    async def acquire(self, key: str, lease_ms: int, wait_ms: int) -> Outcome:
        reply = await self._client.acquire(key, lease_ms, wait_ms)
        if reply.type == "ok":
            return Outcome("ok", {"token": reply.token})
        return Outcome(reply.type, error=reply.error)

    async def release(self, key: str, token: int) -> Outcome:
        reply = await self._client.release(key, token)
        return Outcome(reply.type, error=reply.error)

    async def inspect(self, key: str) -> Outcome:
        reply = await self._client.inspect(key)
        if reply.type == "ok":
            return Outcome("ok", {"token": reply.token})
        return Outcome(reply.type, error=reply.error)

    async def close(self) -> None:
        await self._client.close()


def told(says: Mapping[str, Any]) -> NodeStatus:
    """What a node says (`Core.status`), in the testbed's terms."""
    return NodeStatus(
        id=says["id"],
        incarnation=says["incarnation"],
        term=says["term"],
        leads=says["role"] == "leader",
        leader=says["leader"],
        counters=says["counters"],
        lease_ns=says.get("clock_ns"),
        wall_ns=says.get("wall_ns"),
        members={one["id"]: Member(one["address"], one["voter"]) for one in says["members"]},
    )
