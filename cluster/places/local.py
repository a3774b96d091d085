"""Nodes as processes of this machine, with their own sockets and folders, and links that can be cut without root.

A node's process leads a session and process group of its own: a Ctrl-C at the terminal reaches the harness alone, which
then ends the nodes in order, and a signal to a node reaches what it started too. A node keeps its port for the whole
run, also while it is dead: the place keeps the port bound without listening on it, so that no outgoing connection of
this machine is given that number in the meantime. The node can bind it beside that, as servers set SO_REUSEADDR.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import psutil

from cluster.concurrency import all_of
from cluster.places import ownership, vdso
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
from cluster.places.links import LOOPBACK, Links
from cluster.places.node_log import NodeLog
from cluster.places.reaper import MARK_VARIABLE, Reaper
from cluster.places.vdso import VdsoClock, VdsoError
from cluster.systems.base import Address, NodeView, System

#: SIGTERM asks a node to stop cleanly; one that takes longer than this is killed.
STOP_BUDGET_S = 3.0
#: SIGKILL and SIGSTOP act within milliseconds unless the process is in an uninterruptible system call.
SIGNAL_BUDGET_S = 5.0
#: The kernel shows a stop in /proc a moment after the signal was sent.
STATE_POLL_S = 0.002
#: A link has a listener and, for each connection, two sockets: one connection in use and one that is being replaced.
FILES_PER_LINK = 5
#: Whatever else the harness has open: its clients, the history, logs.
FILES_BASE = 1_000

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Node:
    view: NodeView
    log: NodeLog
    reservation: socket.socket
    process: asyncio.subprocess.Process | None = None
    identity: psutil.Process | None = None
    doomed: bool = False  # told to end; it may be alive for a moment yet
    wall: VdsoClock | None = None  # of the current process, once it was turned
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one change of a node at a time


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
            Capability.CUT_CLIENTS,
            Capability.TURN_LEASE_CLOCKS,
            Capability.BREAK_DISKS,
            *([Capability.TURN_WALL_CLOCKS] if vdso.supported() else []),
        }
    )

    def __init__(self, system: System, nodes: Sequence[str], folder: Path) -> None:
        self.system = system
        self.nodes: Sequence[str] = tuple(nodes)
        self._folder = folder.resolve()
        self._nodes: dict[str, _Node] = {}
        self._links: Links | None = None
        self._reaper = Reaper()
        self._equipment: frozenset[Capability] = frozenset()
        self._controls = Controls()

    def equip(self, capabilities: Collection[Capability]) -> None:
        self._equipment = usable(capabilities, self.system)
        self._controls.equip(capabilities, self.system)

    @property
    def links(self) -> Links:
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
        _allow_files(FILES_BASE + FILES_PER_LINK * len(self.nodes) * (len(self.nodes) - 1))
        reservations = {node: _reserve_port() for node in self.nodes}
        listens = {node: Address(LOOPBACK, sock.getsockname()[1]) for node, sock in reservations.items()}
        self._links = Links(
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
            view = NodeView(node, listens[node], self._links.peers(node), data, controls.clock, controls.disk)
            self._nodes[node] = _Node(view, NodeLog(home / "node.log"), reservations[node])
        await self._reaper.start()

    def address(self, node: str) -> Address:
        return self._node(node).view.listen

    async def start_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            if entry.doomed:
                # Whoever told it to end was interrupted before it had; what dies now can't count as running.
                await self._kill(entry)
            if _state(entry) is not ProcessState.DEAD:
                return
            launch = self.system.launch(entry.view)
            entry.log.begin()
            with entry.log.path.open("ab") as log:
                entry.doomed, entry.wall = False, None
                try:
                    entry.process = await asyncio.create_subprocess_exec(
                        *launch.argv,
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env={
                            **os.environ,
                            **launch.env,
                            **ownership.environment(self._folder),
                            MARK_VARIABLE: self._reaper.mark,
                        },
                        start_new_session=True,
                    )
                except OSError as problem:
                    raise PlaceError(f"{node} could not be started: {launch.argv[0]}: {problem}") from problem
            # A child that nobody has waited for keeps its number, so this is that process even if it has ended already.
            with contextlib.suppress(psutil.NoSuchProcess):
                entry.identity = psutil.Process(entry.process.pid)
                try:
                    self._reaper.watch(entry.identity)
                except OSError as problem:
                    raise PlaceError(f"the reaper is gone: {node} could outlive the harness ({problem})") from problem

    async def kill_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            await self._kill(entry)

    async def stop_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            entry.doomed = True
            # A stopped process takes SIGTERM only when it goes on.
            _signal(entry, signal.SIGTERM)
            _signal(entry, signal.SIGCONT)
            if not await _ended(entry, STOP_BUDGET_S):
                await self._kill(entry)

    async def pause_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            _signal(entry, signal.SIGSTOP)
            await _until(lambda: _state(entry) is not ProcessState.RUNNING, f"{node} did not stop on SIGSTOP")
            if _state(entry) is ProcessState.DEAD:
                raise PlaceError(f"a dead node can't be paused: {await self.account(node)}")

    async def resume_node(self, node: str) -> None:
        entry = self._node(node)
        async with entry.lock:
            _signal(entry, signal.SIGCONT)
            await _until(lambda: _state(entry) is not ProcessState.PAUSED, f"{node} did not go on on SIGCONT")

    async def state(self, node: str) -> ProcessState:
        return _state(self._node(node))

    async def account(self, node: str) -> str:
        entry = self._node(node)
        if _state(entry) is ProcessState.DEAD:
            # The kernel shows its end a moment before the exit code has come to us.
            await _ended(entry, SIGNAL_BUDGET_S)
        return f"{node} {_fate(entry)}; {entry.log.tail()}"

    async def set_cuts(self, links: Iterable[Link]) -> None:
        try:
            self.links.set_cuts(links)
        except KeyError as problem:
            raise PlaceError(f"there is no link {problem}") from None

    async def probe_link(self, link: Link, timeout: float) -> bool:
        async with self.links.probe_address(link) as address:
            return await self.system.probe(address, timeout)

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
            await self._turn_wall_clock(self._node(node), setting)

    async def true_clock(self, node: str, clock: Clock) -> None:
        if clock is Clock.LEASE:
            self._controls.true_clock(node)
            return
        entry = self._node(node)
        async with entry.lock:
            # A process that was started since then has the true time.
            if entry.wall is not None and _state(entry) is not ProcessState.DEAD:
                await _patching(entry.wall.right)

    async def _turn_wall_clock(self, entry: _Node, setting: ClockSetting) -> None:
        async with entry.lock:
            if entry.process is None or _state(entry) is ProcessState.DEAD:
                raise PlaceError(f"{entry.view.id} is dead, and has no clock")
            if entry.wall is None:
                entry.wall = await _patching(partial(VdsoClock, entry.process.pid))
            await _patching(partial(entry.wall.turn, setting.step_ns, setting.rate))

    async def break_disk(self, node: str, mode: DiskMode | None, slow_ms: int = 0) -> None:
        self._controls.break_disk(node, mode, slow_ms)

    async def disk_report(self, node: str) -> DiskReport:
        return self._controls.disk_report(node)

    async def read_log(self, node: str, offset: int) -> tuple[bytes, int]:
        return self._node(node).log.read(offset)

    async def close(self) -> None:
        try:
            await all_of(self.stop_node(node) for node in self._nodes)
        finally:
            # Reached with nodes alive only when the above was cancelled or failed.
            for entry in self._nodes.values():
                _signal(entry, signal.SIGKILL)
                entry.reservation.close()
            self._controls.close()
            if self._links is not None:
                self._links.close()
            await self._reaper.stop()

    def _node(self, node: str) -> _Node:
        try:
            return self._nodes[node]
        except KeyError:
            raise PlaceError(f"there is no node {node}; the place has {', '.join(self._nodes) or 'none yet'}") from None

    async def _kill(self, entry: _Node) -> None:
        entry.doomed = True
        _signal(entry, signal.SIGKILL)
        if not await _ended(entry, SIGNAL_BUDGET_S):
            raise PlaceError(f"{entry.view.id} did not end {SIGNAL_BUDGET_S:g}s after SIGKILL")


async def _patching(step: Callable[[], T]) -> T:
    """Do it in a thread, since processes are stopped and waited for. Ends when it is done, also when cancelled: nobody
    else may turn the clock meanwhile."""
    task = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
    except VdsoError as problem:
        raise PlaceError(str(problem)) from problem


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


def _state(entry: _Node) -> ProcessState:
    if entry.process is None or entry.process.returncode is not None or entry.identity is None:
        return ProcessState.DEAD
    try:
        status = entry.identity.status()
    except psutil.NoSuchProcess:
        return ProcessState.DEAD
    if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) or not entry.identity.is_running():
        return ProcessState.DEAD
    return ProcessState.PAUSED if status == psutil.STATUS_STOPPED else ProcessState.RUNNING


def _signal(entry: _Node, number: signal.Signals) -> None:
    """Signal the node's process group, if its process is alive."""
    if _state(entry) is not ProcessState.DEAD and entry.process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(entry.process.pid, number)


async def _ended(entry: _Node, budget_s: float) -> bool:
    """Wait for the node's process to end, for `budget_s` at most."""
    if entry.process is None:
        return True
    try:
        # Not `wait_for`, which forgets that it was cancelled if the process ends in the same moment.
        async with asyncio.timeout(budget_s):
            await entry.process.wait()
    except TimeoutError:
        return False
    return True


async def _until(condition: Callable[[], bool], complaint: str) -> None:
    deadline = time.monotonic() + SIGNAL_BUDGET_S
    while not condition():
        if time.monotonic() > deadline:
            raise PlaceError(f"{complaint} within {SIGNAL_BUDGET_S:g}s")
        await asyncio.sleep(STATE_POLL_S)


def _fate(entry: _Node) -> str:
    if entry.process is None:
        return "was never started"
    code = entry.process.returncode
    if code is None:
        return f"is {_state(entry)} (pid {entry.process.pid})"
    if code < 0:
        return f"was ended by {signal.Signals(-code).name} (pid {entry.process.pid})"
    return f"exited with code {code} (pid {entry.process.pid})"
