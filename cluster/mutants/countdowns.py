"""Mutants whose leases are counted down wrongly."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cluster.node.commands import Command, Grant, Result
from cluster.node.core import Core
from cluster.node.leases import MS, Due, Leases
from cluster.node.locks import LockTable
from cluster.node.protocol import Acquire
from cluster.node.raft import Raft
from cluster.node.steward import Caller, Steward


class OnWallClock(Core):
    """Leases end when the node's wall clock says so. `wall` gives nanoseconds."""

    needs_wall_clock = True

    def __init__(self, *, wall: Callable[[], int] = time.time_ns, **parts: Any) -> None:
        class WallLeases(Leases):
            """Keeps its deadlines in the wall clock's time, and asks that one whether they are over."""

            def start(self, key: str, token: int, lease_ms: int, now: int) -> None:
                super().start(key, token, lease_ms, wall())

            def due(self, now: int) -> list[Due]:
                return super().due(wall())

        self.leases_type = WallLeases  # type: ignore[misc]
        self._looked: int = parts["now"]
        super().__init__(**parts)

    def tick(self, now: int) -> None:
        self._looked = now
        super().tick(now)

    def deadline(self) -> int:
        """The countdowns' own is of the other clock: look again soon."""
        return min(self.raft.deadline(), self._looked + 20 * MS)


class RestartedByLeader(Core):
    """Each new leader counts every lease from its own beginning."""

    class steward_type(Steward):  # noqa: N801
        @classmethod
        def take_over(
            cls, raft: Raft, table: LockTable, leases: Leases, counters: dict[str, int], applied: int
        ) -> Steward:
            for key, hold in table.held.items():
                leases.start(key, hold.token, hold.lease_ms, raft.now)
            return super().take_over(raft, table, leases, counters, applied)


class OnlyOfOwnGrants(Core):
    """A node counts down only what was granted while it led; what it knows from log or snapshot never ends."""

    def _restore(self, now: int) -> None:
        super()._restore(now)
        for hold in self.table.held.values():
            if self.steward is None:
                self.leases.end(hold.token)

    def _count_down(self, command: Command, held_before: int | None, result: Result, now: int) -> None:
        super()._count_down(command, held_before, result, now)
        if isinstance(command, Grant) and self.steward is None:
            holder = self.table.holder(command.key)
            if holder is not None:
                self.leases.end(holder)


class FollowerRemoves(Core):
    """A follower drops a lock from its own table as soon as its own countdown is over."""

    def tick(self, now: int) -> None:
        super().tick(now)
        if self.steward is None:
            for due in self.leases.due(now):
                if self.table.holder(due.key) == due.token:
                    del self.table.held[due.key]

    def deadline(self) -> int:
        due = self.leases.deadline() if self.steward is None else None
        return super().deadline() if due is None else min(due, super().deadline())


class FromQueueing(Core):
    """A waiter's lease counts from when it queued: what it waited is taken off."""

    @dataclass(slots=True)
    class steward_type(Steward):  # noqa: N801
        _since: dict[Caller, int] = field(default_factory=dict)

        def _acquire(self, now: int, caller: Caller, request: Acquire) -> None:
            self._since[caller] = now
            Steward._acquire(self, now, caller, request)

        def _serve_queue(self, now: int, key: str) -> None:
            queue = self._queues.get(key)
            if queue and self.holder(key) is None:
                waiter = next(iter(queue.values()))
                waited_ms = (now - self._since.get(waiter.caller, now)) // MS
                waiter.lease_ms = max(1, waiter.lease_ms - waited_ms)
            Steward._serve_queue(self, now, key)
