"""A stand-in for a lock service, as a node and as a `System`: answers, and does nothing else.

What a node says about terms and leaders is read from `leader.json` in the run's folder, so that tests decide it.
Run as a script it is the node; its lines: "ping" -> "pong", "status" -> JSON, "relay PEER" -> what PEER says to "ping"
over the link to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

from cluster.systems.base import Address, Launch, LockClient, NodeStatus, NodeUnreachable, NodeView


async def ask(address: Address, line: str, timeout: float) -> str:
    """One line to a node, and its answer. Raises OSError (TimeoutError among them)."""
    async with asyncio.timeout(timeout):
        reader, writer = await asyncio.open_connection(address.host, address.port)
        try:
            writer.write(f"{line}\n".encode())
            answer = await reader.readline()
        finally:
            writer.close()
    if not answer:
        raise ConnectionError("closed without an answer")
    return answer.decode().strip()


class Standin:
    name = "standin"
    tokens_span_keys = True

    def __init__(self, *, exit_code: int | None = None) -> None:
        self._exit_code = exit_code

    def launch(self, node: NodeView) -> Launch:
        if self._exit_code is not None:
            script = f"import sys; print('no licence found', file=sys.stderr); sys.exit({self._exit_code})"
            return Launch([sys.executable, "-c", script])
        peers = [f"{peer}={address}" for peer, address in node.peers.items()]
        return Launch([sys.executable, __file__, node.id, str(node.listen), str(node.data), *peers])

    async def status(self, address: Address, timeout: float) -> NodeStatus:
        try:
            answer = json.loads(await ask(address, "status", timeout))
        except OSError as problem:
            raise NodeUnreachable(str(problem)) from problem
        return NodeStatus(**answer)

    async def ready(self, address: Address, timeout: float) -> bool:
        return await self.probe(address, timeout)

    async def probe(self, address: Address, timeout: float) -> bool:
        try:
            return await ask(address, "ping", timeout) == "pong"
        except OSError:
            return False

    async def connect(self, address: Address, timeout: float) -> LockClient:
        raise NotImplementedError

    def version(self) -> str:
        return "0"


async def _serve(node: str, listen: str, data: Path, peers: dict[str, Address]) -> None:
    incarnation = time.time_ns()

    def status() -> str:
        try:
            says = json.loads((data.parents[2] / "leader.json").read_text())
        except FileNotFoundError:
            says = {}
        own = {"term": says.get("term", 0), "leader": says.get("leader"), "counters": says.get("counters", {})}
        own |= says.get("nodes", {}).get(node, {})
        return json.dumps({"id": node, "incarnation": incarnation, "leads": own["leader"] == node} | own)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := (await reader.readline()).decode().split():
            match line:
                case ["ping"]:
                    answer = "pong"
                case ["status"]:
                    answer = status()
                case ["relay", peer]:
                    try:
                        answer = await ask(peers[peer], "ping", 0.3)
                    except OSError as problem:
                        answer = type(problem).__name__
                case _:
                    answer = "what?"
            writer.write(f"{answer}\n".encode())
        writer.close()

    host, _, port = listen.rpartition(":")
    server = await asyncio.start_server(serve, host, int(port))
    print(f"{node} listens as {os.getpid()}", file=sys.stderr, flush=True)
    await server.serve_forever()


def _peer(text: str) -> tuple[str, Address]:
    name, _, address = text.partition("=")
    host, _, port = address.rpartition(":")
    return name, Address(host, int(port))


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), dict(map(_peer, sys.argv[4:]))))
