"""The networks of a run in Docker, and the agents' containers, which own what nodes have of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from docker.models.containers import Container
from docker.models.networks import Network

from cluster.concurrency import all_of
from cluster.places.agent import AGENT_PORT, SECRET_VARIABLE
from cluster.places.agent_links import LOOPBACK, Agents
from cluster.places.base import PlaceError
from cluster.places.docker_containers import Containers, fate
from cluster.places.docker_engine import AGENT_ROLE
from cluster.places.packet_filter import NODE_PORT
from cluster.systems.base import Address

AGENT_MEMORY = "96m"
AGENT_PROCESSES_MAX = 64

#: An agent is an interpreter that starts and installs its rules; with many at once that takes a second.
AGENT_BUDGET_S = 20.0
AGENT_POLL_S = 0.05
#: What the kernel answers at once if there is a way at all.
DIRECT_BUDGET_S = 1.0

LOG_TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """What an agent's container owns: `inner` is where nodes find this one, `published` where this machine does, and
    `ports` where nodes find the ports of its system beside the main one."""

    container: Container
    inner: Address
    published: Address
    control: Address  # of the agent itself
    ports: Mapping[str, Address]


@dataclass(frozen=True, slots=True)
class Networks:
    """`direct`: this machine reaches the containers' own addresses; then its packets come from `gateway`."""

    by_node: Mapping[str, NodeNetwork]
    direct: bool
    gateway: str


async def lay_out(
    containers: Containers, agents: Agents, nodes: Sequence[str], ports: Sequence[str], agent_arguments: Sequence[str]
) -> Networks:
    """Make them; returns when every agent answers. `ports`: those of the system beside the main one. Raises
    PlaceError."""
    inner, outer = await all_of(
        [_make_network(containers, "nodes", internal=True), _make_network(containers, "clients", internal=False)]
    )
    numbers = {port: NODE_PORT + position for position, port in enumerate(ports, start=1)}
    made = await all_of(
        _start_agent(containers, agents, node, (inner, outer), numbers, agent_arguments) for node in nodes
    )
    by_node = dict(zip(nodes, made, strict=True))
    for node, network in by_node.items():
        agents.add(node, network.control, network.inner, network.ports)
    await all_of(_await_agent(containers, agents, node, network.container) for node, network in by_node.items())
    await containers.engine.call("the network could not be looked at", inner.reload)
    return Networks(
        by_node,
        await _reachable(network.inner.host for network in by_node.values()),
        str(inner.attrs["IPAM"]["Config"][0]["Gateway"]),
    )


async def _make_network(containers: Containers, use: str, *, internal: bool) -> Network:
    options = {
        "com.docker.network.bridge.enable_icc": "false",
        "com.docker.network.bridge.enable_ip_masquerade": "false",
    }
    return await containers.engine.call(
        f"the network for {use} could not be made",
        containers.engine.client.networks.create,
        containers.name(use),
        driver="bridge",
        internal=internal,
        options=None if internal else options,
        labels=containers.labels(),
    )


async def _start_agent(
    containers: Containers,
    agents: Agents,
    node: str,
    networks: tuple[Network, Network],
    numbers: Mapping[str, int],
    arguments: Sequence[str],
) -> NodeNetwork:
    inner, outer = networks

    def work() -> NodeNetwork:
        # Port 0: the engine chooses one that is free.
        ports = {f"{port}/tcp": (LOOPBACK, 0) for port in (NODE_PORT, AGENT_PORT)}
        container = containers.engine.client.containers.create(
            **containers.common(node, AGENT_ROLE),
            command=["python3", "-m", "cluster.places.agent", *arguments],
            hostname=node,
            environment={SECRET_VARIABLE: agents.secret},
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
        host = network["Networks"][inner.name]["IPAddress"]
        return NodeNetwork(
            container,
            Address(host, NODE_PORT),
            Address(LOOPBACK, published[NODE_PORT]),
            Address(LOOPBACK, published[AGENT_PORT]),
            {port: Address(host, number) for port, number in numbers.items()},
        )

    return await containers.engine.call(f"the network of {node} could not be made", work)


async def _await_agent(containers: Containers, agents: Agents, node: str, container: Container) -> None:
    deadline = time.monotonic() + AGENT_BUDGET_S
    while True:
        try:
            await agents.check(node)
        except PlaceError as problem:
            state = await containers.inspect(container)
            if not state["Running"] or time.monotonic() > deadline:
                told = await containers.engine.call("the log of an agent", container.logs, tail=LOG_TAIL_LINES)
                raise PlaceError(f"the agent of {node} {fate(state)}: {problem}; {told.decode()}") from problem
            await asyncio.sleep(AGENT_POLL_S)
        else:
            return


async def _reachable(hosts: Iterable[str]) -> bool:
    """Whether this machine reaches the containers' own addresses."""
    try:
        async with asyncio.timeout(DIRECT_BUDGET_S):
            for host in hosts:
                _, writer = await asyncio.open_connection(host, AGENT_PORT)
                writer.close()
    except OSError:
        return False
    return True
