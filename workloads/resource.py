"""The resource that a lock protects: a register for each key, which writes reach after a delay.

It is part of the testbed, not of the service under test, so it is always there and its answers are certain. A write
is on its way for a random time, so that of two clients who both believe that they hold the lock either may come
first. The guarded register refuses a write under a token lower than the highest that it accepted; the unguarded twin
accepts everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from cluster.systems.base import Outcome
from workloads.generator import Op
from workloads.seeds import Seed

STALE_TOKEN = "stale-token"


@dataclass(slots=True)
class Register:
    """One value, and the token under which it was written; both None before the first write."""

    guarded: bool
    data: int | None = None
    token: int | None = None
    highest: int = 0

    def write(self, token: int, data: int) -> bool:
        """Whether the write was accepted."""
        if self.guarded and token < self.highest:
            return False
        self.data, self.token, self.highest = data, token, max(self.highest, token)
        return True


class Resource:
    """Registers by key, guarded ones and their unguarded twins, behind a network with random delays.

    `delay_ms` is the range of a write's way to the register; `sleep` takes seconds.
    """

    def __init__(
        self, seed: Seed, delay_ms: tuple[int, int], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._seed = seed
        self._delay_ms = delay_ms
        self._sleep = sleep
        self._registers: dict[tuple[str, bool], Register] = {}

    async def write(self, op: Op) -> Outcome:
        value = op.value or {}
        delay_ms = self._seed.split(op.thread).split(value["data"]).between(*self._delay_ms)
        await self._sleep(delay_ms / 1000)
        if self._register(op).write(value["token"], value["data"]):
            return Outcome("ok")
        return Outcome("fail", error=STALE_TOKEN)

    async def read(self, op: Op) -> Outcome:
        register = self._register(op)
        return Outcome("ok", {"data": register.data, "token": register.token})

    def _register(self, op: Op) -> Register:
        guarded = bool((op.value or {}).get("guarded", True))
        return self._registers.setdefault((op.key or "", guarded), Register(guarded))
