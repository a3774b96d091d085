"""Nodes as processes of this machine, with their own sockets and folders, and links that can be cut without root.

A node's process leads a session and process group of its own: a Ctrl-C at the terminal reaches the harness alone, which
then ends the nodes in order, and a signal to a node reaches what it started too. A node keeps its port for the whole
run, also while it is dead: the place keeps the port bound without listening on it, so that no outgoing connection of
this machine is given that number in the meantime. The node can bind it beside that, as servers set SO_REUSEADDR.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from cluster.concurrency import all_of
from cluster.mounted import mount
from cluster.mounted.mount import Mount
from cluster.places import data_folder, faketime, ownership, vdso
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
from cluster.places.controls import Controls
from cluster.places.links import LOOPBACK
from cluster.places.node_log import NodeLog
from cluster.places.node_process import NodeProcess
from cluster.places.port_links import PortLinks
from cluster.places.reaper import MARK_VARIABLE, Reaper
from cluster.systems.base import MAIN_PORT, Address, Feature, HasPorts, NodeView, Port, System, features, other_ports

#: A link has a listener and, for each connection, two sockets: one connection in use and one that is being replaced.
FILES_PER_LINK = 5
#: Whatever else the harness has open: its clients, the history, logs.
FILES_BASE = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class _Node:
    view: NodeView
    process: NodeProcess
    reservations: Sequence[socket.socket]


class LocalPlace:
    """Runs a cluster as processes of this machine; see `cluster.places.base.Place`."""

    name = "local"
    capabilities = frozenset(
        {
            Capability.CUT_LINKS,
            Capability.KILL,
            Capability.PAUSE,
            Capability.SHAPE_LINKS,
            Capability.SHAPE_FRAMES,
            Capability.CORRUPT_LINKS,
            Capability.CUT_CLIENTS,
            Capability.TURN_LEASE_CLOCKS,
            Capability.BREAK_DISKS,
            Capability.CUT_PORTS,
            Capability.STARVE_CPU,
            Capability.STARVE_MEMORY,
            Capability.CHANGE_FILES,
            Capability.MOVE_LEADERSHIP,
            Capability.CHANGE_MEMBERS,
            *([Capability.TURN_WALL_CLOCKS] if vdso.supported() or faketime.installed() else []),
            *([Capability.MOUNT_DISKS] if mount.unsupported() is None else []),
        }
    )

    def __init__(self, system: System, nodes: Sequence[str], folder: Path) -> None:
        self.system = system
        self.nodes: Sequence[str] = tuple(nodes)
        self._folder = folder.resolve()
        self._nodes: dict[str, _Node] = {}
        self._links: PortLinks | None = None
        self._reaper = Reaper()
        self._equipment: frozenset[Capability] = frozenset()
        self._controls = Controls()
        self._mounts: dict[str, Mount] = {}

    def equip(self, capabilities: Collection[Capability]) -> None:
        # Disks of systems that can't fail by themselves are mounted.
        wanted = frozenset(capabilities) | (self.capabilities & {Capability.MOUNT_DISKS})
        self._equipment = usable(wanted, self.system)
        self._controls.equip(wanted, self.system)

    @property
    def links(self) -> PortLinks:
        if self._links is None:
            raise PlaceError("the place is not open: it has no links yet")
        return self._links

    async def start(self) -> None:
        try:
            await self._lay_out()
            await all_of(self.start_node(node) for node in self.nodes)
        except OSError as problem:
            await self.close()
            raise PlaceError(f"the local place could not start: {problem}") from problem
        except BaseException:
            await self.close()
            raise

    async def _lay_out(self) -> None:
        links = (1 + len(other_ports(self.system))) * len(self.nodes) * (len(self.nodes) - 1)
        _allow_files(FILES_BASE + FILES_PER_LINK * links)
        ports = (MAIN_PORT, *other_ports(self.system))
        reservations = {port: {node: _reserve_port() for node in self.nodes} for port in ports}
        listens = {
            port: {node: Address(LOOPBACK, sock.getsockname()[1]) for node, sock in by_node.items()}
            for port, by_node in reservations.items()
        }
        self._links = PortLinks(
            listens,
            framed=Capability.SHAPE_FRAMES in self._equipment,
            doors=Capability.CUT_CLIENTS in self._equipment,
        )
        await self._links.open()
        for node in self.nodes:
            home = self._folder / "nodes" / node
            data = home / "data"
            data.mkdir(parents=True, exist_ok=True)
            controls = self._controls.lay_out(node, home, home)
            mounts = controls.disk is not None and Feature.DISK not in features(self.system)
            if mounts and controls.disk is not None:
                self._mounts[node] = Mount(data, controls.disk)
            view = NodeView(
                node,
                listens[MAIN_PORT][node],
                self._links.peers(node),
                data,
                controls.clock,
                None if mounts else controls.disk,
                hostile=Capability.CORRUPT_LINKS in self._equipment,
                ports={port: Port(listens[port][node], self._links.peers(node, port)) for port in ports[1:]},
            )
            held = [by_node[node] for by_node in reservations.values()]
            self._nodes[node] = _Node(
                view, NodeProcess(node, NodeLog(home / "node.log"), wall=self._faketime(home / "wall")), held
            )
        await all_of(mount.start(self._folder) for mount in self._mounts.values())
        await self._reaper.start()

    def _faketime(self, file: Path) -> faketime.FaketimeClock | None:
        """Where the vDSO can't be patched, what turns a wall clock has to be there before the node starts."""
        if Capability.TURN_WALL_CLOCKS not in self._equipment or vdso.usable():
            return None
        library = faketime.library()
        return None if library is None else faketime.FaketimeClock(library, file)

    def address(self, node: str) -> Address:
        return self._node(node).view.listen

    async def start_node(self, node: str) -> None:
        entry = self._node(node)

        def watch(process: psutil.Process) -> None:
            try:
                self._reaper.watch(process)
            except OSError as problem:
                raise PlaceError(f"the reaper is gone: {node} could outlive the harness ({problem})") from problem

        marks = {**ownership.environment(self._folder), MARK_VARIABLE: self._reaper.mark}
        await entry.process.start(lambda: self.system.launch(entry.view), {**os.environ, **marks}, watch)

    async def kill_node(self, node: str) -> None:
        await self._node(node).process.kill()
        if node in self._mounts:
            await self._mounts[node].lose()

    async def stop_node(self, node: str) -> None:
        await self._node(node).process.stop()

    async def pause_node(self, node: str) -> None:
        await self._node(node).process.pause()

    async def resume_node(self, node: str) -> None:
        await self._node(node).process.resume()

    async def state(self, node: str) -> ProcessState:
        return self._node(node).process.state()

    async def starve_node(self, node: str, limits: Limits) -> None:
        await self._node(node).process.starve(limits)

    async def usage(self, node: str) -> Usage:
        return self._node(node).process.usage()

    async def account(self, node: str) -> str:
        return await self._node(node).process.account()

    async def set_cuts(self, links: Iterable[Link]) -> None:
        try:
            self.links.set_cuts(links)
        except KeyError as problem:
            raise PlaceError(f"there is no link {problem}") from None

    async def probe_link(self, link: Link, timeout: float) -> bool:
        async with self.links.probe_address(link) as address:
            return await self.system.probe(address, timeout)

    async def cut_ports(self, cuts: Iterable[PortCut]) -> None:
        try:
            self.links.cut_ports(cuts)
        except KeyError as problem:
            raise PlaceError(f"there is no link or port {problem}") from None

    async def probe_port(self, cut: PortCut, timeout: float) -> bool:
        if cut.port == MAIN_PORT:
            return await self.probe_link(cut.link, timeout)
        assert isinstance(self.system, HasPorts)
        async with self.links.probe_address(cut.link, port=cut.port) as address:
            return await self.system.probe_port(cut.port, address, timeout)

    async def shape_links(self, shapings: Mapping[Link, Shaping]) -> None:
        try:
            self.links.shape(shapings)
        except KeyError as problem:
            raise PlaceError(f"there is no link {problem}") from None

    async def reset_links(self, links: Collection[Link]) -> int:
        try:
            return self.links.reset(links)
        except KeyError as problem:
            raise PlaceError(f"there is no link {problem}") from None

    async def link_counts(self, link: Link) -> LinkCounts:
        return self.links.counts(link)

    def client_address(self, node: str) -> Address:
        return self.links.door(node) or self.address(node)

    async def cut_clients(self, nodes: Collection[str]) -> None:
        try:
            self.links.shut_doors(nodes)
        except KeyError as problem:
            raise PlaceError(f"clients of {problem} have no way of their own that could be cut") from None

    async def turn_clock(self, node: str, clock: Clock, setting: ClockSetting) -> None:
        if clock is Clock.LEASE:
            self._controls.turn_clock(node, setting)
        else:
            await self._node(node).process.turn_wall_clock(setting)

    async def true_clock(self, node: str, clock: Clock) -> None:
        if clock is Clock.LEASE:
            self._controls.true_clock(node)
        else:
            await self._node(node).process.true_wall_clock()

    async def break_disk(self, node: str, mode: DiskMode | None, slow_ms: int = 0) -> None:
        self._controls.break_disk(node, mode, slow_ms)

    async def disk_report(self, node: str) -> DiskReport:
        return self._controls.disk_report(node)

    async def read_data(self, node: str) -> Mapping[str, bytes]:
        return await asyncio.to_thread(data_folder.read, self._node(node).view.data)

    async def replace_data(self, node: str, files: Mapping[str, bytes]) -> None:
        entry = self._node(node)
        if entry.process.state() is not ProcessState.DEAD:
            raise PlaceError(f"{node} runs: its data can't be replaced")
        await asyncio.to_thread(data_folder.replace, entry.view.data, files)

    async def wipe_node(self, node: str) -> None:
        await self.replace_data(node, {})
        entry = self._node(node)
        self._nodes[node] = replace(entry, view=replace(entry.view, join=True))

    async def read_log(self, node: str, offset: int) -> tuple[bytes, int]:
        return self._node(node).process.log.read(offset)

    async def close(self) -> None:
        try:
            for node in self._mounts:
                self._controls.break_disk(node, None, 0)  # who waits for its disk can't end
            await all_of(self.stop_node(node) for node in self._nodes)
        finally:
            # Reached with nodes alive only when the above was cancelled or failed.
            for entry in self._nodes.values():
                entry.process.signal(signal.SIGKILL)
                entry.process.abandon()
                for reservation in entry.reservations:
                    reservation.close()
            self._controls.close()
            if self._links is not None:
                self._links.close()
            mounts, self._mounts = self._mounts, {}
            try:
                await all_of(mount.end() for mount in mounts.values())
            finally:
                await self._reaper.stop()

    def _node(self, node: str) -> _Node:
        try:
            return self._nodes[node]
        except KeyError:
            raise PlaceError(f"there is no node {node}; the place has {', '.join(self._nodes) or 'none yet'}") from None


def _reserve_port() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((LOOPBACK, 0))
    return sock


def _allow_files(count: int) -> None:
    """See that this process may have `count` files open. Raises PlaceError when the hard limit is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise PlaceError(f"so many nodes need {count} open files, and the limit (ulimit -Hn) is {hard}")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
