"""Nodes in Docker containers, on a network of the run's own, cut by packet filter.

Each node has two containers. The first, of the agent (`cluster.places.agent`), owns the network: addresses,
published ports, packet filter. The second, of the node, joins that network and has no rights at all. So

- a node that is killed and started again has the same addresses and is as cut off as it was: its network was never
  gone, and there is no moment at which it could talk before rules are in place again;
- a frozen node's links can be cut and probed, though nothing can be run in its container;
- whatever image a node runs from, it needs no tools for faults.

Each agent is attached to two networks. Nodes talk over the one, which is internal: it leads nowhere else. Docker
publishes no port of such a network; that takes the other, over which containers can't reach each other, and which isn't
masqueraded, so that it leads nowhere else either. Ports are published on loopback. Where this machine reaches the
containers' own addresses (Docker on Linux), clients use those: Docker's proxy for published ports accepts a connection
also when the node behind it is dead, and a refused connection would look like a lost one. On Docker Desktop, whose
containers live in a virtual machine, they use the published ports.

Cuts end by themselves when they are not renewed (`cluster.places.agent_links`). Everything bears the labels of
`cluster.places.docker_engine`, by which `fencepost heal` and `fencepost clean` find what a harness that was killed has
left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

from cluster.concurrency import all_of
from cluster.image import build
from cluster.mounted import mount
from cluster.mounted.mount import Mount
from cluster.places import data_folder, docker_engine, docker_networks, vdso
from cluster.places.agent_links import Agents
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
from cluster.places.controls import DISK_NAME, Controls
from cluster.places.docker_containers import Containers
from cluster.places.docker_engine import Engine
from cluster.places.docker_node import HOME, DockerNode
from cluster.places.packet_filter import NODE_PORT
from cluster.systems.base import (
    MAIN_PORT,
    Address,
    Feature,
    HasPorts,
    NodeView,
    Port,
    Python,
    System,
    features,
    other_ports,
)

SETTLE_BUDGET_S = 20.0

logger = logging.getLogger(__name__)


class DockerPlace:
    """Runs a cluster in Docker containers of this machine; see `cluster.places.base.Place`.

    `packet_filter`: "nft", "iptables" or "iptables-legacy"; by default the first that works.
    """

    name = "docker"
    capabilities = frozenset(
        {
            Capability.CUT_LINKS,
            Capability.KILL,
            Capability.PAUSE,
            Capability.CUT_CLIENTS,
            Capability.SHAPE_LINKS,
            Capability.SHAPE_FRAMES,
            Capability.CORRUPT_LINKS,
            Capability.TURN_LEASE_CLOCKS,
            Capability.BREAK_DISKS,
            Capability.CUT_PORTS,
            Capability.STARVE_CPU,
            Capability.STARVE_MEMORY,
            Capability.CHANGE_FILES,
            Capability.MOVE_LEADERSHIP,
            Capability.CHANGE_MEMBERS,
            *([Capability.TURN_WALL_CLOCKS] if vdso.supported() else []),
            *([Capability.MOUNT_DISKS] if mount.unsupported() is None else []),
        }
    )

    def __init__(self, system: System, nodes: Sequence[str], folder: Path, *, packet_filter: str | None = None) -> None:
        self.system = system
        self.nodes: Sequence[str] = tuple(nodes)
        #: Names the run in the engine; in every label and name.
        self.run = secrets.token_hex(4)
        self._folder = folder.resolve()
        self._agent_arguments = [packet_filter] if packet_filter else []
        self._agents = Agents()
        self._controls = Controls()
        self._engine: Engine | None = None
        self._nodes: dict[str, DockerNode] = {}
        self._mounts: dict[str, Mount] = {}
        self._direct = False
        self._equipment: frozenset[Capability] = frozenset()
        self._gateway = ""  # where packets come from that this machine sends to containers directly

    def equip(self, capabilities: Collection[Capability]) -> None:
        # Disks of systems that can't fail by themselves are mounted.
        wanted = frozenset(capabilities) | (self.capabilities & {Capability.MOUNT_DISKS})
        self._controls.equip(wanted, self.system)
        self._equipment = usable(wanted, self.system)

    @staticmethod
    def prepare(say: Callable[[str], object]) -> None:
        """Build the image if it is missing. Raises PlaceError."""
        client = docker_engine.connect()
        try:
            build.ensure(client, say)
        finally:
            client.close()

    async def start(self) -> None:
        try:
            await self._lay_out()
            await all_of(self.start_node(node) for node in self.nodes)
        except BaseException:
            await self.close()
            raise

    # ---- laying out

    async def _lay_out(self) -> None:
        self._engine = engine = await asyncio.to_thread(Engine)
        image = await engine.call("the image", build.ensure, engine.client, logger.info)
        user = await engine.call("the engine's kind", _node_user, engine)
        containers = Containers(engine, self.run, self._folder, image)
        networks = await docker_networks.lay_out(
            containers, self._agents, self.nodes, other_ports(self.system), self._agent_arguments
        )
        self._direct, self._gateway = networks.direct, networks.gateway
        for node, network in networks.by_node.items():
            (self._home(node) / "data").mkdir(parents=True, exist_ok=True)
            controls = self._controls.lay_out(node, self._home(node), HOME)
            mounts = controls.disk is not None and Feature.DISK not in features(self.system)
            if mounts:
                self._mounts[node] = Mount(self._home(node) / "data", self._home(node) / DISK_NAME)
            peers = await self._peers(node)
            view = NodeView(
                node,
                Address("0.0.0.0", NODE_PORT),
                peers[MAIN_PORT],
                Path(HOME / "data"),
                controls.clock,
                None if mounts else controls.disk,
                hostile=Capability.CORRUPT_LINKS in self._equipment,
                advertise=network.inner,
                python=Python(["python3", "-m"]),
                ports={
                    port: Port(Address("0.0.0.0", address.port), peers[port], address)
                    for port, address in network.ports.items()
                },
            )
            self._nodes[node] = DockerNode(containers, self.system, view, network, self._home(node), user)

        # A container sees what is mounted when it is made.
        await all_of(mount.start(self._folder) for mount in self._mounts.values())

    async def _peers(self, node: str) -> dict[str, dict[str, Address]]:
        """Where a node reaches each port of the others: through its agent, if the run is going to shape links."""
        if self._equipment & {Capability.SHAPE_LINKS, Capability.SHAPE_FRAMES, Capability.CORRUPT_LINKS}:
            return await self._agents.proxy_links(node, framed=Capability.SHAPE_FRAMES in self._equipment)
        return self._agents.direct(node)

    def _home(self, node: str) -> Path:
        return self._folder / "nodes" / node

    # ---- nodes

    def address(self, node: str) -> Address:
        network = self._node(node).network
        return network.inner if self._direct and Capability.CUT_CLIENTS not in self._equipment else network.published

    def client_address(self, node: str) -> Address:
        network = self._node(node).network
        return network.inner if self._direct else network.published

    async def start_node(self, node: str) -> None:
        await self._node(node).start()

    async def kill_node(self, node: str) -> None:
        await self._node(node).kill()
        if node in self._mounts:
            await self._mounts[node].lose()

    async def stop_node(self, node: str) -> None:
        await self._node(node).stop()

    async def pause_node(self, node: str) -> None:
        await self._node(node).pause()

    async def resume_node(self, node: str) -> None:
        await self._node(node).resume()

    async def state(self, node: str) -> ProcessState:
        return await self._node(node).state()

    async def starve_node(self, node: str, limits: Limits) -> None:
        await self._node(node).starve(limits)

    async def usage(self, node: str) -> Usage:
        return await self._node(node).usage()

    async def account(self, node: str) -> str:
        return await self._node(node).account()

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
        if cut.port == MAIN_PORT:
            return await self.probe_link(cut.link, timeout)
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
            raise PlaceError(
                "the way of clients can't be told from ours: this machine does not reach containers directly"
            )
        await self._agents.cut_clients(dict.fromkeys(nodes, self._gateway))

    # ---- clocks, disks and logs

    async def turn_clock(self, node: str, clock: Clock, setting: ClockSetting) -> None:
        if clock is Clock.LEASE:
            self._controls.turn_clock(node, setting)
        else:
            await self._node(node).turn_wall_clock(setting)

    async def true_clock(self, node: str, clock: Clock) -> None:
        if clock is Clock.LEASE:
            self._controls.true_clock(node)
        else:
            await self._node(node).true_wall_clock()

    async def break_disk(self, node: str, mode: DiskMode | None, slow_ms: int = 0) -> None:
        self._controls.break_disk(node, mode, slow_ms)

    async def disk_report(self, node: str) -> DiskReport:
        return self._controls.disk_report(node)

    async def read_data(self, node: str) -> Mapping[str, bytes]:
        self._node(node)
        return await asyncio.to_thread(data_folder.read, self._home(node) / "data")

    async def replace_data(self, node: str, files: Mapping[str, bytes]) -> None:
        if await self._node(node).state() is not ProcessState.DEAD:
            raise PlaceError(f"{node} runs: its data can't be replaced")
        await asyncio.to_thread(data_folder.replace, self._home(node) / "data", files)

    async def wipe_node(self, node: str) -> None:
        await self.replace_data(node, {})
        await self._node(node).join_next()

    async def read_log(self, node: str, offset: int) -> tuple[bytes, int]:
        return self._node(node).log.read(offset)

    async def lost(self) -> str | None:
        """Nothing but the end of a run ends an agent."""
        engine = self._engine
        if engine is None:
            return None
        what, role = "the engine no longer answers", docker_engine.AGENT_ROLE
        alive = await engine.call(what, docker_engine.alive, engine.client, self.run, role)
        ended = [node for node in self.nodes if node not in alive]
        if not ended:
            return None
        return f"the engine was stopped, or somebody ended its containers: those of {', '.join(ended)} are no longer up"

    # ---- the end

    async def close(self) -> None:
        await self._agents.close()
        for node in self._mounts:
            self._controls.break_disk(node, None, 0)  # who waits for its disk can't end
        self._controls.close()
        engine = self._engine
        if engine is None:
            return
        await engine.settle(SETTLE_BUDGET_S)
        problems: list[str] = []
        try:
            for outcome in await asyncio.gather(*map(self.stop_node, self._nodes), return_exceptions=True):
                if isinstance(outcome, PlaceError):
                    problems.append(str(outcome))
        finally:
            # Also when the above was cancelled: what is removed by force need not have been stopped. And the thread
            # goes on when this is cancelled.
            self._engine = None
            problems += await asyncio.to_thread(self._collect_and_remove, engine)
            mounts, self._mounts = self._mounts, {}
            await all_of(mount.end() for mount in mounts.values())
        if problems:
            raise PlaceError("; ".join(problems))

    def _collect_and_remove(self, engine: Engine) -> list[str]:
        problems: list[str] = []
        try:
            for estate in docker_engine.estates(engine.client, self.run):
                problems += docker_engine.collect_logs(estate, self._folder)
            docker_engine.remove(engine.client, self.run)
        except PlaceError as problem:
            problems.append(str(problem))
        finally:
            engine.close()
        return problems

    # ---- details

    def _node(self, node: str) -> DockerNode:
        try:
            return self._nodes[node]
        except KeyError:
            raise PlaceError(f"there is no node {node}; the place has {', '.join(self._nodes) or 'none yet'}") from None


def _node_user(engine: Engine) -> str:
    """Who nodes run as: this user, whose folders they write to. A rootless engine maps its root to this user."""
    options = engine.client.info().get("SecurityOptions") or ()
    return "0:0" if "name=rootless" in options else f"{os.getuid()}:{os.getgid()}"
