"""Mutants whose tokens are not what every node computes."""

from __future__ import annotations

import time

from cluster.node.core import Core
from cluster.node.locks import LockTable


class TokenFromWallClock(Core):
    class table_type(LockTable):  # noqa: N801
        def next_token(self) -> int:
            return time.time_ns() // 1_000_000
