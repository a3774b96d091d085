"""Nodes in Docker containers, on a network of the run's own, cut by packet filter.

Each node has two containers. The first, of the agent (`cluster.places.docker_agent`), owns the network: addresses,
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

Cuts end by themselves when they are not renewed (`cluster.places.docker_links`). Everything bears the labels of
`cluster.places.docker_engine`, by which `fencepost heal` and `fencepost clean` find what a harness that was killed has
left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import psutil
from docker.models.containers import Container
from docker.models.networks import Network
from docker.types import LogConfig, Mount

from cluster.concurrency import all_of
from cluster.image import build
from cluster.places import docker_engine, vdso
from cluster.places.base import (
    Capability,
    Clock,
    ClockSetting,
    DiskMode,
    DiskReport,
    Link,
    LinkCounts,
    PlaceError,
    ProcessState,
    Shaping,
    usable,
)
from cluster.places.controls import Controls
from cluster.places.docker_agent import AGENT_PORT, SECRET_VARIABLE
from cluster.places.docker_engine import (
    AGENT_ROLE,
    FOLDER_LABEL,
    HARNESS_LABEL,
    NODE_LABEL,
    NODE_ROLE,
    ROLE_LABEL,
    RUN_LABEL,
    Engine,
)
from cluster.places.docker_links import LOOPBACK, Agents
from cluster.places.node_log import NodeLog
from cluster.places.ownership import Harness
from cluster.places.vdso import VdsoClock, VdsoError
from cluster.systems.base import Address, Launch, NodeView, Python, System

T = TypeVar("T")

NODE_PORT = 7420
#: The node's folder of the run, as its container sees it.
HOME = PurePosixPath("/node")

#: What a container may use. A lock node needs a tenth of it; a runaway one must not take the machine down.
NODE_MEMORY = "512m"
NODE_PROCESSES_MAX = 256
NODE_CPUS = 1.0
AGENT_MEMORY = "96m"
AGENT_PROCESSES_MAX = 64
LOG_SIZE_MAX = "50m"

#: An agent is an interpreter that starts and installs its rules; with many at once that takes a second.
AGENT_BUDGET_S = 20.0
AGENT_POLL_S = 0.05
#: What the kernel answers at once if there is a way at all.
DIRECT_BUDGET_S = 1.0

STOP_BUDGET_S = 3
END_BUDGET_S = 10.0
STATE_POLL_S = 0.02
SETTLE_BUDGET_S = 20.0
LOG_TAIL_LINES = 15
#: What a shell and Docker add to the number of the signal that ended a process.
SIGNAL_BASE = 128

LOG_NAME = "node.log"
#: What a node prints goes to its folder, where it can be read while it runs.
_INTO_LOG = f'exec "$@" >>{HOME / LOG_NAME} 2>&1'

#: Tells a node's process from others that have the same number elsewhere.
NODE_VARIABLE = "FENCEPOST_NODE"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Network:
    """What an agent's container owns: `inner` is where nodes find this one, `published` where this machine does."""

    container: Container
    inner: Address
    published: Address
    control: Address  # of the agent itself


