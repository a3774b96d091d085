"""The kinds of faults: what each needs of a place, what it is aimed at, and how hard it can be made.

A kind's parameters are data, so that one reader, one writer and one validation serve all of them. A parameter's `form`
says how its value is written in a file and what it is in a `FaultSpec`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from cluster.places.base import Capability, Clock


class Form(StrEnum):
    """How a parameter is written, and in brackets what it becomes."""

    SPAN = "a duration or a range of whole milliseconds"  # (low, high) in milliseconds
    STEP = "a duration with a sign"  # nanoseconds, not 0
    FACTOR = "a factor"  # float > 0, not 1
    SPEED = "bytes a second"  # bytes a second, at least 1
    SIZE = "bytes"  # at least 1
    MEMORY = "bytes, such as 64MiB"  # at least 1
    SHARE = "a share"  # float in (0, 1]
    PORT = "a port"  # its name, as the system gives it
    CLOCK = "a clock"  # "lease" or "wall"
    CHOICE = "a choice"  # one of the parameter's `choices`
    PATTERN = "a file's name, or a pattern such as *.log"  # the same
    KINDS = "a list of faults"  # their names


class Aim(StrEnum):
    """What a kind of fault hits."""

    LINKS = "links"  # a shape, a target whose links are meant, or the very links
    NODES = "nodes"
    CLIENTS = "clients"
    NOBODY = "nobody"  # composed of other kinds


Value = int | float | str | tuple[int, int] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Parameter:
    """`default` None: it has none, and says something only where it is given. `limits` are the least and the most, in
    the unit of the form's value; `choices` are for the form CHOICE."""

    form: Form
    default: Value | None = None
    required: bool = False
    limits: tuple[float, float] = (0, float("inf"))
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """`one_of`: exactly one of these parameters has to be given. `targets`: the named targets of nodes that make sense;
    empty: all."""

    needs: Capability | None
    aims: Aim
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    one_of: Collection[str] = ()
    targets: tuple[str, ...] = ()


PARTITION = "partition"
KILL = "kill"
PAUSE = "pause"
STOP = "stop"
CRASH_LOOP = "crash-loop"
DELAY = "delay"
THROTTLE = "throttle"
STALL = "stall"
RESET = "reset"
FLAPPING = "flapping"
DUPLICATE = "duplicate"
REORDER = "reorder"
CORRUPT = "corrupt"
LARGE_PACKETS = "large-packets"
CLIENT_PARTITION = "client-partition"
CLIENT_PAUSE = "client-pause"
CLOCK = "clock"
DISK_STALL = "disk-stall"
DISK_SLOW = "disk-slow"
DISK_FULL = "disk-full"
DISK_ERROR = "disk-error"
DISK_LOSE_UNSYNCED = "disk-lose-unsynced"
DISK_FLIP = "disk-flip"
DISK_TRUNCATE = "disk-truncate"
DISK_RESTORE = "disk-restore"
TRANSFER = "transfer"
MEMBERSHIP = "membership"
STARVE = "starve"
RANDOM = "random"

#: Longer delays than this are partitions to every protocol with time-outs of seconds.
_DELAY = (1, 60_000)
#: Turning something off and on faster than this measures the testbed rather than the system.
_PHASE = (20, 60_000)

KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        PARTITION: Kind(Capability.CUT_LINKS, Aim.LINKS, {"port": Parameter(Form.PORT)}),
        FLAPPING: Kind(
            Capability.CUT_LINKS,
            Aim.LINKS,
            {
                "port": Parameter(Form.PORT),
                "down": Parameter(Form.SPAN, (100, 800), limits=_PHASE),
                "up": Parameter(Form.SPAN, (100, 800), limits=_PHASE),
            },
        ),
        DELAY: Kind(Capability.SHAPE_LINKS, Aim.LINKS, {"delay": Parameter(Form.SPAN, required=True, limits=_DELAY)}),
        THROTTLE: Kind(
            Capability.SHAPE_LINKS, Aim.LINKS, {"rate": Parameter(Form.SPEED, required=True, limits=(100, 1e12))}
        ),
        STALL: Kind(Capability.SHAPE_LINKS, Aim.LINKS),
        RESET: Kind(Capability.SHAPE_LINKS, Aim.LINKS, {"interval": Parameter(Form.SPAN, (200, 1000), limits=_PHASE)}),
        LARGE_PACKETS: Kind(
            Capability.SHAPE_LINKS, Aim.LINKS, {"largest": Parameter(Form.SIZE, 1000, limits=(64, 1e6))}
        ),
        DUPLICATE: Kind(Capability.SHAPE_FRAMES, Aim.LINKS, {"share": Parameter(Form.SHARE, 0.2)}),
        REORDER: Kind(Capability.SHAPE_FRAMES, Aim.LINKS, {"share": Parameter(Form.SHARE, 0.2)}),
        CORRUPT: Kind(Capability.CORRUPT_LINKS, Aim.LINKS, {"share": Parameter(Form.SHARE, 0.05)}),
        KILL: Kind(Capability.KILL, Aim.NODES, {"stagger": Parameter(Form.SPAN, limits=(0, 2_000))}),
        STOP: Kind(Capability.KILL, Aim.NODES),
        CRASH_LOOP: Kind(
            Capability.KILL,
            Aim.NODES,
            {
                "down": Parameter(Form.SPAN, (50, 500), limits=_PHASE),
                "up": Parameter(Form.SPAN, (100, 1500), limits=_PHASE),
            },
        ),
        PAUSE: Kind(Capability.PAUSE, Aim.NODES),
        CLIENT_PARTITION: Kind(Capability.CUT_CLIENTS, Aim.NODES),
        CLIENT_PAUSE: Kind(None, Aim.CLIENTS),
        CLOCK: Kind(
            Capability.TURN_LEASE_CLOCKS,  # or the other one: see `needs`
            Aim.NODES,
            {
                "clock": Parameter(Form.CLOCK, "lease"),
                "jump": Parameter(Form.STEP),
                "strobe": Parameter(Form.STEP),
                "period": Parameter(Form.SPAN, (100, 500), limits=_PHASE),
                "rate": Parameter(Form.FACTOR, limits=(0.01, 100)),
            },
            one_of=("jump", "strobe", "rate"),
        ),
        DISK_STALL: Kind(Capability.BREAK_DISKS, Aim.NODES),
        DISK_SLOW: Kind(
            Capability.BREAK_DISKS, Aim.NODES, {"slow": Parameter(Form.SPAN, (20, 200), limits=(1, 10_000))}
        ),
        DISK_FULL: Kind(Capability.BREAK_DISKS, Aim.NODES),
        DISK_ERROR: Kind(Capability.BREAK_DISKS, Aim.NODES),
        DISK_LOSE_UNSYNCED: Kind(Capability.BREAK_DISKS, Aim.NODES, {"slow": Parameter(Form.SPAN, (20, 60))}),
        DISK_FLIP: Kind(
            Capability.CHANGE_FILES,
            Aim.NODES,
            {
                "file": Parameter(Form.PATTERN, "*"),
                "bits": Parameter(Form.SIZE, 1, limits=(1, 1e6)),
                # Whether what was written last was damaged or never all there no node can tell.
                "share": Parameter(Form.SHARE, 0.9),
            },
        ),
        DISK_TRUNCATE: Kind(
            Capability.CHANGE_FILES,
            Aim.NODES,
            {"file": Parameter(Form.PATTERN, "*"), "share": Parameter(Form.SHARE, 0.3)},
        ),
        DISK_RESTORE: Kind(
            Capability.CHANGE_FILES, Aim.NODES, {"age": Parameter(Form.SPAN, required=True, limits=(100, 3_600_000))}
        ),
        TRANSFER: Kind(
            Capability.MOVE_LEADERSHIP,
            Aim.NODES,
            {"interval": Parameter(Form.SPAN, limits=_PHASE)},
            targets=("follower",),
        ),
        MEMBERSHIP: Kind(
            Capability.CHANGE_MEMBERS,
            Aim.NODES,
            {"change": Parameter(Form.CHOICE, "remove", choices=("remove", "replace"))},
            targets=("one", "minority", "leader", "follower"),
        ),
        STARVE: Kind(
            Capability.STARVE_CPU,  # or memory: see `needs`
            Aim.NODES,
            {
                "cpu": Parameter(Form.SHARE, limits=(0.01, 1)),
                "memory": Parameter(Form.MEMORY, limits=(2**20, float("inf"))),
            },
            one_of=("cpu", "memory"),
        ),
        RANDOM: Kind(None, Aim.NOBODY, {"kinds": Parameter(Form.KINDS)}),
    }
)


def parameters(kind: str) -> Mapping[str, Parameter]:
    """Those of a kind; none for an unknown one."""
    return KINDS[kind].parameters if kind in KINDS else {}


def needs(kind: str, options: Mapping[str, Value]) -> Capability | None:
    """What a place must be able to do for a fault of this kind with these options."""
    if kind == CLOCK and options.get("clock") == Clock.WALL:
        return Capability.TURN_WALL_CLOCKS
    if kind == STARVE and "memory" in options:
        return Capability.STARVE_MEMORY
    if "port" in options and kind in (PARTITION, FLAPPING):
        return Capability.CUT_PORTS
    return KINDS[kind].needs
