"""The program that holds a node's network in Docker: it filters packets there, and lets probes start from there.

It is the main process of the container that owns the network namespace which the node's own container joins. So it
lives while the node is dead or frozen, and what it needs (the packet filter's tools, the right to use them) the node
needs not have.

Run as `python -m cluster.places.docker_agent`; the secret is in the environment. It listens on AGENT_PORT, published on
the engine's loopback. A connection begins with one line of JSON; the answer is one line, {"ok": ...} or {"error": ...}.
    {"secret": ..., "do": "block", "lost": [...], "mute": [...], "away": [...], "seconds": 10}    replaces it
    {"secret": ..., "do": "blocked"}    what is blocked now
    {"secret": ..., "do": "connect", "host": ..., "port": ...}    from then on the connection leads there, as a probe
It uses the standard library alone, and blocks nobody for longer than it was last told to.
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
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from cluster.places.packet_filter import FILTERS, PROBE_PORTS, Blocked, Filter, Step

AGENT_PORT = 7419
SECRET_VARIABLE = "FENCEPOST_SECRET"

#: A rule set is replaced in milliseconds; a tool that hangs must not hang the agent.
TOOL_BUDGET_S = 5.0
#: How long a connection for a probe may take; whoever probes gives up earlier.
CONNECT_BUDGET_S = 10.0
LINE_BYTES_MAX = 64 * 1024

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


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

    async def serve(self) -> None:
        """Until it is told to end by SIGTERM."""
        await self._choose_filter()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        server = await asyncio.start_server(self._take, "0.0.0.0", AGENT_PORT, limit=LINE_BYTES_MAX)
        assert self._filter is not None
        print(f"filtering with {self._filter.name}", file=sys.stderr, flush=True)
        await ended.wait()
        server.close()

    async def _choose_filter(self) -> None:
        """The first whose rules the kernel takes. Raises AgentError when it takes none."""
        refusals = []
        for candidate in self._filters:
            try:
                await _run(candidate.install())
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
            match request["do"]:
                case "block":
                    blocked = Blocked(*(frozenset(request[kind]) for kind in ("lost", "mute", "away")))
                    await self._block(blocked, float(request["seconds"]))
                    answer: dict[str, Any] = {"ok": True}
                case "blocked":
                    answer = {"ok": {kind: sorted(who) for kind, who in asdict(self._blocked).items()}}
                case "connect":
                    await self._connect(request["host"], int(request["port"]), reader, writer)
                    return
                case unknown:
                    answer = {"error": f"no request {unknown!r}"}
        except (AgentError, OSError) as problem:
            answer = {"error": str(problem) or type(problem).__name__}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()

    async def _block(self, blocked: Blocked, seconds: float) -> None:
        assert self._filter is not None
        async with self._changing:
            await _run(self._filter.replace(blocked, seconds))
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

    async def _connect(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_BUDGET_S):
            there = await self._dial(host, port)
        there_reader, there_writer = await asyncio.open_connection(sock=there)
        try:
            writer.write(b'{"ok": true}\n')
            ways = [asyncio.create_task(_pass_on(*way)) for way in ((reader, there_writer), (there_reader, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.wait(ways)
        finally:
            # Nothing of a probe may go through later, when the link is mended.
            there_writer.transport.abort()

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


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(LINE_BYTES_MAX):
            writer.write(piece)
            await writer.drain()


async def _run(steps: Sequence[Step]) -> None:
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
