"""Reading a node's clock from outside."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from cluster.places.base import Clock, Place
from cluster.systems.base import NodeStatus, NodeUnreachable
from nemesis import clocks
from nemesis.family import Skipped


class Starting:
    """A place of one node that answers from its `silent`-th question on, and is its own system."""

    def __init__(self, silent: float, late_s: float = 0.0) -> None:
        self.system = self
        self._silent = silent
        self._late_s = late_s

    def address(self, node: str) -> str:
        return node

    async def status(self, address: str, timeout: float) -> NodeStatus:
        self._silent -= 1
        if self._silent >= 0:
            raise NodeUnreachable(f"{address} refused a connection")
        await asyncio.sleep(self._late_s)
        self._late_s = 0.0
        return NodeStatus(address, 1, 1, False, None, wall_ns=time.monotonic_ns() + 7_000_000_000)


def place(*about: Any) -> Place:
    return cast(Place, Starting(*about))


async def test_a_node_that_is_coming_up_is_waited_for() -> None:
    reading = await clocks.read_closely(place(3), "n1", Clock.WALL)
    assert reading.ahead_ns == pytest.approx(7e9, abs=reading.error_ns)


async def test_a_slow_answer_is_asked_for_again() -> None:
    reading = await clocks.read_closely(place(0, 0.3), "n1", Clock.WALL)
    assert reading.error_ns < 0.15e9


async def test_a_node_that_stays_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "SILENCE_BUDGET_S", 0.3)
    with pytest.raises(Skipped, match="n1 does not say what its wall clock is"):
        await clocks.read_closely(place(float("inf")), "n1", Clock.WALL)
