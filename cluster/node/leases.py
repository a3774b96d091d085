"""Lease countdowns: on every node, one for every lock in its applied table.

A countdown starts when this node applies the Grant, by this node's own clock. It only tells a leader when to propose
Expire; nothing is ever removed by a countdown itself, so clocks that differ can't split the lock state. Every node
counts, so a new leader already has a countdown for every lock that it knows.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

MS = 1_000_000

#: How many countdowns of locks that are gone may wait in the heap before they are swept out (a follower never looks
#: at its heap, so nothing else would).
STALE_MAX = 1_000


class Due(NamedTuple):
    deadline: int
    token: int
    key: str


class Leases:
    """Times are nanoseconds of the clock that the callers pass in."""

    def __init__(self) -> None:
        self._running: dict[int, Due] = {}
        self._heap: list[Due] = []

    def start(self, key: str, token: int, lease_ms: int, now: int) -> None:
        due = Due(now + lease_ms * MS, token, key)
        self._running[token] = due
        heapq.heappush(self._heap, due)

    def end(self, token: int) -> None:
        """The lock of this token is gone; ends nothing when it has no countdown."""
        self._running.pop(token, None)
        if len(self._heap) > 2 * len(self._running) + STALE_MAX:
            self._heap = sorted(due for due in self._heap if self._running.get(due.token) == due)

    def due(self, now: int) -> list[Due]:
        """The countdowns that are over, oldest first. Each is handed out once; `restart_due` brings them back."""
        over = []
        while self._heap and self._heap[0].deadline <= now:
            due = heapq.heappop(self._heap)
            if self._running.get(due.token) == due:
                over.append(due)
        return over

    def restart_due(self) -> None:
        """Hand out again, in the next `due`, what was handed out but is still running: a new leader has to propose
        what an earlier one proposed in vain."""
        self._heap = sorted(self._running.values())

    def deadline(self) -> int | None:
        """When the next countdown ends; None when none runs."""
        while self._heap and self._running.get(self._heap[0].token) != self._heap[0]:
            heapq.heappop(self._heap)
        return self._heap[0].deadline if self._heap else None
