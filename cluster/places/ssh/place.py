"""Nodes on hosts that are reached by SSH: one host for each node, and on it an agent that runs the node.

The agent is the one of Docker's containers (`cluster.places.agent`) with a node as its child; it listens on the host's
loopback and is reached through the SSH connection. Nodes talk to each other, and clients to nodes, directly, where the
network lets them; where only SSH gets through, clients go through it as well, and can't be cut off then.

Who asks past a fault of the clients' way (`address`) goes through SSH in a run that has such faults: the packet filter
of a host cuts this machine off from the node's port, never from sshd's.

A connection that is lost is made again, and the run goes on; that is logged, and told (`tell_to`) for the history.
Cuts end by themselves when they are not renewed, so a host that is out of reach for longer is not cut off any more.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from cluster.concurrency import all_of
from cluster.image import wheel
from cluster.places import controls, data_folder
from cluster.places.base import (
    Capability,
    Clock,
    ClockSetting,
    DiskMode,
    DiskReport,
    Limits,
    Link,
    LinkCounts,
    PlaceError,
    PortCut,
    ProcessState,
    Shaping,
    Usage,
    usable,
)
from cluster.places.ownership import Harness
from cluster.places.packet_filter import FILTERS
from cluster.places.ssh import estates
from cluster.places.ssh.estates import Estate
from cluster.places.ssh.hosts import Host
from cluster.places.ssh.links import HostAgents
from cluster.places.ssh.order import Order
from cluster.systems.base import MAIN_PORT, Address, HasPorts, NodeView, Port, Python, System, other_ports

if TYPE_CHECKING:
    from cluster.places.ssh.connection import Connection
    from cluster.places.ssh.forward import Forward
    from cluster.places.ssh.look import Look
    from cluster.places.ssh.remote import Remote

P = ParamSpec("P")
T = TypeVar("T")

#: Whether clients reach a node's port directly: what the network answers at once, if there is a way at all.
DIRECT_BUDGET_S = 1.5
#: An agent that nobody talks to ends its node; what tells it that we are there.
HEARTBEAT_S = 60.0
THREADS_PER_HOST = 4

#: What needs the rights of root on a host.
FOR_ROOT = frozenset({Capability.CUT_LINKS, Capability.CUT_PORTS, Capability.CUT_CLIENTS, Capability.TURN_WALL_CLOCKS})

logger = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Node:
    """`folder` is where runs keep what they need on the host, `modules` where Python finds them there; `ways` lead
    through SSH to the node's ports."""

    name: str
    connection: Connection
    remote: Remote
    look: Look
    folder: str
    ways: dict[str, Forward]
    modules: str = ""
    view: NodeView | None = None


