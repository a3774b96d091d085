"""Faults of a node that need no rights and no tools: files in its folder tell its lease clock and its disk what to do.

The node maps or reads them (`cluster.node.clock`, `cluster.faulty`); so they work wherever the folder is the node's and
ours, containers on this machine included, which share its monotonic clock. A run gets only those that it is going to
use, and a node without them runs on the true clock and the true disk.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePath
from typing import NamedTuple

from cluster.faulty.control import ControlFile, Order
from cluster.node.clock import ControlledClock
from cluster.places.base import Capability, ClockSetting, DiskMode, DiskReport, PlaceError, usable
from cluster.systems.base import System

CLOCK_NAME, DISK_NAME = "clock", "disk"


class ControlPaths(NamedTuple):
    """Of one node, as the node sees them; None: it has none."""

    clock: Path | None
    disk: Path | None


def names(capabilities: Collection[Capability]) -> tuple[str, ...]:
    """The files that are needed to do this to a node."""
    wanted = ((Capability.TURN_LEASE_CLOCKS, CLOCK_NAME), (Capability.BREAK_DISKS, DISK_NAME))
    return tuple(name for capability, name in wanted if capability in capabilities)


def paths(wanted: Collection[str], seen_as: PurePath) -> ControlPaths:
    """Where a node finds them that sees its folder as `seen_as`."""
    clock, disk = (Path(seen_as / name) if name in wanted else None for name in (CLOCK_NAME, DISK_NAME))
    return ControlPaths(clock, disk)


class Controls:
    """The control files of one run's nodes."""

    def __init__(self) -> None:
        self._wanted: frozenset[Capability] = frozenset()
        self._clocks: dict[str, ControlledClock] = {}
        self._disks: dict[str, ControlFile] = {}

    def equip(self, capabilities: Collection[Capability], system: System) -> None:
        self._wanted = usable(capabilities, system)

    def lay_out(self, node: str, home: Path, seen_as: PurePath) -> ControlPaths:
        """Make the files in the node's folder `home`, which it sees as `seen_as`. Raises OSError."""
        self.lay_out_files(node, home, names(self._wanted))
        return paths(names(self._wanted), seen_as)

    def lay_out_files(self, node: str, home: Path, wanted: Collection[str]) -> None:
        """Make those of the files that have these names. Raises OSError."""
        if CLOCK_NAME in wanted:
            self._clocks[node] = ControlledClock(home / CLOCK_NAME)
        if DISK_NAME in wanted:
            self._disks[node] = ControlFile(home / DISK_NAME, create=True)

    def turn_clock(self, node: str, setting: ClockSetting) -> None:
        self._clock(node).turn(setting.step_ns, setting.rate)

    def true_clock(self, node: str) -> None:
        self._clock(node).right()

    def break_disk(self, node: str, mode: DiskMode | None, slow_ms: int) -> None:
        disk = self._disk(node)
        disk.give(Order(disk.order().serial + 1, mode, slow_ms))

    def disk_report(self, node: str) -> DiskReport:
        disk = self._disk(node)
        report = disk.report()
        if report.serial != disk.order().serial:
            return DiskReport(waiting=report.waiting)
        return DiskReport(report.hits, report.unsynced_bytes, report.waiting)

    def close(self) -> None:
        for clock in self._clocks.values():
            clock.close()
        for disk in self._disks.values():
            disk.close()
        self._clocks.clear()
        self._disks.clear()

    def _clock(self, node: str) -> ControlledClock:
        if node not in self._clocks:
            raise PlaceError(f"the clock of {node}'s leases can't be turned: it runs on its own")
        return self._clocks[node]

    def _disk(self, node: str) -> ControlFile:
        if node not in self._disks:
            raise PlaceError(f"the disk of {node} is none that could fail on demand")
        return self._disks[node]
