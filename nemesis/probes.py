"""Probes through links: the evidence that bytes pass, or don't."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from cluster.places.base import CutsPorts, Link, Place, PortCut, ProcessState

#: A probe through a whole link is back in milliseconds; one that should pass may take longer on a loaded machine.
PASS_TIMEOUT_S = 1.0
#: After mending: a node that was restarted meanwhile must come up before it answers.
MEND_BUDGET_S = 3.0
MEND_POLL_S = 0.1
#: Enough to see what kind of links they are; the history holds the complete list.
LINKS_NAMED_MAX = 4


class Probes:
    """Probes between the nodes of a place."""

    def __init__(self, place: Place, nodes: Sequence[str]) -> None:
        self._place = place
        self._nodes = tuple(nodes)

    async def leading_to_life(self, links: Iterable[Link]) -> list[Link]:
        """Those of the links whose target runs, and so could answer."""
        states = dict(zip(self._nodes, await asyncio.gather(*map(self._place.state, self._nodes)), strict=True))
        return [link for link in links if states[link.target] is ProcessState.RUNNING]

    async def passing(
        self, links: Iterable[Link], timeout_s: float = PASS_TIMEOUT_S, port: str | None = None
    ) -> list[Link]:
        """Those of the links that let a probe through, to that port if one is named; all are probed at once."""
        return sorted(await self.times(links, timeout_s, port))

    async def times(
        self, links: Iterable[Link], timeout_s: float = PASS_TIMEOUT_S, port: str | None = None
    ) -> dict[Link, float]:
        """How many seconds a probe took through each link, of those that let one through."""
        clock = asyncio.get_running_loop().time

        async def probe(link: Link) -> float | None:
            started = clock()
            return clock() - started if await self._passes(link, timeout_s, port) else None

        probed = sorted(links)
        taken = await asyncio.gather(*map(probe, probed))
        return {link: seconds for link, seconds in zip(probed, taken, strict=True) if seconds is not None}

    async def _passes(self, link: Link, timeout_s: float, port: str | None) -> bool:
        if port is None:
            return await self._place.probe_link(link, timeout_s)
        assert isinstance(self._place, CutsPorts), "a scenario that asks for this is refused at such a place"
        return await self._place.probe_port(PortCut(link, port), timeout_s)

    async def say_mended(self, links: Collection[Link], port: str | None = None) -> str:
        """Wait until probes pass all these links again, for a while; what came of it."""
        if not links:
            return "its links lead to nodes that are down, or are cut by another fault"
        clock = asyncio.get_running_loop().time
        silent: Collection[Link] = links
        deadline = clock() + MEND_BUDGET_S
        while silent and clock() < deadline:
            passing = await self.passing(silent, port=port)
            silent = [link for link in silent if link not in passing]
            if silent:
                await asyncio.sleep(MEND_POLL_S)
        if silent:
            return f"mended, but no probe passed {listing(silent)} within {MEND_BUDGET_S:g} s"
        return f"probes pass {listing(links)} again"


def listing(links: Collection[Link]) -> str:
    named = [f"{link.source}->{link.target}" for link in sorted(links)]
    more = len(named) - LINKS_NAMED_MAX
    return ", ".join(named[:LINKS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