class SshPlace:
    """Runs a cluster on hosts; see `cluster.places.base.Place`. `packet_filter`: the name of one; by default the first
    that works."""

    name = "ssh"
    #: Over a slow line what is uploaded and collected takes a while.
    start_budget_s = 120.0
    stop_budget_s = 120.0
    capabilities = frozenset(
        {
            Capability.CUT_LINKS,
            Capability.CUT_PORTS,
            Capability.KILL,
            Capability.PAUSE,
            Capability.CUT_CLIENTS,
            Capability.SHAPE_LINKS,
            Capability.SHAPE_FRAMES,
            Capability.CORRUPT_LINKS,
            Capability.TURN_LEASE_CLOCKS,
            Capability.TURN_WALL_CLOCKS,
            Capability.BREAK_DISKS,
            Capability.STARVE_CPU,
            Capability.STARVE_MEMORY,
            Capability.CHANGE_FILES,
            Capability.MOVE_LEADERSHIP,
            Capability.CHANGE_MEMBERS,
        }
    )

    def __init__(
        self,
        system: System,
        nodes: Sequence[str],
        folder: Path,
        *,
        hosts: Sequence[Host],
        packet_filter: str | None = None,
    ) -> None:
        if len(hosts) < len(nodes):
            raise PlaceError(f"{len(nodes)} nodes need as many hosts, and there are {len(hosts)}")
        self.system = system
        self.nodes: Sequence[str] = tuple(nodes)
        #: Names the run on its hosts: its folder, its processes, its rules.
        self.run = secrets.token_hex(4)
        self._folder = folder.resolve()
        self._hosts = dict(zip(self.nodes, hosts, strict=False))
        self._estate = Estate(self.run, Harness.this(), self._folder, dict(self._hosts))
        self._filters = [one.name for one in FILTERS if packet_filter in (None, one.name)]
        self._agents = HostAgents()
        self._nodes: dict[str, _Node] = {}
        self._connections: list[Connection] = []
        self._forwards: list[Forward] = []
        self._threads = ThreadPoolExecutor(THREADS_PER_HOST * len(self.nodes), thread_name_prefix="ssh")
        self._equipment = usable(self.capabilities, system)
        self._direct = False
        self._kept = False
        self._heart: asyncio.Task[None] | None = None
        self._tell: Callable[[str], object] = lambda _: None

    def equip(self, capabilities: Collection[Capability]) -> None:
        self._equipment = usable(capabilities, self.system)

    def tell_to(self, tell: Callable[[str], object]) -> None:
        """Have `tell` told, in the event loop's thread, what happens to connections."""
        self._tell = tell

    @staticmethod
    def prepare_hosts(hosts: Sequence[Host], say: Callable[[str], object], *, accept_new: bool) -> None:
        """See that every host can be reached and has what a run needs. Raises PlaceError, which tells of all."""
        from cluster.places.ssh import inspection

        inspection.prepare(hosts, say, accept_new=accept_new)

    async def start(self) -> None:
        try:
            await self._lay_out()
            await all_of(self.start_node(node) for node in self.nodes)
        except BaseException:
            await self.close()
            raise

    # ---- laying out

    async def _lay_out(self) -> None:
        made = await all_of(self._call(self._connect, node, host) for node, host in self._hosts.items())
        self._nodes = {node.name: node for node in made}
        self._check()
        # Before anything is on any host.
        await self._call(estates.keep, self._estate)
        self._kept = True
        wheels = {node.look.target: await self._call(wheel.cached, node.look.target) for node in made}
        ports = await all_of(self._call(self._upload, node, wheels[node.look.target]) for node in made)
        for node, port in zip(made, ports, strict=True):
            way = await self._forward(node, port)
            self._agents.add(node.name, way.address, self._inner(node.name), self._inner_ports(node.name))
        self._heart = asyncio.create_task(self._beat())
        self._direct = await self._reachable()
        for node in made:
            node.view = await self._view(node)
            if not self._direct or Capability.CUT_CLIENTS in self._equipment:
                node.ways[MAIN_PORT] = await self._forward(node, self._hosts[node.name].node_port)
        logger.info("clients reach nodes %s", "directly" if self._direct else "through SSH: there is no other way")

    def _connect(self, name: str, host: Host) -> _Node:
        connection, remote = _library(host, partial(self._heard, name))
        self._connections.append(connection)
        connection.connect()
        look = remote.look()
        return _Node(name, connection, remote, look, remote.folder(look.home), {})

    def _check(self) -> None:
        """Raises PlaceError for what hosts lack."""
        from cluster.places.ssh import inspection

        problems = []
        ours = {node.look.harness for node in self._nodes.values()}
        for name, node in self._nodes.items():
            problems += inspection.lacks(node.remote.host, node.look, root=bool(self._equipment & FOR_ROOT))
            if Capability.CUT_LINKS in self._equipment and self._hosts[name].node_address in ours:
                problems.append(f"{node.remote.host} is this machine: cuts would cut us off as well; use another one")
        if problems:
            raise PlaceError("; ".join(problems))

    def _upload(self, node: _Node, archive: Path) -> int:
        """Have the agent run; on which port of the host's loopback."""
        host, own = node.remote.host, f"{node.folder}/{self.run}"
        mark = {"harness": str(self._estate.harness), "folder": str(self._folder), "node": node.name}
        node.modules = node.remote.lay_out(self.run, node.folder, mark, archive)
        order = Order(
            self._agents.secret,
            self.run,
            node.name,
            f"{own}/node",
            node.look.uid,
            (_any_address(host), host.node_port),
            self._filters if self._equipment & FOR_ROOT else (),
            controls.names(self._equipment),
        )
        return node.remote.start_agent(order, node.modules, root=bool(self._equipment & FOR_ROOT))

    async def _forward(self, node: _Node, port: int) -> Forward:
        from cluster.places.ssh.forward import Forward

        way = await self._call(Forward, node.connection, port)
        self._forwards.append(way)
        return way

    def _inner(self, node: str) -> Address:
        host = self._hosts[node]
        return Address(host.node_address, host.node_port)

    def _inner_ports(self, node: str) -> dict[str, Address]:
        """Where the other ports of the system are: behind the main one."""
        host = self._hosts[node]
        names = enumerate(other_ports(self.system), start=1)
        return {name: Address(host.node_address, host.node_port + position) for position, name in names}

    async def _view(self, node: _Node) -> NodeView:
        host, home = self._hosts[node.name], Path(f"{node.folder}/{self.run}/node")
        everywhere = _any_address(host)
        shapes = bool(self._equipment & {Capability.SHAPE_LINKS, Capability.SHAPE_FRAMES, Capability.CORRUPT_LINKS})
        framed = Capability.SHAPE_FRAMES in self._equipment
        peers = await self._agents.proxy_links(node.name, framed=framed) if shapes else self._agents.direct(node.name)
        clock, disk = controls.paths(controls.names(self._equipment), home)
        return NodeView(
            node.name,
            Address(everywhere, host.node_port),
            peers[MAIN_PORT],
            home / "data",
            clock,
            disk,
            hostile=Capability.CORRUPT_LINKS in self._equipment,
            advertise=self._inner(node.name),
            python=Python([host.python, "-P", "-m"], {"PYTHONPATH": node.modules}),
            ports={
                name: Port(Address(everywhere, address.port), peers[name], address)
                for name, address in self._inner_ports(node.name).items()
            },
        )

    async def _reachable(self) -> bool:
        """Whether clients reach the nodes' ports without SSH: for a moment, the agents listen there."""
        await all_of(self._agents.ask(node, "hold") for node in self.nodes)
        try:
            async with asyncio.timeout(DIRECT_BUDGET_S):
                for node in self.nodes:
                    address = self._outer(node)
                    _, writer = await asyncio.open_connection(address.host, address.port)
                    writer.close()
        except OSError:
            return False
        finally:
            await all_of(self._agents.ask(node, "release") for node in self.nodes)
        return True

    def _outer(self, node: str) -> Address:
        """Where this machine finds the node's port."""
        host = self._hosts[node]
        return Address(host.address, host.node_port)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            for outcome in await asyncio.gather(*map(self._agents.check, self.nodes), return_exceptions=True):
                if isinstance(outcome, Exception):
                    logger.warning("%s", outcome)

    def _heard(self, node: str, words: str) -> None:
        """Of a connection, in whatever thread has made it again."""
        logger.warning("%s: %s", node, words)
        loop = self._heart.get_loop() if self._heart is not None else None
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._tell, f"{node}: {words}")

    # ---- nodes

    def address(self, node: str) -> Address:
        way = self._node(node).ways.get(MAIN_PORT)
        return self._outer(node) if way is None else way.address

    def client_address(self, node: str) -> Address:
        return self._outer(node) if self._direct else self.address(node)

    async def start_node(self, node: str) -> None:
        view = self._node(node).view
        assert view is not None, "nodes are started when all is laid out"
        launch = self.system.launch(view)
        await self._agents.ask(node, "start", argv=[*launch.argv], env={**launch.env})

    async def kill_node(self, node: str) -> None:
        await self._ask(node, "kill")

    async def stop_node(self, node: str) -> None:
        await self._ask(node, "stop")

    async def pause_node(self, node: str) -> None:
        await self._ask(node, "pause")

    async def resume_node(self, node: str) -> None:
        await self._ask(node, "resume")

    async def state(self, node: str) -> ProcessState:
        return ProcessState(await self._ask(node, "state"))

    async def account(self, node: str) -> str:
        return str(await self._ask(node, "account"))

    async def starve_node(self, node: str, limits: Limits) -> None:
        await self._ask(node, "starve", cpu=limits.cpu, memory=limits.memory)

    async def usage(self, node: str) -> Usage:
        cpu_ns, cpu, memory = await self._ask(node, "usage")
        return Usage(cpu_ns, Limits(cpu, memory))

    # ---- links

    async def set_cuts(self, links: Iterable[Link]) -> None:
        await self._agents.set_cuts(links)

    async def probe_link(self, link: Link, timeout: float) -> bool:
        self._node(link.source)
        self._node(link.target)
        async with self._agents.probe_address(link) as address:
            return await self.system.probe(address, timeout)

    async def cut_ports(self, cuts: Iterable[PortCut]) -> None:
        await self._agents.cut_ports(cuts)

    async def probe_port(self, cut: PortCut, timeout: float) -> bool:
        assert isinstance(self.system, HasPorts)
        async with self._agents.probe_address(cut.link, cut.port) as address:
            return await self.system.probe_port(cut.port, address, timeout)

    async def shape_links(self, shapings: Mapping[Link, Shaping]) -> None:
        await self._agents.shape_links(shapings)

    async def reset_links(self, links: Collection[Link]) -> int:
        return await self._agents.reset_links(links)

    async def link_counts(self, link: Link) -> LinkCounts:
        return await self._agents.link_counts(link)

    async def cut_clients(self, nodes: Collection[str]) -> None:
        if not self._direct or Capability.CUT_CLIENTS not in self._equipment:
            raise PlaceError("the way of clients can't be told from ours: only SSH leads to the hosts from here")
        await self._agents.cut_clients({node: self._node(node).look.harness for node in nodes})

    # ---- clocks, disks, data and logs

    async def turn_clock(self, node: str, clock: Clock, setting: ClockSetting) -> None:
        await self._ask(node, "turn", clock=clock, step_ns=setting.step_ns, rate=setting.rate)

    async def true_clock(self, node: str, clock: Clock) -> None:
        await self._ask(node, "right", clock=clock)

    async def break_disk(self, node: str, mode: DiskMode | None, slow_ms: int = 0) -> None:
        await self._ask(node, "disk", mode=mode, slow_ms=slow_ms)

    async def disk_report(self, node: str) -> DiskReport:
        return DiskReport(*await self._ask(node, "disk-report"))

    async def read_data(self, node: str) -> Mapping[str, bytes]:
        return data_folder.decode(await self._ask(node, "data"))

    async def replace_data(self, node: str, files: Mapping[str, bytes]) -> None:
        await self._ask(node, "fill", files=data_folder.encode(files))

    async def wipe_node(self, node: str) -> None:
        await self.replace_data(node, {})
        entry = self._node(node)
        assert entry.view is not None
        entry.view = replace(entry.view, join=True)

    async def read_log(self, node: str, offset: int) -> tuple[bytes, int]:
        piece, end = await self._ask(node, "log", offset=offset)
        return data_folder.decode({"": piece})[""], int(end)

    async def lost(self) -> str | None:
        """Nothing but the end of a run ends an agent."""
        outcomes = await asyncio.gather(*map(self._agents.check, self._nodes), return_exceptions=True)
        gone = [
            f"{node} on {self._hosts[node]} ({outcome})"
            for node, outcome in zip(self._nodes, outcomes, strict=True)
            if isinstance(outcome, PlaceError)
        ]
        if not gone:
            return None
        return f"a host can't be reached any more, or was started again, or somebody ended its agent: {', '.join(gone)}"

    # ---- the end

    async def close(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
        await self._agents.close()
        problems: list[str] = []
        try:
            if self._forwards:
                stopping = (self.stop_node(node) for node in self._nodes)
                outcomes = await asyncio.gather(*stopping, return_exceptions=True)
                problems += [str(outcome) for outcome in outcomes if isinstance(outcome, PlaceError)]
        finally:
            # Also when the above was cancelled: what is cleared need not have been stopped. And the thread goes on
            # when this is cancelled.
            problems += await asyncio.to_thread(self._collect_and_clear)
        if problems:
            raise PlaceError("; ".join(problems))

    def _collect_and_clear(self) -> list[str]:
        problems: list[str] = []
        if self._kept:
            for unsaved, stays in self._threads.map(self._clear, self._nodes.values()):
                problems += [*unsaved, *stays]
                self._kept = self._kept and not stays
            if self._kept:
                estates.forget(self._estate)
            self._kept = False
        for way in self._forwards:
            way.close()
        for connection in self._connections:
            connection.close()
        self._forwards.clear()
        self._connections.clear()
        self._threads.shutdown(wait=False)
        return problems

    def _clear(self, node: _Node) -> tuple[list[str], list[str]]:
        try:
            return estates.clear(node.remote, self._estate, node.name, node.folder)
        except PlaceError as problem:
            return [], [f"{node.name}: {problem}; `fencepost heal` undoes what is left there"]

    # ---- details

    async def _call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """In a thread: all of SSH blocks."""
        return await asyncio.wrap_future(self._threads.submit(work, *args, **kwargs))

    async def _ask(self, node: str, what: str, **about: Any) -> Any:
        self._node(node)
        return await self._agents.ask(node, what, **about)

    def _node(self, node: str) -> _Node:
        try:
            return self._nodes[node]
        except KeyError:
            raise PlaceError(f"there is no node {node}; the place has {', '.join(self._nodes) or 'none yet'}") from None


def _library(host: Host, heard: Callable[[str], object]) -> tuple[Connection, Remote]:
    try:
        from cluster.places.ssh.connection import Connection
        from cluster.places.ssh.remote import Remote
    except ImportError as problem:
        raise PlaceError(f"the place ssh needs paramiko ({problem}): pip install 'fencepost[ssh]'") from problem
    connection = Connection(host, heard)
    return connection, Remote(connection)


def _any_address(host: Host) -> str:
    """Where a node listens so that it is found at all of the host's addresses of that family."""
    return "::" if ipaddress.ip_address(host.node_address).version == 6 else "0.0.0.0"
