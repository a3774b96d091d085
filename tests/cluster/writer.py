"""A stand-in that writes: each node appends a numbered line to `data/log` and syncs it, over and over, and answers
"ping" with "pong". One that can't write ends, as a node should; started again, it goes on behind the last whole line.
"""

from __future__ import annotations

from pathlib import Path

from cluster.systems.base import Address, Feature, Launch, LockClient, NodeStatus, NodeUnreachable, NodeView
from tests.cluster.standin import ask

_NODE = """
import asyncio, os, sys, threading, time
def write(path):
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR)
        whole = os.pread(file, 1 << 20, 0).rpartition(b"\\n")[0].splitlines()
        number = len(whole)
        end = sum(len(line) + 1 for line in whole)
        while True:
            line = b"%063d\\n" % number
            os.pwrite(file, line, end)
            os.fdatasync(file)
            number, end = number + 1, end + len(line)
            time.sleep(0.02)
    except OSError as problem:
        print(problem, flush=True)
        os._exit(3)
async def answer(reader, writer):
    while await reader.readline():
        writer.write(b"pong\\n")
    writer.close()
async def main(listen, path):
    host, _, port = listen.rpartition(":")
    threading.Thread(target=write, args=(path,), daemon=True).start()
    async with await asyncio.start_server(answer, host, int(port)) as server:
        await server.serve_forever()
asyncio.run(main(*sys.argv[1:]))
"""


class Writer:
    name = "writer"
    tokens_span_keys = True
    features = frozenset({Feature.DATA})

    def launch(self, node: NodeView) -> Launch:
        return Launch([node.python.command[0], "-c", _NODE, str(node.listen), str(node.data / "log")])

    async def status(self, address: Address, timeout: float) -> NodeStatus:
        raise NodeUnreachable("it tells nothing of itself")

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


def lines(log: Path) -> list[int]:
    """The whole lines of a node's log. Raises ValueError for what is none."""
    return [int(line) for line in log.read_bytes().rpartition(b"\n")[0].splitlines()]
