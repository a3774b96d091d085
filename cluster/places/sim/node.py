"""One simulated node: the core between a simulated disk, network and clock, as `cluster.node.server` is in reality.

Every input goes to the core at once, and what the core wants done is collected right after it; what a paused node gets
waits, and is taken in as one batch when it goes on, before what its clock says is due.

A node that fails by itself, by an assertion or any other exception of the core, is dead from then on, and says why in
`failures`: on a real machine that is a process that crashed.
"""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from cluster.node.core import Applied, Core
from cluster.node.members import Members
from cluster.node.messages import Batch
from cluster.node.protocol import LockRequest, Ping, Pong, StatusReply, StatusRequest
from cluster.node.raft import Role
from cluster.node.steward import Proposed
from cluster.node.storage import DamageError, Storage, StorageError
from cluster.places.base import Clock, ClockSetting, DiskMode, DiskReport, Limits, ProcessState, Usage
from cluster.places.sim.clocks import START_MAX_NS, SimClock
from cluster.places.sim.disk import LOG, SimDisk
from cluster.places.sim.draws import stream
from cluster.places.sim.loop import VirtualLoop
from cluster.places.sim.network import MS, Connection, Latency, SimLink
from cluster.places.sim.reached import Reached, idle, state

#: From the start of a process until it listens.
BOOT_NS = (20 * MS, 150 * MS)

#: What a node's CPU works on an input, on the whole.
INPUT_NS = 200_000

#: A wall clock begins here: some time in 2026.
WALL_START_NS = 1_780_000_000_000_000_000


