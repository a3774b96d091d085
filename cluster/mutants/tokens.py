"""Mutants whose tokens are not what every node computes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from cluster.node.core import Core
from cluster.node.locks import LockTable


class TokenFromWallClock(Core):
    """`wall` gives nanoseconds."""

    needs_wall_clock = True

    def __init__(self, *, wall: Callable[[], int] = time.time_ns, **parts: Any) -> None:
        class WallTable(LockTable):
            def next_token(self) -> int:
                return wall() // 1_000_000

        self.table_type = WallTable  # type: ignore[misc]
        super().__init__(**parts)


class CounterNotInSnapshot(Core):
    def _restore(self, now: int) -> None:
        before = self.applied
        super()._restore(now)
        if self.applied != before:
            self.table.last_token = 0


class CounterFromHeldLocks(Core):
    """After a snapshot the counter is the largest token that is held."""

    def _restore(self, now: int) -> None:
        before = self.applied
        super()._restore(now)
        if self.applied != before:
            self.table.last_token = max((hold.token for hold in self.table.held.values()), default=0)
