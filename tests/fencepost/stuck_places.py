"""Places that get stuck somewhere. They are in virtual time, so that no test waits for a budget to be spent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NoReturn

from cluster.places.base import Link, PlaceError
from cluster.places.sim import SimPlace


async def hang() -> NoReturn:
    await asyncio.Event().wait()
    raise AssertionError


class NeverStarts(SimPlace):
    async def start(self) -> None:
        await super().start()
        await hang()


class NeverServes(SimPlace):
    """Its nodes live, and say nothing."""

    async def start(self) -> None:
        await super().start()
        for node in self.nodes:
            await self.pause_node(node)


class NeverStops(SimPlace):
    async def close(self) -> None:
        await super().close()
        await hang()


class NeverHeals(SimPlace):
    async def set_cuts(self, links: Iterable[Link]) -> None:
        if not (cuts := list(links)):
            await hang()
        await super().set_cuts(cuts)


class FailsTwice(SimPlace):
    """What went wrong first is not hidden by what goes wrong at the end."""

    async def start(self) -> None:
        raise PlaceError("no room for nodes")

    async def close(self) -> None:
        await super().close()
        raise PlaceError("no room for logs either")


class LosesItsEngine(SimPlace):
    """Its nodes end at ten seconds, since what they run on does."""

    _asked = 0

    async def lost(self) -> str | None:
        self._asked += 1
        if self._asked < 5:
            return None
        for node in self.nodes:
            await self.kill_node(node)
        return "the engine was stopped"


class LosesTouch(SimPlace):
    async def lost(self) -> str | None:
        await hang()