class SimNode:
    """`links` are this node's ways to its peers; they are filled in once all nodes are there. `on_leader` is told each
    time that this node begins to lead a term."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: int,
        id: str,
        members: Members,
        core_type: type[Core],
        storage_type: type[Storage],
        fsync: Latency,
        snapshot_every: int,
        on_leader: Callable[[str, int], None],
    ) -> None:
        self.id, self.life = id, 0
        self.links: dict[str, SimLink] = {}
        self.core: Core | None = None
        #: What was applied, in which life and when.
        self.applied: list[tuple[int, int, Applied]] = []
        self.proposed: list[Proposed] = []
        self.failures: list[str] = []
        self.reached = Reached()
        self.log: list[str] = []
        self._loop, self._seed, self._members, self._on_leader = loop, seed, members, on_leader
        self._core_type, self._fsync, self._snapshot_every = core_type, fsync, snapshot_every
        draws = stream(seed, "node", id)
        self._clocks = {
            Clock.LEASE: SimClock(draws.randrange(START_MAX_NS), monotonic=True),
            Clock.WALL: SimClock(WALL_START_NS + draws.randrange(-MS, MS), monotonic=False),
        }
        self._lease = self._clocks[Clock.LEASE]
        self._disk_draws = stream(seed, "disk", id)
        self._disk = SimDisk(id, storage_type, self._disk_draws)
        self._mode: DiskMode | None = None
        self._slow_ns = self._hits = self._lost_bytes = 0
        self._booting = False
        self._paused: deque[Callable[[Core, int], None]] | None = None
        self._share: float | None = None
        self._used_ns = 0
        self._backlog: deque[Callable[[Core, int], None]] = deque()
        self._serving = self._tick_waits = False
        self._connections: dict[int, Connection] = {}
        self._next_connection = 0
        self._writing: deque[tuple[Batch | None, list[tuple[str, Any]]]] = deque()
        self._in_fsync = 0
        self._timer_at = 0
        self._timer_reading = 0  # what the lease clock says then
        self._role: Role | None = None
        self._term = 0
        self._leader: str | None = None
        self.draw_boot = draws

    # ---- processes

    @property
    def state(self) -> ProcessState:
        if self.core is None and not self._booting:
            return ProcessState.DEAD
        return ProcessState.RUNNING if self._paused is None else ProcessState.PAUSED

    def start(self) -> None:
        if self.state is not ProcessState.DEAD:
            return
        self.life += 1
        self._booting = True
        low, high = BOOT_NS
        self._loop.after(low + self.draw_boot.randrange(high - low), self._boot, self.life)

    def _boot(self, life: int) -> None:
        if life != self.life or not self._booting:
            return
        self._booting = False
        draws = stream(self._seed, "life", self.id, life)
        now = self._lease.read(self._loop.now)
        more: dict[str, Any] = {}
        if getattr(self._core_type, "needs_wall_clock", False):
            more["wall"] = lambda: self._clocks[Clock.WALL].read(self._loop.now)
        try:
            found = self._disk.recover()
            self.core = self._core_type(
                id=self.id,
                members=self._members,
                incarnation=draws.getrandbits(62),
                draw=lambda below: int(draws.random() * below),
                now=now,
                found=found,
                snapshot_every=self._snapshot_every,
                **more,
            )
        except DamageError as problem:  # as a node has to
            self._say(f"event=refused reason={str(problem)!r}")
            return
        except StorageError as problem:
            self._say(f"event=failed reason={str(problem)!r}")
            self.failures.append(f"{self.id} could not start: {problem}")
            return
        torn = self._disk.torn_bytes
        self._say(f"event=started term={self.core.raft.term} last={self.core.raft.log.last_index} torn_bytes={torn}")
        self._timer_at = 0
        if self._paused is None:
            self._flush(self.core, now)

    def kill(self) -> None:
        if self.state is ProcessState.DEAD:
            return
        self._lost_bytes = self._disk.unsynced_bytes
        self._disk.crash(keep_nothing=self._mode is DiskMode.VOLATILE)
        self._die("killed")

    def _die(self, why: str) -> None:
        self.life += 1
        self.core, self._paused, self._booting = None, None, False
        self._in_fsync = 0
        self._writing.clear()
        self._backlog.clear()
        self._serving = self._tick_waits = False
        self._used_ns = 0
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.drop()
        self._say(f"event={why}")

    def stop(self) -> None:
        """The end of a clean stop: what was handed to the disk is on it."""
        if self.state is not ProcessState.DEAD:
            self._disk.sync()
            self._die("stopped")

    def leave(self) -> bool:
        """Ask somebody else to lead; whether that is worth waiting for."""
        core = self.core
        if core is None or self._paused is not None:
            return False
        left = core.leave(self._lease.read(self._loop.now))
        self._flush(core, self._lease.read(self._loop.now))
        return left

    def pause(self) -> None:
        if self._paused is None and self.state is not ProcessState.DEAD:
            self._paused = deque()

    def resume(self) -> None:
        waiting, self._paused = self._paused or (), None
        core = self.core
        if core is None:
            return

        def catch_up(core: Core, now: int) -> None:
            for step in waiting:
                step(core, now)

        self._input(catch_up)
        self._serve_next()

    def starve(self, share: float | None) -> None:
        """The node takes its inputs one after the other, and each for as long as the share makes of INPUT_NS."""
        self._share = share
        if share is None:
            while self._backlog and self.core is not None and self._paused is None:
                self._handle(self._backlog.popleft())

    def usage(self) -> Usage:
        return Usage(self._used_ns, Limits(self._share))

    # ---- inputs

    def _input(self, step: Callable[[Core, int], None]) -> None:
        """Give the core an input, now or once the node is resumed; a dead node takes none."""
        core = self.core
        if core is None:
            return
        if self._paused is not None:
            self._paused.append(step)
        elif self._share is not None or self._backlog:
            self._backlog.append(step)
            self._serve_next()
        else:
            self._handle(step)

    def _serve_next(self) -> None:
        if self._backlog and not self._serving and self._paused is None:
            self._serving = True
            self._loop.after(round(INPUT_NS / (self._share or 1)), self._serve, self.life)

    def _serve(self, life: int) -> None:
        if life != self.life:
            return
        self._serving = False
        if self._backlog and self._paused is None:
            self._handle(self._backlog.popleft())
            self._serve_next()

    def _handle(self, step: Callable[[Core, int], None]) -> None:
        core = self.core
        if core is None:
            return
        self._used_ns += INPUT_NS
        try:
            now = self._lease.read(self._loop.now)
            step(core, now)
            self._flush(core, now)
        except Exception as problem:
            self._fail(problem)

    def _fail(self, problem: Exception) -> None:
        where = traceback.extract_tb(problem.__traceback__)[-1]
        words = f"{type(problem).__name__}: {problem} ({where.name}, line {where.lineno})"
        self.failures.append(f"{self.id} failed at {self._loop.now / 1e9:.6f} s: {words}")
        self._disk.crash()
        self._die("failed")
        self.log.append(traceback.format_exc())

    def receive(self, sender: str, message: Any) -> None:
        """As `_input`, which it would be most of the calls of, were it not for what a call costs."""
        core = self.core
        if core is None or self._paused is not None or self._share is not None or self._backlog:
            self._input(lambda core, now: core.receive(now, sender, message))
            return
        self._used_ns += INPUT_NS
        try:
            before = None if idle(message) else state(core)
            now = self._lease.read(self._loop.now)
            core.receive(now, sender, message)
            self._flush(core, now)
            if before is not None:
                self.reached.note(message, before, state(core))
        except Exception as problem:
            self._fail(problem)

    def accept(self, connection: Connection) -> bool:
        if self.core is None:
            return False
        self._next_connection += 1
        connection.number = self._next_connection
        self._connections[connection.number] = connection
        return True

    def client_message(self, connection: Connection, message: LockRequest | Ping | StatusRequest) -> None:
        def take(core: Core, now: int) -> None:
            match message:
                case Ping():
                    connection.answer(Pong())
                case StatusRequest():
                    connection.answer(StatusReply(message.id, self._status(core, now)))
                case _:
                    core.request(now, connection.number, message)

        self._input(take)

    def client_gone(self, connection: Connection) -> None:
        self._connections.pop(connection.number, None)
        self._input(lambda core, now: core.gone(now, connection.number))

    def _on_timer(self, life: int, at: int) -> None:
        if life != self.life or at != self._timer_at or self.core is None:
            return
        self._timer_at = 0
        if self._paused is None and self._lease.read(self._loop.now) < self.core.deadline():
            self._set_timer(self.core)  # the deadline has moved meanwhile
        elif not self._tick_waits:
            self._tick_waits = True
            self._input(self._tick)

    def _tick(self, core: Core, now: int) -> None:
        self._tick_waits = False
        core.tick(now)

    # ---- outputs

    def _flush(self, core: Core, now: int) -> None:
        out = core.collect(now)
        links = self.links
        for peer, message in out.now:
            links[peer].send(message)
        for number, answer in out.answers:
            connection = self._connections.get(number)
            if connection is not None:
                connection.answer(answer)
        if out.persist is not None or (out.after_persist and self._writing):
            self._writing.append((out.persist, out.after_persist))
            if not self._in_fsync:
                self._begin_fsync()
        else:
            for peer, message in out.after_persist:
                links[peer].send(message)
        if out.applied:
            life, now = self.life, self._loop.now
            self.applied += [(life, now, one) for one in out.applied]
        if out.proposed:
            self.proposed += out.proposed
        raft = core.raft
        if raft.leader != self._leader or raft.role is not self._role or raft.hard_state.term != self._term:
            self._role, self._term, self._leader = raft.role, raft.term, raft.leader
            where = f"role={raft.role} term={raft.term} leader={raft.leader}"
            self._say(f"event=role {where} commit={raft.commit} last={raft.log.last_index}")
            if core.leads:
                self._on_leader(self.id, raft.term)
        self._set_timer(core)

    def _set_timer(self, core: Core) -> None:
        """One timer is on its way at most that is not later than the deadline; an early one is set again."""
        reading = core.deadline()
        if self._timer_at and reading >= self._timer_reading:
            return
        loop = self._loop
        at = self._lease.moment(reading, loop.now)
        if not self._timer_at or at < self._timer_at:
            self._timer_at, self._timer_reading = at, reading
            loop.at(at, self._on_timer, self.life, at)

    def _say(self, words: str) -> None:
        self.log.append(f"{self._loop.now / 1e9:.6f} node={self.id} {words}")

    # ---- disk

    def _begin_fsync(self) -> None:
        """Everything that waits goes to the disk together, with one fsync."""
        items = list(self._writing)
        self._in_fsync = len(items)
        batches = [batch for batch, _ in items if batch is not None]
        if batches and self._mode is not None:
            self._hits += 1
            if self._mode in (DiskMode.ERROR, DiskMode.FULL):
                self._disk.crash()
                self._die(f"failed reason='the disk failed ({self._mode})'")
                return
        self._disk.write(batches)
        if self._mode is DiskMode.STALL and batches:
            return  # goes on when the disk is whole again
        took = self._fsync.draw(self._disk_draws) if batches else 0
        self._loop.after(max(took, self._slow_ns), self._synced, self.life)

    def _synced(self, life: int) -> None:
        if life != self.life or not self._in_fsync:
            return
        self._disk.sync()
        if self._in_fsync == len(self._writing):
            items = list(self._writing)
            self._writing.clear()
            self._in_fsync = 0
        else:
            items = [self._writing.popleft() for _ in range(self._in_fsync)]
            self._in_fsync = 0
            self._begin_fsync()

        def done(core: Core, now: int) -> None:
            for batch, sends in items:
                if batch is not None:
                    core.persisted(now, batch)
                for peer, message in sends:
                    self.links[peer].send(message)

        self._input(done)

    def break_disk(self, mode: DiskMode | None, slow_ms: int) -> None:
        stalled = self._mode is DiskMode.STALL and mode is not DiskMode.STALL
        self._mode, self._slow_ns, self._hits = mode, slow_ms * MS, 0
        if stalled and self._in_fsync:
            self._loop.after(self._fsync.draw(self._disk_draws), self._synced, self.life)

    def disk_report(self) -> DiskReport:
        unsynced = self._lost_bytes if self.state is ProcessState.DEAD else self._disk.unsynced_bytes
        return DiskReport(self._hits, unsynced)

    def read_data(self) -> Mapping[str, bytes]:
        data = self._disk.read()
        return {LOG: data} if data else {}

    def replace_data(self, files: Mapping[str, bytes]) -> None:
        self._disk.replace(files.get(LOG, b""))

    def wipe(self) -> None:
        """Without data, it is told of no cluster either."""
        self._disk.replace(b"")
        self._members = Members(())

    # ---- clocks

    def turn_clock(self, clock: Clock, setting: ClockSetting) -> None:
        self._clocks[clock].turn(setting, self._loop.now)
        self._clock_turned()

    def true_clock(self, clock: Clock) -> None:
        self._clocks[clock].make_true(self._loop.now)
        self._clock_turned()

    def _clock_turned(self) -> None:
        """What is due may be due earlier now."""
        self._timer_at = 0
        if self.core is not None:
            self._set_timer(self.core)

    # ---- looking at it

    def status(self) -> Mapping[str, Any] | None:
        """None while it doesn't answer."""
        if self.core is None or self._paused is not None:
            return None
        return self._status(self.core, self._lease.read(self._loop.now))

    def _status(self, core: Core, now: int) -> dict[str, Any]:
        return {**core.status(), "clock_ns": now, "wall_ns": self._clocks[Clock.WALL].read(self._loop.now)}

    def account(self) -> str:
        tail = "\n".join(f"  {line}" for line in self.log[-15:])
        return f"{self.id} is {self.state}; its log ends:\n{tail}"
