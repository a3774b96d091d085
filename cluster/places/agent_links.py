"""The testbed's side of the agents that hold nodes' networks: cuts, their renewal, and probes.

Cuts end by themselves CUT_LASTS_S after the last renewal, so that a harness that is killed leaves no network cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from cluster.concurrency import all_of
from cluster.places.base import Link, LinkCounts, PlaceError, PortCut, Shaping
from cluster.places.packet_filter import Blocked
from cluster.systems.base import MAIN_PORT, Address

#: Renewals come three times as often, so that one that is late does no harm.
CUT_LASTS_S = 9.0
RENEWAL_INTERVAL_S = 3.0

#: An agent answers within milliseconds, on a loaded machine later.
REQUEST_BUDGET_S = 5.0
PIECE_BYTES = 64 * 1024

LOOPBACK = "127.0.0.1"

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Agent:
    """`control` is where it listens for us, `node` where its node listens for the others, `ports` where at all its
    ports, by name, MAIN_PORT among them."""

    control: Address
    node: Address
    ports: Mapping[str, Address]
    blocked: Blocked = field(default_factory=Blocked)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change of its filter at a time


class AgentUnreachable(PlaceError):
    """It gave no answer; it may have done what it was asked for."""


class Agents:
    """The agents of one run, by the names of their nodes. They share a secret, since whoever reaches an agent's port
    could cut links."""

    #: How many bytes an answer may have.
    _answer_max = 64 * 1024

    def __init__(self) -> None:
        self.secret = secrets.token_hex(16)
        self._agents: dict[str, _Agent] = {}
        self._cuts: frozenset[Link] = frozenset()
        self._port_cuts: frozenset[PortCut] = frozenset()
        self._clients: dict[str, str] = {}
        self._renewal: asyncio.Task[None] | None = None

    def add(
        self, name: str, control: Address, node: Address, ports: Mapping[str, Address] = MappingProxyType({})
    ) -> None:
        """`ports`: where the node listens beside `node`, by the names of its system."""
        self._agents[name] = _Agent(control, node, {MAIN_PORT: node, **ports})

    async def check(self, name: str) -> None:
        """Whether the agent is up. Raises PlaceError."""
        await self._ask(name, {"do": "blocked"})

    async def blocked(self, name: str) -> Blocked:
        """What the agent blocks, by its own word. Raises PlaceError."""
        says = await self._ask(name, {"do": "blocked"})
        return Blocked.of(says)

    async def set_cuts(self, links: Iterable[Link]) -> None:
        """Cut exactly these links. Raises PlaceError."""
        cuts = frozenset(links)
        self._check(cuts)
        self._cuts = cuts
        await self._apply()

    async def cut_ports(self, cuts: Iterable[PortCut]) -> None:
        """Cut exactly these beside the whole links. Raises PlaceError."""
        wanted = frozenset(cuts)
        self._check(cut.link for cut in wanted)
        for cut in wanted:
            if cut.port not in self._agents[cut.link.target].ports:
                raise PlaceError(f"there is no port {cut.port} at {cut.link.target}")
        self._port_cuts = wanted
        await self._apply()

    def _check(self, links: Iterable[Link]) -> None:
        for link in links:
            if link.source == link.target or not {link.source, link.target} <= self._agents.keys():
                raise PlaceError(f"there is no link {link.source}->{link.target}")

    async def cut_clients(self, clients: Mapping[str, str]) -> None:
        """Cut exactly these nodes off from clients, in both directions: to each node, the address that they come from.
        Raises PlaceError."""
        if strangers := clients.keys() - self._agents.keys():
            raise PlaceError(f"there is no node {', '.join(sorted(strangers))}")
        self._clients = dict(clients)
        await self._apply()

    async def _apply(self) -> None:
        if (self._cuts or self._port_cuts or self._clients) and self._renewal is None:
            self._renewal = asyncio.create_task(self._renew())
        await all_of(self._block(name) for name in self._agents)

    async def proxy_links(self, name: str, *, framed: bool) -> dict[str, dict[str, Address]]:
        """Have the agent proxy its node's links; under which addresses the node then reaches each port of the others.
        Raises PlaceError."""
        targets = {
            port: {other: [agent.ports[port].host, agent.ports[port].port] for other, agent in self._agents.items()}
            for port in self._agents[name].ports
        }
        opened = await self._ask(name, {"do": "links", "node": name, "targets": targets, "framed": framed})
        return {
            port: {peer: Address(LOOPBACK, number) for peer, number in peers.items()} for port, peers in opened.items()
        }

    def direct(self, name: str) -> dict[str, dict[str, Address]]:
        """Under which addresses the node reaches each port of the others where nothing is proxied."""
        others = {other: agent for other, agent in self._agents.items() if other != name}
        return {
            port: {other: agent.ports[port] for other, agent in others.items()} for port in self._agents[name].ports
        }

    async def shape_links(self, shapings: Mapping[Link, Shaping]) -> None:
        """Shape exactly these links. Raises PlaceError."""
        listed = [[*link, asdict(shaping)] for link, shaping in shapings.items()]
        await all_of(self._ask(name, {"do": "shape", "shapings": listed}) for name in self._agents)

    async def reset_links(self, links: Collection[Link]) -> int:
        """Reset every connection that the links' sources opened; says how many. Raises PlaceError."""
        by_source = {link.source: [list(other) for other in links if other.source == link.source] for link in links}
        counts = await all_of(self._ask(name, {"do": "reset", "links": listed}) for name, listed in by_source.items())
        return sum(counts)

    async def link_counts(self, link: Link) -> LinkCounts:
        """Of both ends' agents: each proxies what its own node opens. Raises PlaceError."""
        counts = await all_of(self._ask(name, {"do": "counts", "link": list(link)}) for name in link)
        return LinkCounts(*map(sum, zip(*counts, strict=True)))

    async def close(self) -> None:
        if self._renewal is not None:
            renewal, self._renewal = self._renewal, None
            renewal.cancel()
            await asyncio.wait({renewal})

    async def _renew(self) -> None:
        """Each by itself: an agent that is out of reach must not end the cuts of the others."""
        await asyncio.gather(*map(self._renew_at, self._agents))

    async def _renew_at(self, name: str) -> None:
        while True:
            await asyncio.sleep(RENEWAL_INTERVAL_S)
            try:
                await self._block(name, renew=True)
            except Exception as problem:
                logger.error("a cut could not be renewed: %s", problem)

    async def _block(self, name: str, *, renew: bool = False) -> None:
        """Have the agent block what the cuts say by now."""
        agent = self._agents[name]
        async with agent.lock:
            blocked = self._blocked_at(name)
            if blocked == agent.blocked and not (renew and blocked):
                return
            await self._ask(name, {"do": "block", "seconds": CUT_LASTS_S, **blocked.plain()})
            agent.blocked = blocked

    def _blocked_at(self, name: str) -> Blocked:
        silent = {link.source for link in self._cuts if link.target == name}
        lost = {source for source in silent if Link(name, source) in self._cuts}
        clients = frozenset([self._clients[name]] if name in self._clients else [])
        lost_at: set[tuple[str, int]] = set()
        mute_at: set[tuple[str, int]] = set()
        for link, port in self._port_cuts:
            if link.target == name:
                both = link.reverse in self._cuts or PortCut(link.reverse, port) in self._port_cuts
                # The other's and ours: connections lead to either.
                for node in link:
                    where = self._agents[link.source].node.host, self._agents[node].ports[port].port
                    (lost_at if both else mute_at).add(where)
        return Blocked(
            frozenset(self._agents[source].node.host for source in lost),
            frozenset(self._agents[source].node.host for source in silent - lost),
            clients,
            frozenset(lost_at),
            frozenset(mute_at),
        )

    @contextlib.asynccontextmanager
    async def probe_address(self, link: Link, port: str = MAIN_PORT) -> AsyncIterator[Address]:
        """An address on this machine that leads, from within the source's network, to a port of the target's node.
        Raises PlaceError."""
        self._check([link])
        source, target = self._agents[link.source], self._agents[link.target].ports.get(port)
        if target is None:
            raise PlaceError(f"there is no port {port} at {link.target}")
        request = self._line(
            {"do": "connect", "host": target.host, "port": target.port, "link": list(link), "named": port}
        )
        relays: set[asyncio.Task[Any]] = set()

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            relays.add(task)
            try:
                # The streams of Python 3.11 complain about a handler that ends by being cancelled.
                with contextlib.suppress(OSError, PlaceError, asyncio.CancelledError):
                    await self._relay(reader, writer, source.control, request)
            finally:
                relays.discard(task)
                writer.close()

        server = await asyncio.start_server(relay, LOOPBACK, 0)
        try:
            yield Address(*server.sockets[0].getsockname()[:2])
        finally:
            server.close()
            if remaining := tuple(relays):
                for task in remaining:
                    task.cancel()
                await asyncio.wait(remaining)

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, control: Address, request: bytes
    ) -> None:
        there_reader, there_writer = await asyncio.open_connection(control.host, control.port)
        try:
            there_writer.write(request)
            _answer(await there_reader.readline())
            ways = [asyncio.create_task(_pass_on(*way)) for way in ((reader, there_writer), (there_reader, writer))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.wait(ways)
        finally:
            there_writer.close()

    async def _ask(self, name: str, request: Mapping[str, Any]) -> Any:
        control = self._agents[name].control
        try:
            async with asyncio.timeout(REQUEST_BUDGET_S):
                reader, writer = await asyncio.open_connection(control.host, control.port, limit=self._answer_max)
                try:
                    writer.write(self._line(request))
                    return _answer(await reader.readline())
                finally:
                    writer.close()
        except OSError as problem:
            raise AgentUnreachable(
                f"the agent of {name} can't be reached: {problem or 'it gave no answer'}"
            ) from problem

    def _line(self, request: Mapping[str, Any]) -> bytes:
        return json.dumps({"secret": self.secret, **request}).encode() + b"\n"


def _answer(line: bytes) -> Any:
    """Raises PlaceError with what the agent says went wrong, and OSError when it says nothing."""
    if not line:
        raise ConnectionError("it closed the connection")
    answer = json.loads(line)
    if "error" in answer:
        raise PlaceError(str(answer["error"]))
    return answer["ok"]


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
