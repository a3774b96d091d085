"""What faults do over and over while they last."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any


class Background:
    """One task for each fault that has one."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    def start(self, fault: str, work: Coroutine[Any, Any, object]) -> None:
        self._tasks[fault] = asyncio.create_task(work, name=f"fault {fault}")

    async def stop(self, fault: str) -> str | None:
        """End it; what it failed at before, if it did. Idempotent."""
        task = self._tasks.pop(fault, None)
        if task is None:
            return None
        task.cancel()
        await asyncio.wait({task})
        problem = None if task.cancelled() else task.exception()
        return None if problem is None else f"it ended early: {problem}"


async def rest(span_ms: tuple[int, int], draws: random.Random) -> None:
    """Sleep for a time drawn from the span."""
    await asyncio.sleep(draws.uniform(*span_ms) / 1000)
