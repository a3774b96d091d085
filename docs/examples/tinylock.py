"""tinylock as Fencepost sees it; docs/systems.md walks through this file."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from cluster.systems.base import Address, Launch, LockClient, NodeStatus, NodeUnreachable, NodeView, Outcome

SERVER = Path(__file__).with_name("tinylock_server.py")


class Tinylock:
    name = "tinylock"
    tokens_span_keys = True

    def launch(self, node: NodeView) -> Launch:
        return Launch([sys.executable, str(SERVER), node.listen.host, str(node.listen.port)])

    def version(self) -> str:
        return "0.1"

    async def connect(self, address: Address, timeout: float) -> LockClient:
        return await open_client(address, timeout)

    async def status(self, address: Address, timeout: float) -> NodeStatus:
        answer = await self._ask_once(address, timeout, call="status")
        if answer.type != "ok" or answer.value is None:
            raise NodeUnreachable(f"{address} gave no status: {answer.error}")
        says = answer.value
        # A server without peers always leads, in a term that never changes.
        return NodeStatus("n1", says["incarnation"], term=1, leads=True, leader="n1", counters=says["counters"])

    async def ready(self, address: Address, timeout: float) -> bool:
        try:
            return (await self._ask_once(address, timeout, call="inspect", key="ready?")).type == "ok"
        except NodeUnreachable:
            return False

    async def probe(self, address: Address, timeout: float) -> bool:
        return await self.ready(address, timeout)

    async def _ask_once(self, address: Address, timeout: float, **request: Any) -> Outcome:
        client = await open_client(address, timeout)
        try:
            return await client.ask(timeout, **request)
        finally:
            await client.close()


async def open_client(address: Address, timeout: float) -> Client:
    try:
        async with asyncio.timeout(timeout):
            return Client(*await asyncio.open_connection(address.host, address.port), timeout)
    except OSError as problem:  # TimeoutError is one
        raise NodeUnreachable(f"{address}: {problem!r}") from problem


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, timeout: float) -> None:
        self._reader, self._writer, self._timeout = reader, writer, timeout

    async def acquire(self, key: str, lease_ms: int, wait_ms: int) -> Outcome:
        timeout = self._timeout + wait_ms / 1000
        return await self.ask(timeout, call="acquire", key=key, lease_ms=lease_ms, wait_ms=wait_ms)

    async def release(self, key: str, token: int) -> Outcome:
        return await self.ask(self._timeout, call="release", key=key, token=token)

    async def inspect(self, key: str) -> Outcome:
        return await self.ask(self._timeout, call="inspect", key=key)

    async def close(self) -> None:
        self._writer.close()

    async def ask(self, timeout: float, **request: Any) -> Outcome:
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(json.dumps(request).encode() + b"\n")
                line = await self._reader.readline()
        except OSError as problem:
            # The request may have arrived: nobody knows whether it took effect.
            return Outcome("info", error=type(problem).__name__)
        if not line.endswith(b"\n"):
            return Outcome("info", error="connection-lost")
        answer = json.loads(line)
        if "error" in answer:
            return Outcome("fail", error=answer["error"])
        return Outcome("ok", answer)
