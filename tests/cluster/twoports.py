"""A stand-in whose nodes listen at two ports, each answering "ping" with "pong NAME-OF-THE-PORT"."""

from __future__ import annotations

from cluster.systems.base import Address, Feature, Launch, LockClient, NodeStatus, NodeUnreachable, NodeView
from tests.cluster.standin import ask

_NODE = """
import asyncio, sys
async def serve(name, listen):
    async def answer(reader, writer):
        while await reader.readline():
            writer.write(f"pong {name}\\n".encode())
        writer.close()
    host, _, port = listen.rpartition(":")
    async with await asyncio.start_server(answer, host, int(port)) as server:
        await server.serve_forever()
async def main():
    await asyncio.gather(serve("main", sys.argv[1]), serve("peer", sys.argv[2]))
asyncio.run(main())
"""


class TwoPorts:
    name = "two ports"
    tokens_span_keys = True
    features = frozenset({Feature.PORTS})
    ports = ("peer",)

    def __init__(self) -> None:
        self.views: dict[str, NodeView] = {}

    def launch(self, node: NodeView) -> Launch:
        self.views[node.id] = node
        return Launch([node.python.command[0], "-c", _NODE, str(node.listen), str(node.ports["peer"].listen)])

    async def status(self, address: Address, timeout: float) -> NodeStatus:
        raise NodeUnreachable("it tells nothing of itself")

    async def ready(self, address: Address, timeout: float) -> bool:
        return await self.probe(address, timeout)

    async def probe(self, address: Address, timeout: float) -> bool:
        return await self.probe_port("main", address, timeout)

    async def probe_port(self, port: str, address: Address, timeout: float) -> bool:
        try:
            return await ask(address, "ping", timeout) == f"pong {port}"
        except OSError:
            return False

    async def connect(self, address: Address, timeout: float) -> LockClient:
        raise NotImplementedError

    def version(self) -> str:
        return "0"
