"""What the testbed asks of a place: run nodes, break and mend processes and links, clean up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol, runtime_checkable

from cluster.systems.base import Address, Feature, NodeStatus, System, features


class Link(NamedTuple):
    """The direction of traffic from one node to another."""

    source: str
    target: str

    @property
    def reverse(self) -> Link:
        return Link(self.target, self.source)


class ProcessState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Capability(StrEnum):
    """What a place can do to nodes; a scenario that needs more is refused before the run starts.

    A place that has one of those below PAUSE implements the protocol that is named beside it. Some need something of
    the system too (see `usable`).
    """

    CUT_LINKS = "cut-links"
    KILL = "kill"
    PAUSE = "pause"
    SHAPE_LINKS = "shape-links"  # ShapesLinks
    CUT_CLIENTS = "cut-clients"  # CutsClients
    SHAPE_FRAMES = "shape-frames"  # ShapesLinks
    CORRUPT_LINKS = "corrupt-links"  # ShapesLinks
    TURN_LEASE_CLOCKS = "turn-lease-clocks"  # TurnsClocks
    TURN_WALL_CLOCKS = "turn-wall-clocks"  # TurnsClocks
    BREAK_DISKS = "break-disks"  # BreaksDisks
    MOUNT_DISKS = "mount-disks"  # BreaksDisks, by a file system over the data of systems that don't offer Feature.DISK
    CUT_PORTS = "cut-ports"  # CutsPorts
    STARVE_CPU = "starve-cpu"  # StarvesNodes
    STARVE_MEMORY = "starve-memory"  # StarvesNodes
    CHANGE_FILES = "change-files"  # HoldsData
    MOVE_LEADERSHIP = "move-leadership"  # the system does it
    CHANGE_MEMBERS = "change-members"  # HoldsData; the system does the rest


class Clock(StrEnum):
    """Which of a node's clocks: the one that leases run on, or the one that tells the date."""

    LEASE = "lease"
    WALL = "wall"


#: What a system must offer for a capability of its place to be of use.
NEEDED_FEATURES: Mapping[Capability, Feature] = MappingProxyType(
    {
        Capability.SHAPE_FRAMES: Feature.FRAMES,
        Capability.CORRUPT_LINKS: Feature.SEALED,
        Capability.TURN_LEASE_CLOCKS: Feature.LEASE_CLOCK,
        Capability.BREAK_DISKS: Feature.DISK,
        Capability.MOUNT_DISKS: Feature.DATA,
        Capability.CUT_PORTS: Feature.PORTS,
        Capability.MOVE_LEADERSHIP: Feature.TRANSFER,
        Capability.CHANGE_MEMBERS: Feature.MEMBERS,
    }
)


def usable(capabilities: Collection[Capability], system: System) -> frozenset[Capability]:
    """Those of a place's capabilities that it has with this system."""
    return frozenset(capabilities) - lacking(capabilities, system).keys()


def lacking(capabilities: Collection[Capability], system: System) -> Mapping[Capability, Feature]:
    """Those of a place's capabilities that are of no use with this system, and what it would have to offer."""
    offered = features(system)
    if Capability.MOUNT_DISKS in capabilities and Feature.DATA in offered:
        offered |= {Feature.DISK}
    return {able: need for able, need in NEEDED_FEATURES.items() if able in capabilities and need not in offered}


