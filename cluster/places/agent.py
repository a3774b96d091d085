"""The program that holds a node's network: it filters packets there, and lets probes start from there.

It is the main process of the container that owns the network namespace which the node's own container joins. So it
lives while the node is dead or frozen, and what it needs (the packet filter's tools, the right to use them) the node
needs not have.

Run as `python -m cluster.places.agent`; the secret is in the environment. It listens on AGENT_PORT, published on
the engine's loopback. A connection begins with one line of JSON; the answer is one line, {"ok": ...} or {"error": ...}.
    {"secret": ..., "do": "block", "seconds": 10, "lost": [...], ...}    replaces what is blocked (see `Blocked`)
    {"secret": ..., "do": "blocked"}    what is blocked now
    {"secret": ..., "do": "connect", "host": ..., "port": ..., "link": [source, target], "named": ...}
        from then on the connection leads there, as a probe of that link; `named` is the port's name
It blocks nobody for longer than it was last told to.

Where links are to be shaped, the agent also proxies what the node sends, as `cluster.places.links` does for local
nodes: the node reaches its peers through listeners of the agent in the network that they share. What a link does to
bytes is done by the agent of whoever opened the connection, in both directions; so both ends' agents are told of it.
    {"secret": ..., "do": "links", "node": ..., "targets": {port: {name: [host, number]}}, "framed": ...}
        {"ok": {port: {name: number}}}
    {"secret": ..., "do": "shape", "shapings": [[source, target, {...}]]}    replaces them all
    {"secret": ..., "do": "reset", "links": [[source, target]]}    {"ok": how many connections there were}
    {"secret": ..., "do": "counts", "link": [source, target]}    {"ok": [...]}

It uses the standard library alone, besides modules of this project that do too.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cluster.places.base import Link, Shaping
from cluster.places.packet_filter import FILTERS, PROBE_PORTS, Blocked, Filter, Step
from cluster.places.port_links import PortLinks
from cluster.systems.base import Address

AGENT_PORT = 7419
SECRET_VARIABLE = "FENCEPOST_SECRET"

#: A rule set is replaced in milliseconds; a tool that hangs must not hang the agent.
TOOL_BUDGET_S = 5.0
#: How long a connection for a probe may take; whoever probes gives up earlier.
CONNECT_BUDGET_S = 10.0
LINE_BYTES_MAX = 64 * 1024

LOOPBACK = "127.0.0.1"

_CONNECTED = b'{"ok": true}\n'
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AgentError(Exception):
    """A request that could not be done, and why."""


class Agent:
    def __init__(self, secret: str, filters: Iterable[Filter]) -> None:
        self._secret = secret
        self._filters = tuple(filters)
        self._filter: Filter | None = None
        self._blocked = Blocked()
        self._changing = asyncio.Lock()
        self._expiry: asyncio.TimerHandle | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._ports = itertools.cycle(PROBE_PORTS)
        self._links: PortLinks | None = None
        self._ended = asyncio.Event()

    async def serve(
        self,
        host: str = "0.0.0.0",
        port: int = AGENT_PORT,
        ready: Callable[[int], object] | None = None,
        *,
        limit: int = LINE_BYTES_MAX,
    ) -> None:
        """Until it is told to end by SIGTERM. `ready` is told on which port it listens; `limit` is how many bytes a
        request may have. Raises AgentError."""
        await self._choose_filter()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._ended.set)
        server = await asyncio.start_server(self._take, host, port, limit=limit)
        says = "not filtering" if self._filter is None else f"filtering with {self._filter.name}"
        print(says, file=sys.stderr, flush=True)
        if ready is not None:
            ready(server.sockets[0].getsockname()[1])
        await self._ended.wait()
        server.close()

    async def _choose_filter(self) -> None:
        """The first whose rules the kernel takes. Raises AgentError when it takes none."""
        refusals = []
        for candidate in self._filters:
            try:
                await run_steps(candidate.install())
            except AgentError as problem:
                refusals.append(f"{candidate.name}: {problem}")
            else:
                self._filter = candidate
                return
        raise AgentError(f"no packet filter works here: {'; '.join(refusals)}")

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # ValueError: a line that is too long, or no JSON.
            with contextlib.suppress(OSError, ValueError):
                request = json.loads(await reader.readline())
                if not hmac.compare_digest(str(request.get("secret", "")), self._secret):
                    return
                await self._answer(request, reader, writer)
        finally:
            writer.close()

    async def _answer(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            if request["do"] == "connect":
                await self._connect(request, reader, writer)
                return
            answer = {"ok": await self._do(request)}
        except (AgentError, OSError) as problem:
            answer = {"error": str(problem) or type(problem).__name__}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()

    async def _do(self, request: dict[str, Any]) -> Any:
        """What it is asked for. Raises AgentError, OSError."""
        match request["do"]:
            case "block":
                kinds = {kind: who for kind, who in request.items() if isinstance(who, list)}
                await self._block(Blocked.of(kinds), float(request["seconds"]))
                return True
            case "blocked":
                return self._blocked.plain()
            case "links":
                return await self._open_links(request)
            case "shape":
                self._shaped.shape({Link(*link): _shaping(how) for *link, how in request["shapings"]})
                return True
            case "reset":
                return self._shaped.reset([Link(*link) for link in request["links"]])
            case "counts":
                return list(self._shaped.counts(Link(*request["link"])))
            case unknown:
                raise AgentError(f"no request {unknown!r}")

    async def _block(self, blocked: Blocked, seconds: float) -> None:
        if self._filter is None:
            raise AgentError("no packet filter may be used here")
        async with self._changing:
            await run_steps(self._filter.replace(blocked, seconds))
            self._blocked = blocked
            if self._expiry is not None:
                self._expiry.cancel()
                self._expiry = None
            if blocked:
                self._expiry = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        """Nobody renewed the blocks: with nft they have ended already."""
        print("the blocks were not renewed: they end", file=sys.stderr, flush=True)
        self._expiring = asyncio.get_running_loop().create_task(self._block(Blocked(), 0))

    @property
    def _shaped(self) -> PortLinks:
        if self._links is None:
            raise AgentError("links are not proxied here")
        return self._links

    async def _open_links(self, request: dict[str, Any]) -> dict[str, dict[str, int]]:
        targets = {
            port: {name: Address(host, number) for name, (host, number) in nodes.items()}
            for port, nodes in request["targets"].items()
        }
        self._links = links = PortLinks(targets, framed=request["framed"])
        await links.open([request["node"]])
        return {
            port: {peer: address.port for peer, address in links.peers(request["node"], port).items()}
            for port in targets
        }

    async def _connect(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        host, port = request["host"], int(request["port"])
        if self._links is None:
            await self._lead_to(host, port, reader, writer)
            return

        async def lead_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError, AgentError):
                await self._lead_to(host, port, reader, writer, greet=False)
            writer.close()

        # Through the proxy first, and from there as a probe.
        behind = await asyncio.start_server(lead_on, LOOPBACK, 0)
        try:
            via = Address(LOOPBACK, behind.sockets[0].getsockname()[1])
            async with self._links.probe_address(Link(*request["link"]), via, request["named"]) as entrance:
                there = await asyncio.open_connection(entrance.host, entrance.port)
                writer.write(_CONNECTED)
                await _pipe((reader, writer), there)
        finally:
            behind.close()

    async def _lead_to(
        self,
        host: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        greet: bool = True,
    ) -> None:
        async with asyncio.timeout(CONNECT_BUDGET_S):
            sock = await self._dial(host, port)
        there = await asyncio.open_connection(sock=sock)
        if greet:
            writer.write(_CONNECTED)
        # Nothing of a probe may go through later, when the link is mended: `_dial` sees to that.
        await _pipe((reader, writer), there)

    async def _dial(self, host: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        for source in itertools.islice(self._ports, len(PROBE_PORTS)):
            sock = socket.socket(family, socket.SOCK_STREAM)
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            try:
                try:
                    sock.bind(("", source))
                except OSError:
                    sock.close()
                    continue
                await asyncio.get_running_loop().sock_connect(sock, (host, port))
            except BaseException:
                sock.close()
                raise
            return sock
        raise AgentError("every port for probes is in use")


async def _pipe(here: Streams, there: Streams) -> None:
    """Pass on in both directions until one ends; then `there` is reset."""
    ways = [asyncio.create_task(_pass_on(*way)) for way in ((here[0], there[1]), (there[0], here[1]))]
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for way in ways:
            way.cancel()
        there[1].transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(LINE_BYTES_MAX):
            writer.write(piece)
            await writer.drain()


def _shaping(fields: dict[str, Any]) -> Shaping:
    low, high = fields.pop("delay_ms")
    return Shaping(delay_ms=(low, high), **fields)


async def run_steps(steps: Sequence[Step]) -> None:
    """Raises AgentError at the first step that fails and is not optional."""
    for step in steps:
        tool = step.argv[0]
        try:
            process = await asyncio.create_subprocess_exec(
                *step.argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as problem:
            if step.optional:
                continue
            raise AgentError(f"{tool}: {problem.strerror}") from problem
        try:
            async with asyncio.timeout(TOOL_BUDGET_S):
                _, complaint = await process.communicate(step.text.encode())
        except TimeoutError:
            process.kill()
            raise AgentError(f"{tool} took more than {TOOL_BUDGET_S:g} s") from None
        if process.returncode != 0 and not step.optional:
            raise AgentError(f"{tool}: {complaint.decode(errors='replace').strip()}")


def main() -> None:
    wanted = sys.argv[1:]
    filters = [one for one in FILTERS if not wanted or one.name in wanted]
    try:
        asyncio.run(Agent(os.environ[SECRET_VARIABLE], filters).serve())
    except AgentError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()
