"""The place `sim`: a cluster in this process, in virtual time, from one seed.

Nodes are the cores of `lockd` (or of a mutant); the testbed's clients, nemesis and monitor run as they do anywhere, on
a `VirtualLoop`, through the client library of `lockd`. The same scenario and seed give the same history, byte for byte.

Beside its faults a seed also draws the weather of the run: how fast links and disks are, and how often a node takes a
snapshot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.node.core import SNAPSHOT_EVERY, Applied, Core
from cluster.node.members import Members
from cluster.node.steward import Proposed
from cluster.node.storage import Storage
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
    ProcessState,
    Shaping,
    Usage,
)
from cluster.places.sim.draws import Quick, stream
from cluster.places.sim.loop import VirtualLoop
from cluster.places.sim.network import MS, PLAIN, US, Connection, Gateway, Latency, SimLink, connect
from cluster.places.sim.node import SimNode
from cluster.systems.base import Address, NodeStatus, System
from cluster.systems.lockd import told

#: Clients and whoever watches connect to different ports: faults of clients spare the latter.
CLIENT_PORT, WATCH_PORT = 1, 2

#: As long as a real process may take to stop.
STOP_BUDGET_S = 3.0
STOP_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Weather:
    """What is the same for a whole run."""

    latency: Latency
    fsync: Latency
    snapshot_every: int

    @classmethod
    def of(cls, seed: int) -> Weather:
        draws = stream(seed, "weather")
        far = draws.choice((1, 2, 2, 5))
        disk = draws.choice((1, 2, 2, 8))
        return cls(
            Latency(100 * US, far * MS, 30 * far * MS, draws.choice((0.0, 0.001, 0.01))),
            Latency(200 * US, disk * MS, 50 * disk * MS, draws.choice((0.0, 0.001, 0.01))),
            draws.choice((100, 1_000, SNAPSHOT_EVERY)),
        )


class SimPlace:
    """See `cluster.places.base.Place`. It has to be used on the loop that `new_loop` made."""

    name = "sim"
    capabilities = frozenset(Capability) - {Capability.CUT_PORTS, Capability.STARVE_MEMORY, Capability.MOUNT_DISKS}
    new_loop = VirtualLoop

    def __init__(self, system: System, nodes: Sequence[str], folder: Path, *, seed: int = 0) -> None:
        """Raises PlaceError for a system that can't be simulated."""
        reason = self.unfit(system)
        if reason is not None:
            raise PlaceError(f"the place sim can't run {system.name}: {reason}")
        self.system = system
        self.nodes: Sequence[str] = tuple(nodes)
        self._folder = folder
        self._seed = seed
        self._core_type: type[Core] = getattr(system, "core_type", Core)
        self._storage_type: type[Storage] = getattr(system, "storage_type", Storage)
        self._nodes: dict[str, SimNode] = {}
        self._links: dict[Link, SimLink] = {}
        self._gateways = {node: Gateway() for node in nodes}
        self._connections = 0
        self._closed = False
        self._leaders: dict[int, str] = {}
        self._rivals: list[str] = []

    @staticmethod
    def unfit(system: System) -> str | None:
        return None if hasattr(system, "core_type") else "it simulates lockd and its mutants, and nothing else"

    # ---- processes

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        if not isinstance(loop, VirtualLoop):
            raise PlaceError("the place sim needs an event loop in virtual time")
        self._loop = loop
        loop.connector = self._connect
        weather = Weather.of(self._seed)
        members = Members.of_voters({node: f"{node}:{CLIENT_PORT}" for node in self.nodes})
        for node in self.nodes:
            self._nodes[node] = SimNode(
                loop, self._seed, node, members, self._core_type, self._storage_type, weather.fsync,
                weather.snapshot_every, self._see_leader,
            )  # fmt: skip
        for source in self.nodes:
            for target in self.nodes:
                if source != target:
                    link = Link(source, target)
                    draws = stream(self._seed, "link", source, target)
                    self._links[link] = SimLink(loop, source, self._nodes[target], weather.latency, draws)
                    self._nodes[source].links[target] = self._links[link]
        for made in self._nodes.values():
            made.start()

    async def _connect(self, host: str, port: int, protocol: asyncio.Protocol) -> Connection:
        node = self._node(host)
        self._connections += 1
        index = self.nodes.index(host)
        draws = Quick(self._seed, index, port, self._loop.now)
        gateway = self._gateways[host] if port == CLIENT_PORT else None
        return await connect(self._loop, node, gateway, protocol, draws)

    def address(self, node: str) -> Address:
        return Address(node, WATCH_PORT)

    def client_address(self, node: str) -> Address:
        return Address(node, CLIENT_PORT)

    async def start_node(self, node: str) -> None:
        self._node(node).start()

    async def starve_node(self, node: str, limits: Limits) -> None:
        self._node(node).starve(limits.cpu)

    async def usage(self, node: str) -> Usage:
        if self._node(node).state is ProcessState.DEAD:
            raise PlaceError(f"{node} is dead, and uses nothing")
        return self._node(node).usage()

    async def kill_node(self, node: str) -> None:
        self._node(node).kill()

    async def stop_node(self, node: str) -> None:
        target = self._node(node)
        deadline = self._loop.time() + STOP_BUDGET_S
        if target.leave():
            while target.core is not None and target.core.leads and self._loop.time() < deadline:
                await asyncio.sleep(STOP_POLL_S)
        target.stop()

    async def pause_node(self, node: str) -> None:
        self._node(node).pause()

    async def resume_node(self, node: str) -> None:
        self._node(node).resume()

    async def state(self, node: str) -> ProcessState:
        return self._node(node).state

    async def account(self, node: str) -> str:
        return self._node(node).account()

    async def close(self) -> None:
        """Every node ends where it is; what they logged goes into the run's folder."""
        if self._closed:
            return
        self._closed = True
        for name, node in self._nodes.items():
            home = self._folder / "nodes" / name
            home.mkdir(parents=True, exist_ok=True)
            (home / "node.log").write_text("".join(f"{line}\n" for line in node.log), encoding="utf-8")
            node.stop()

    # ---- links

    async def set_cuts(self, links: Iterable[Link]) -> None:
        cut = set(links)
        for unknown in cut - self._links.keys():
            raise PlaceError(f"there is no link {unknown}")
        for link, wire in self._links.items():
            wire.set_cut(link in cut)

    async def probe_link(self, link: Link, timeout: float) -> bool:
        """The way there obeys the link, the way back is always whole; a node that is dead or paused answers nothing."""
        passed: asyncio.Future[bool] = self._loop.create_future()
        target = self._node(link.target)

        def arrived() -> None:
            if not passed.done() and target.status() is not None:
                self._loop.after(US, answer)

        def answer() -> None:
            if not passed.done():
                passed.set_result(True)

        self._links[link].probe(arrived)
        try:
            async with asyncio.timeout(timeout):
                return await passed
        except TimeoutError:
            return False

    async def shape_links(self, shapings: Mapping[Link, Shaping]) -> None:
        for link, wire in self._links.items():
            wire.shape(shapings.get(link, PLAIN))

    async def reset_links(self, links: Collection[Link]) -> int:
        for link in links:
            self._links[link].reset()
        return len(links)

    async def link_counts(self, link: Link) -> LinkCounts:
        return self._links[link].measure()

    async def cut_clients(self, nodes: Collection[str]) -> None:
        for node, gateway in self._gateways.items():
            gateway.set_cut(node in nodes)

    # ---- clocks and disks

    async def turn_clock(self, node: str, clock: Clock, setting: ClockSetting) -> None:
        if self._node(node).state is ProcessState.DEAD:
            raise PlaceError(f"{node} isn't running: it has no clock to turn")
        self._node(node).turn_clock(clock, setting)

    async def true_clock(self, node: str, clock: Clock) -> None:
        self._node(node).true_clock(clock)

    async def break_disk(self, node: str, mode: DiskMode | None, slow_ms: int = 0) -> None:
        self._node(node).break_disk(mode, slow_ms)

    async def disk_report(self, node: str) -> DiskReport:
        return self._node(node).disk_report()

    async def read_data(self, node: str) -> Mapping[str, bytes]:
        return self._node(node).read_data()

    async def replace_data(self, node: str, files: Mapping[str, bytes]) -> None:
        self._dead(node).replace_data(files)

    async def wipe_node(self, node: str) -> None:
        self._dead(node).wipe()

    def _dead(self, node: str) -> SimNode:
        if self._node(node).state is not ProcessState.DEAD:
            raise PlaceError(f"{node} runs: its data can't be replaced")
        return self._node(node)

    # ---- looking at it

    async def read_log(self, node: str, offset: int) -> tuple[bytes, int]:
        lines = self._node(node).log
        if offset < 0:
            return b"", len(lines)
        return "".join(f"{line}\n" for line in lines[offset:]).encode(), len(lines)

    def applied(self) -> Mapping[str, Sequence[tuple[int, int, Applied]]]:
        """What each node has applied, in the order in which it did: in which of its lives, and when (ns)."""
        return {name: node.applied for name, node in self._nodes.items()}

    def proposed(self) -> Mapping[str, Sequence[Proposed]]:
        """What came into each node's log for tagged requests while it led."""
        return {name: node.proposed for name, node in self._nodes.items()}

    def edges(self) -> frozenset[int]:
        """What the nodes' cores have reached (`cluster.places.sim.reached`)."""
        return frozenset().union(*(node.reached.edges() for node in self._nodes.values()))

    def seen(self, node: str) -> NodeStatus | None:
        says = self._node(node).status()
        return None if says is None else told(says)

    def failures(self) -> Sequence[str]:
        """Nodes that ended by themselves, and terms with two leaders."""
        return [*self._rivals, *(failure for node in self._nodes.values() for failure in node.failures)]

    def _see_leader(self, node: str, term: int) -> None:
        first = self._leaders.setdefault(term, node)
        if first != node:
            self._rivals.append(f"{first} and {node} both led term {term}")

    def _node(self, node: str) -> SimNode:
        try:
            return self._nodes[node]
        except KeyError:
            raise PlaceError(f"there is no node {node}; the place has {', '.join(self._nodes) or 'none yet'}") from None
