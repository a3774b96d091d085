"""What the testbed asks of a lock service: how to start it, when it is ready, who leads, and a client of it.

One module per system implements `System`; nothing else in the testbed knows a system by name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Feature(StrEnum):
    """What a system offers to whoever breaks it. Named in `features`; a system that has no such attribute has none."""

    #: A node reads the clock of its leases from the file `NodeView.clock` (see `cluster.node.clock`).
    LEASE_CLOCK = "lease-clock"
    #: A node's disk does what the file `NodeView.disk` says (see `cluster.faulty`).
    DISK = "disk"
    #: What nodes send to each other are frames: four bytes, the big end first, that say how long the rest is.
    FRAMES = "frames"
    #: Leadership is moved on request (`MovesLeadership`).
    TRANSFER = "transfer"
    #: Nodes are removed and added while it runs (`ChangesMembers`).
    MEMBERS = "members"
    #: Nodes notice when what one sends to another was changed on its way, and refuse it.
    SEALED = "sealed"
    #: All that a node must not lose is in the folder `NodeView.data`, which may be on a disk that fails.
    DATA = "data"
    #: A node listens at more than one port (`HasPorts`).
    PORTS = "ports"
    #: No lease of it runs on the wall clock, so that moving that one excuses nothing.
    NO_WALL_CLOCK = "no-wall-clock"


@dataclass(frozen=True, slots=True)
class Python:
    """How modules of this project are run where a node runs: what the command begins with (a module's name follows),
    and what belongs into its environment."""

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


def python_here() -> Python:
    """As this process runs them."""
    # -P: a folder called `cluster` where the user happens to stand must not be taken for ours.
    path = os.pathsep.join(filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")]))
    return Python([sys.executable, "-P", "-m"], {"PYTHONPATH": path})


#: The port of `NodeView.listen`, among those of a system that has several.
MAIN_PORT = "main"


@dataclass(frozen=True, slots=True)
class Port:
    """Another port of a node: where it listens, under which addresses it reaches that port of its peers, and where
    others find it, if not where it listens."""

    listen: Address
    peers: Mapping[str, Address]
    advertise: Address | None = None


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as a place laid it out: where it listens, and under which addresses it reaches its peers.

    The peers' addresses are those of this node's own links, which the place can cut; they differ from node to node.
    `advertise` is where others find this node, if not where it listens.
    `clock` and `disk` are control files, where the run is going to use them and the system has the feature.
    `ports` are those beside the one of `listen`, by the names that the system gives them (`HasPorts`).
    `hostile`: what nodes send to each other is going to be changed on its way; only with Feature.SEALED.
    `join`: the node has lost its data, and waits to be added to the cluster of its peers; only with Feature.MEMBERS.
    """

    id: str
    listen: Address
    peers: Mapping[str, Address]
    data: Path
    clock: Path | None = None
    disk: Path | None = None
    advertise: Address | None = None
    python: Python = field(default_factory=python_here)
    join: bool = False
    ports: Mapping[str, Port] = field(default_factory=dict)
    hostile: bool = False

    @property
    def applied(self) -> Path:
        """Where a system writes down what it applies, if it can, in the form of `cluster.node.record`: in the folder of
        the node that places collect, beside its data."""
        return self.data.parent / "applied.jsonl"


@dataclass(frozen=True, slots=True)
class Launch:
    """The command that runs a node in the foreground."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)


class Member(NamedTuple):
    """One node of a cluster's configuration: where the others find it, and whether it votes."""

    address: str
    votes: bool


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """What a node says of itself. `counters` only grow while the node's process (`incarnation`) lives.

    Counters that every system should have where it can: "grants", "releases" and "expiries", each the number of such
    commands in the replicated log that the node has applied (so nodes agree on them); others count what this process
    did by itself. `lease_ns` and `wall_ns` are what the node's clocks said when it answered, and `members` who belongs
    to the cluster, by name, as far as the node knows; where it tells.
    """

    id: str
    incarnation: int
    term: int
    leads: bool
    leader: str | None
    counters: Mapping[str, int] = field(default_factory=dict)
    lease_ns: int | None = None
    wall_ns: int | None = None
    members: Mapping[str, Member] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a client's call ended.

    `ok`: it happened. `fail`: it definitely did not happen, `error` says why ("held" and "not-held" are observations
    of the lock, anything else says nothing about it). `info`: nobody knows; it may take effect at any later time.
    """

    type: Literal["ok", "fail", "info"]
    value: dict[str, Any] | None = None
    error: str | None = None


class LockClient(Protocol):
    """A client with one connection to one node. A call never raises for what the service or the network did: that
    is an `Outcome`. After an `info` the client must be closed and replaced."""

    async def acquire(self, key: str, lease_ms: int, wait_ms: int) -> Outcome:
        """Acquire; `ok` carries {"token": int}. `wait_ms` 0 answers "held" at once."""

    async def release(self, key: str, token: int) -> Outcome:
        """Release the grant `token`; `fail` "not-held" when the key is not held under it."""

    async def inspect(self, key: str) -> Outcome:
        """Linearizable read of the holder; `ok` carries {"token": int | None}."""

    async def close(self) -> None: ...


@runtime_checkable
class TagsRequests(Protocol):
    """A client whose nodes write down for which request an entry came into their log. `tag` is what the next call is
    called there."""

    tag: str


class NodeUnreachable(Exception):
    """The node gave no answer (within the time-out). Says nothing about why."""


@runtime_checkable
class HasPorts(Protocol):
    """A system with Feature.PORTS. `ports` names those beside the one of `NodeView.listen`, which is called main."""

    ports: Sequence[str]

    async def probe_port(self, port: str, address: Address, timeout: float) -> bool:
        """As `System.probe`, at one of these."""


@runtime_checkable
class MovesLeadership(Protocol):
    """A system with Feature.TRANSFER."""

    async def move_leadership(self, leader: Address, to: str, timeout: float) -> Outcome:
        """Ask the leader to hand leadership to the node `to`; whether it does so is seen by who leads then. A node that
        doesn't lead refuses. Never raises."""


@runtime_checkable
class ChangesMembers(Protocol):
    """A system with Feature.MEMBERS. Changes are asked of the leader itself, which passes none on: so what was not
    answered in time comes true soon or never. `ok`: the change is final. `fail`: it was not begun. `info`: it may have
    been. Who asks for what is so already gets `ok`. Never raises."""

    async def add_member(self, leader: Address, node: str, where: str, timeout: float) -> Outcome:
        """Have a node, which others find at `where`, get the data and then vote."""

    async def remove_member(self, leader: Address, node: str, timeout: float) -> Outcome:
        """Have a node, which may be the leader, belong to the cluster no more."""


class System(Protocol):
    """A lock service under test."""

    name: str
    #: Tokens increase over all keys, not only within each.
    tokens_span_keys: bool

    def launch(self, node: NodeView) -> Launch:
        """The command that starts `node`, again after a crash as well as the first time."""

    async def status(self, address: Address, timeout: float) -> NodeStatus:
        """Ask one node directly (no forwarding). `timeout` in seconds. Raises NodeUnreachable."""

    async def ready(self, address: Address, timeout: float) -> bool:
        """Whether a client of this node is served: a linearizable read succeeds. Never raises."""

    async def probe(self, address: Address, timeout: float) -> bool:
        """Whether something sent to a node's port is answered within `timeout` seconds, over a connection of its own;
        says whether a link lets bytes through, not whether the node serves. Never raises."""

    async def connect(self, address: Address, timeout: float) -> LockClient:
        """A client pinned to this node; its calls end within `timeout` seconds (plus a call's own wait).
        Raises NodeUnreachable."""

    def version(self) -> str:
        """For the run's versions.json."""


def other_ports(system: System) -> Sequence[str]:
    """The names of a system's ports beside the main one."""
    return tuple(system.ports) if Feature.PORTS in features(system) and isinstance(system, HasPorts) else ()


def features(system: System) -> frozenset[Feature]:
    """What the system offers beyond what every system does."""
    return frozenset(getattr(system, "features", ()))