class Place(Protocol):
    """Where the nodes of one run live. Every method that changes something is idempotent."""

    name: str
    capabilities: frozenset[Capability]
    system: System
    nodes: Sequence[str]

    async def start(self) -> None:
        """Lay out and start every node; does not wait for readiness. Raises PlaceError."""

    def address(self, node: str) -> Address:
        """Where clients of this node connect; stays the same when the node restarts."""

    async def start_node(self, node: str) -> None:
        """Start a node that is dead, with the data that it left."""

    async def kill_node(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""

    async def stop_node(self, node: str) -> None:
        """SIGTERM, and SIGKILL if it does not end in time."""

    async def pause_node(self, node: str) -> None: ...

    async def resume_node(self, node: str) -> None: ...

    async def state(self, node: str) -> ProcessState:
        """The process as the operating system sees it: the evidence for kill and pause."""

    async def account(self, node: str) -> str:
        """For error messages: the node's state, how it ended if it did, and the last lines that it wrote."""

    async def set_cuts(self, links: Iterable[Link]) -> None:
        """Replace the set of links that let nothing through. Bytes of a cut link wait, as TCP makes them wait
        behind a rule that drops packets, and go on when it is mended."""

    async def probe_link(self, link: Link, timeout: float) -> bool:
        """Whether something sent along this link arrives within `timeout` seconds: the evidence for cuts."""

    async def close(self) -> None:
        """Stop every node, collect logs into the run's folder, remove everything that the place made."""


@dataclass(frozen=True, slots=True)
class Shaping:
    """What happens to the bytes of a link. The stream stays a stream, save for `duplicate` and `reorder`, which are
    shares of whole frames and need a system with Feature.FRAMES.

    `delay_ms`: each piece arrives so much later, between the two (pieces never overtake each other). `rate`: bytes a
    second, None: no limit. `stall`: connections that are open when this begins carry nothing more, new ones do.
    `largest`: a piece that is larger, and all that follows it on its connection, does not get through. `corrupt`: the
    share of the pieces in which a bit is changed.
    """

    delay_ms: tuple[int, int] = (0, 0)
    rate: int | None = None
    stall: bool = False
    largest: int | None = None
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0

    def __or__(self, other: Shaping) -> Shaping:
        """Both at once."""
        return Shaping(
            (self.delay_ms[0] + other.delay_ms[0], self.delay_ms[1] + other.delay_ms[1]),
            _least(self.rate, other.rate),
            self.stall or other.stall,
            _least(self.largest, other.largest),
            1 - (1 - self.duplicate) * (1 - other.duplicate),
            1 - (1 - self.reorder) * (1 - other.reorder),
            1 - (1 - self.corrupt) * (1 - other.corrupt),
        )


def _least(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else min(left, right)


class LinkCounts(NamedTuple):
    """What a link has done since the start: the evidence for shaping, where a probe can't give it. `held_bytes` are
    those that wait now."""

    forwarded_bytes: int
    held_bytes: int
    duplicated: int
    reordered: int
    corrupted: int


@runtime_checkable
class ShapesLinks(Protocol):
    async def shape_links(self, shapings: Mapping[Link, Shaping]) -> None:
        """Replace what is done to links; those that aren't named are plain. Raises PlaceError."""

    async def reset_links(self, links: Collection[Link]) -> int:
        """Reset every connection through these links; says how many there were."""

    async def link_counts(self, link: Link) -> LinkCounts: ...


@runtime_checkable
class SeesNodes(Protocol):
    def seen(self, node: str) -> NodeStatus | None:
        """What the node would say of itself, without asking it; None while it would not answer. Whoever only watches
        uses this; whoever wants to know whether a node answers asks it."""


@runtime_checkable
class CutsClients(Protocol):
    def client_address(self, node: str) -> Address:
        """Where clients connect; `Place.address` then is for those who ask past the fault."""

    async def cut_clients(self, nodes: Collection[str]) -> None:
        """Replace the set of nodes that clients don't reach: bytes wait in both directions."""


class PortCut(NamedTuple):
    """A link of which one port lets nothing through: neither what goes to that port, nor what comes from it."""

    link: Link
    port: str


@runtime_checkable
class CutsPorts(Protocol):
    """Of systems that have several ports. `Place.set_cuts` is about all of them."""

    async def cut_ports(self, cuts: Iterable[PortCut]) -> None:
        """Replace the set of cuts of one port; links that are cut as a whole stay so. Raises PlaceError."""

    async def probe_port(self, cut: PortCut, timeout: float) -> bool:
        """As `Place.probe_link`, to that port."""


@dataclass(frozen=True, slots=True)
class ClockSetting:
    """How a clock is off: `step_ns` is added to what it says now, and from now on it runs at `rate`."""

    step_ns: int = 0
    rate: float = 1.0


@runtime_checkable
class TurnsClocks(Protocol):
    async def turn_clock(self, node: str, clock: Clock, setting: ClockSetting) -> None:
        """Raises PlaceError, also when the node isn't running."""

    async def true_clock(self, node: str, clock: Clock) -> None:
        """Undo every step and rate. A lease clock keeps what it is ahead, as no monotonic clock goes back. Idempotent;
        does nothing to a node that isn't running. Raises PlaceError."""


class DiskMode(StrEnum):
    STALL = "stall"  # writes wait
    FULL = "full"  # ENOSPC
    ERROR = "error"  # EIO
    VOLATILE = "volatile"  # what was written reaches the disk slowly, with the fsync, so that a kill loses it


class DiskReport(NamedTuple):
    """What a node's disk says: `hits` counts the calls that met the fault since it was set, `unsynced_bytes` were
    written, and not on disk when it was last heard of; `waiting`: a call is being kept waiting."""

    hits: int = 0
    unsynced_bytes: int = 0
    waiting: bool = False


@runtime_checkable
class BreaksDisks(Protocol):
    async def break_disk(self, node: str, mode: DiskMode | None, slow_ms: int = 0) -> None:
        """None: whole again. `slow_ms`: how long an fsync takes while the disk is volatile. Raises PlaceError."""

    async def disk_report(self, node: str) -> DiskReport: ...


@runtime_checkable
class HoldsData(Protocol):
    """A place that gets at what its nodes have on disk."""

    async def read_data(self, node: str) -> Mapping[str, bytes]:
        """Every file in the node's data folder, by its path there. The node may be running: then each file is as it
        was at some moment. Raises PlaceError."""

    async def replace_data(self, node: str, files: Mapping[str, bytes]) -> None:
        """Have exactly these files in the data folder of a dead node. Raises PlaceError."""

    async def wipe_node(self, node: str) -> None:
        """Have nothing in the data folder of a dead node, which from now on waits, whenever it starts, to be added to
        the cluster of the others (`NodeView.join`). Raises PlaceError."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a node may use: `cpu` as a share of one core, `memory` in bytes; None: as much as ever."""

    cpu: float | None = None
    memory: int | None = None


class Usage(NamedTuple):
    """What a node has used: CPU time since its process began. `limits` are those that hold now, read back from whoever
    enforces them."""

    cpu_ns: int
    limits: Limits


@runtime_checkable
class StarvesNodes(Protocol):
    """A process that is started again has the same share of CPU time. Its limit of memory may be gone."""

    async def starve_node(self, node: str, limits: Limits) -> None:
        """Replace its limits; `Limits()`: none but the place's own. Raises PlaceError."""

    async def usage(self, node: str) -> Usage:
        """Raises PlaceError, also when the node isn't running."""


@runtime_checkable
class ReadsLogs(Protocol):
    async def read_log(self, node: str, offset: int) -> tuple[bytes, int]:
        """What the node has logged since `offset`, and the offset behind it; -1: nothing, and where it ends now."""


@runtime_checkable
class TellsOfItself(Protocol):
    def tell_to(self, tell: Callable[[str], object]) -> None:
        """Have `tell` told, in the event loop's thread, of what happens to the place and ends no run, such as a
        connection that was lost and made again."""


@runtime_checkable
class NoticesLoss(Protocol):
    async def lost(self) -> str | None:
        """What of the place itself is gone that no fault takes, such as an engine that was stopped; None while all is
        there. Raises PlaceError."""


@runtime_checkable
class Equippable(Protocol):
    def equip(self, capabilities: Collection[Capability]) -> None:
        """Called before `start` with what the run is going to need: a place may leave out the proxies and control files
        that nobody uses."""


class PlaceError(Exception):
    """The place could not do its part (no port, no program, no permission): a failure of the harness."""


class PlaceFactory(Protocol):
    #: Known before a place is made, so that a scenario can be refused in time.
    capabilities: frozenset[Capability]

    def __call__(self, system: System, nodes: Sequence[str], folder: Path) -> Place:
        """`folder` is the run's; node data and logs go to `folder/nodes/<node>/`."""