@dataclass(slots=True, eq=False)
class _Node:
    view: NodeView
    network: _Network
    log: NodeLog
    container: Container | None = None
    wall: VdsoClock | None = None  # of the current process
    started: bool = False
    doomed: bool = False  # told to end; it may be alive for a moment yet
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change of a node at a time


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
            Capability.TURN_LEASE_CLOCKS,
            Capability.BREAK_DISKS,
            *([Capability.TURN_WALL_CLOCKS] if vdso.supported() else []),
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
        self._image = ""
        self._user = ""
        self._nodes: dict[str, _Node] = {}
        self._direct = False
        self._equipment: frozenset[Capability] = frozenset()
        self._gateway = ""  # where packets come from that this machine sends to containers directly

    def equip(self, capabilities: Collection[Capability]) -> None:
        self._controls.equip(capabilities, self.system)
        self._equipment = usable(capabilities, self.system)

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
        self._engine = await asyncio.to_thread(Engine)
        self._image = await self._engine.call("the image", build.ensure, self._engine.client, logger.info)
        self._user = await self._engine.call("the engine's kind", self._node_user)
        inner, outer = await all_of([self._make_network("nodes", True), self._make_network("clients", False)])
        networks = dict(
            zip(self.nodes, await all_of(self._start_agent(node, inner, outer) for node in self.nodes), strict=True)
        )
        for node, network in networks.items():
            self._agents.add(node, network.control, network.inner)
        await all_of(self._await_agent(node, network.container) for node, network in networks.items())
        for node, network in networks.items():
            (self._home(node) / "data").mkdir(parents=True, exist_ok=True)
            controls = self._controls.lay_out(node, self._home(node), HOME)
            view = NodeView(
                node,
                Address("0.0.0.0", NODE_PORT),
                await self._peers(node, networks),
                Path(HOME / "data"),
                controls.clock,
                controls.disk,
                advertise=network.inner,
                python=Python(["python3", "-m"]),
            )
            self._nodes[node] = _Node(view, network, NodeLog(self._home(node) / LOG_NAME))
        self._direct = await self._reachable(network.inner.host for network in networks.values())
        await self._connected.call("the network could not be looked at", inner.reload)
        self._gateway = str(inner.attrs["IPAM"]["Config"][0]["Gateway"])

    async def _peers(self, node: str, networks: Mapping[str, _Network]) -> dict[str, Address]:
        """Where a node reaches the others: through its agent, if the run is going to shape links."""
        if self._equipment & {Capability.SHAPE_LINKS, Capability.SHAPE_FRAMES}:
            return await self._agents.proxy_links(node, framed=Capability.SHAPE_FRAMES in self._equipment)
        return {peer: network.inner for peer, network in networks.items() if peer != node}

    def _home(self, node: str) -> Path:
        return self._folder / "nodes" / node

    def _node_user(self) -> str:
        """Who nodes run as: this user, whose folders they write to. A rootless engine maps its root to this user."""
        options = self._connected.client.info().get("SecurityOptions") or ()
        return "0:0" if "name=rootless" in options else f"{os.getuid()}:{os.getgid()}"

    async def _make_network(self, use: str, internal: bool) -> Network:
        client = self._connected.client
        options = {
            "com.docker.network.bridge.enable_icc": "false",
            "com.docker.network.bridge.enable_ip_masquerade": "false",
        }
        return await self._connected.call(
            f"the network for {use} could not be made",
            client.networks.create,
            self._container_name(use),
            driver="bridge",
            internal=internal,
            options=None if internal else options,
            labels=self._labels(),
        )

    async def _start_agent(self, node: str, inner: Network, outer: Network) -> _Network:
        def work() -> _Network:
            # Port 0: the engine chooses one that is free.
            ports = {f"{port}/tcp": (LOOPBACK, 0) for port in (NODE_PORT, AGENT_PORT)}
            container = self._connected.client.containers.create(
                self._image,
                ["python3", "-m", "cluster.places.docker_agent", *self._agent_arguments],
                **self._common(node, AGENT_ROLE),
                hostname=node,
                environment={SECRET_VARIABLE: self._agents.secret},
                network=outer.name,
                ports=ports,
                cap_add=["NET_ADMIN"],
                mem_limit=AGENT_MEMORY,
                pids_limit=AGENT_PROCESSES_MAX,
            )
            inner.connect(container, aliases=[node])
            container.start()
            container.reload()
            network = container.attrs["NetworkSettings"]
            published = {port: int(network["Ports"][f"{port}/tcp"][0]["HostPort"]) for port in (NODE_PORT, AGENT_PORT)}
            return _Network(
                container,
                Address(network["Networks"][inner.name]["IPAddress"], NODE_PORT),
                Address(LOOPBACK, published[NODE_PORT]),
                Address(LOOPBACK, published[AGENT_PORT]),
            )

        return await self._connected.call(f"the network of {node} could not be made", work)

    def _common(self, node: str, role: str) -> dict[str, Any]:
        """What both containers of a node have."""
        return {
            "name": self._container_name(f"{node}-{role}"),
            "labels": self._labels() | {NODE_LABEL: node, ROLE_LABEL: role},
            "init": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": LOG_SIZE_MAX}),
        }

    def _container_name(self, use: str) -> str:
        return f"fencepost-{self.run}-{use}"

    def _labels(self) -> dict[str, str]:
        return {RUN_LABEL: self.run, HARNESS_LABEL: str(Harness.this()), FOLDER_LABEL: str(self._folder)}

    async def _await_agent(self, node: str, container: Container) -> None:
        deadline = time.monotonic() + AGENT_BUDGET_S
        while True:
            try:
                await self._agents.check(node)
            except PlaceError as problem:
                state = await self._inspect(container)
                if not state["Running"] or time.monotonic() > deadline:
                    told = await self._connected.call("the log of an agent", container.logs, tail=LOG_TAIL_LINES)
                    raise PlaceError(f"the agent of {node} {_fate(state)}: {problem}; {told.decode()}") from problem
                await asyncio.sleep(AGENT_POLL_S)
            else:
                return

    async def _reachable(self, hosts: Iterable[str]) -> bool:
        """Whether this machine reaches the containers' own addresses."""
        try:
            async with asyncio.timeout(DIRECT_BUDGET_S):
                for host in hosts:
                    _, writer = await asyncio.open_connection(host, AGENT_PORT)
                    writer.close()
        except OSError:
            return False
        return True

    # ---- nodes

    def address(self, node: str) -> Address:
        network = self._node(node).network
        return network.inner if self._direct and Capability.CUT_CLIENTS not in self._equipment else network.published

    def client_address(self, node: str) -> Address:
        network = self._node(node).network
        return network.inner if self._direct else network.published

    async def start_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            if entry.doomed:
                # Whoever told it to end was interrupted before it had; what dies now can't count as running.
                await self._kill(entry)
            if await self._state(entry) is not ProcessState.DEAD:
                return
            if entry.container is None:
                launch = self.system.launch(entry.view)  # not in a thread: a system need not expect those
                entry.container = await self._connected.call(
                    f"{node} could not be made", self._create, node, entry.network.container, launch
                )
            entry.doomed, entry.wall = False, None
            entry.log.begin()
            await self._connected.call(f"{node} could not be started", entry.container.start)
            entry.started = True

    def _create(self, node: str, network: Container, launch: Launch) -> Container:
        home = Mount(str(HOME), str(self._home(node)), type="bind")
        return self._connected.client.containers.create(
            self._image,
            ["sh", "-c", _INTO_LOG, "sh", *launch.argv],
            **self._common(node, NODE_ROLE),
            environment={**launch.env, NODE_VARIABLE: self._container_name(node)},
            network_mode=f"container:{network.id}",
            mounts=[home],
            working_dir=str(HOME),
            user=self._user,
            mem_limit=NODE_MEMORY,
            memswap_limit=NODE_MEMORY,
            pids_limit=NODE_PROCESSES_MAX,
            nano_cpus=round(NODE_CPUS * 1e9),
        )

    async def kill_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            await self._kill(entry)

    async def stop_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            entry.doomed = True
            state = await self._state(entry)
            if state is ProcessState.DEAD:
                return
            if state is ProcessState.PAUSED:
                await self._change(entry, "thawed", lambda container: container.unpause())
            await self._change(entry, "stopped", lambda container: container.stop(timeout=STOP_BUDGET_S))

    async def pause_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            if await self._state(entry) is ProcessState.RUNNING:
                await self._change(entry, "frozen", lambda container: container.pause())
            if await self._state(entry) is ProcessState.DEAD:
                raise PlaceError(f"a dead node can't be paused: {await self.account(node)}")

    async def resume_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            if await self._state(entry) is ProcessState.PAUSED:
                await self._change(entry, "thawed", lambda container: container.unpause())

    async def state(self, node: str) -> ProcessState:
        return await self._state(self._node(node))

    async def account(self, node: str) -> str:
        entry = self._node(node)
        if entry.container is None or not entry.started:
            return f"{node} was never started; it logged nothing"
        state = await self._inspect(entry.container)
        return f"{node} {_fate(state)}; {entry.log.tail()}"

    # ---- links

    async def set_cuts(self, links: Iterable[Link]) -> None:
        await self._agents.set_cuts(links)

    async def probe_link(self, link: Link, timeout: float) -> bool:
        self._node(link.source)
        self._node(link.target)
        async with self._agents.probe_address(link) as address:
            return await self.system.probe(address, timeout)

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
        await self._agents.cut_clients(nodes, self._gateway)

    # ---- clocks, disks and logs

    async def turn_clock(self, node: str, clock: Clock, setting: ClockSetting) -> None:
        entry = self._node(node)
        if clock is Clock.LEASE:
            self._controls.turn_clock(node, setting)
            return
        async with entry.lock:
            if await self._state(entry) is ProcessState.DEAD:
                raise PlaceError(f"{node} is dead, and has no clock")
            if entry.wall is None:
                entry.wall = await _patching(partial(VdsoClock, await self._pid(entry)))
            await _patching(partial(entry.wall.turn, setting.step_ns, setting.rate))

    async def true_clock(self, node: str, clock: Clock) -> None:
        if clock is Clock.LEASE:
            self._controls.true_clock(node)
            return
        entry = self._node(node)
        async with entry.lock:
            # A process that was started since then has the true time.
            if entry.wall is not None and await self._state(entry) is not ProcessState.DEAD:
                await _patching(entry.wall.right)

    async def _pid(self, entry: _Node) -> int:
        """The node's process as this machine numbers it. Raises PlaceError when it can't be seen from here."""
        node = entry.view.id
        assert entry.container is not None
        init = (await self._inspect(entry.container))["Pid"]
        try:
            # The container's first process is the engine's init; whatever else runs there is the node.
            (process,) = psutil.Process(init).children()
            named = process.environ().get(NODE_VARIABLE)
        except (psutil.Error, ValueError, OSError) as problem:
            raise PlaceError(f"the process of {node} can't be reached from here ({problem}); as root, it can") from None
        if named != self._container_name(node):
            raise PlaceError(f"the process of {node} can't be seen from here: the engine runs on another machine")
        return process.pid

    async def break_disk(self, node: str, mode: DiskMode | None, slow_ms: int = 0) -> None:
        self._controls.break_disk(node, mode, slow_ms)

    async def disk_report(self, node: str) -> DiskReport:
        return self._controls.disk_report(node)

    async def read_log(self, node: str, offset: int) -> tuple[bytes, int]:
        return self._node(node).log.read(offset)

    # ---- the end

    async def close(self) -> None:
        await self._agents.close()
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

    @property
    def _connected(self) -> Engine:
        if self._engine is None:
            raise PlaceError("the place is not open: it has no containers")
        return self._engine

    def _node(self, node: str) -> _Node:
        try:
            return self._nodes[node]
        except KeyError:
            raise PlaceError(f"there is no node {node}; the place has {', '.join(self._nodes) or 'none yet'}") from None

    async def _inspect(self, container: Container) -> Mapping[str, Any]:
        """The engine's word on a container's process."""
        assert container.id is not None
        inspect = self._connected.client.api.inspect_container
        answer = await self._connected.call("a container could not be inspected", inspect, container.id)
        state: Mapping[str, Any] = answer["State"]
        return state

    async def _state(self, entry: _Node) -> ProcessState:
        if entry.container is None:
            return ProcessState.DEAD
        state = await self._inspect(entry.container)
        if state["Paused"]:
            return ProcessState.PAUSED
        return ProcessState.RUNNING if state["Running"] else ProcessState.DEAD

    async def _kill(self, entry: _Node) -> None:
        entry.doomed = True
        if await self._state(entry) is ProcessState.DEAD:
            return
        await self._change(entry, "killed", lambda container: container.kill())
        deadline = time.monotonic() + END_BUDGET_S
        while await self._state(entry) is not ProcessState.DEAD:
            if time.monotonic() > deadline:
                raise PlaceError(f"{entry.view.id} did not end {END_BUDGET_S:g}s after SIGKILL")
            await asyncio.sleep(STATE_POLL_S)

    async def _change(self, entry: _Node, done: str, work: Callable[[Container], object]) -> None:
        """Do something to a node's container. That it died meanwhile by itself is no failure."""
        assert entry.container is not None
        try:
            await self._connected.call(f"{entry.view.id} could not be {done}", work, entry.container)
        except PlaceError:
            if await self._state(entry) is not ProcessState.DEAD:
                raise


async def _patching(step: Callable[[], T]) -> T:
    """Do it in a thread, since processes are stopped and waited for; to its end whoever is cancelled meanwhile."""
    try:
        return await asyncio.shield(asyncio.to_thread(step))
    except VdsoError as problem:
        raise PlaceError(str(problem)) from problem


def _fate(state: Mapping[str, Any]) -> str:
    if state["Paused"]:
        return "is frozen"
    if state["Running"]:
        return "is running"
    code = state["ExitCode"]
    if state["OOMKilled"]:
        return f"was ended for want of memory (its limit is {NODE_MEMORY})"
    if code > SIGNAL_BASE and code - SIGNAL_BASE in set(signal.Signals):
        return f"was ended by {signal.Signals(code - SIGNAL_BASE).name}"
    return f"exited with code {code}" + (f" ({state['Error']})" if state["Error"] else "")
