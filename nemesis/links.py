"""Faults of links that let something through: late, slowly, in part, twice, or only until the connection is reset.

What links do to bytes is the place's (`Shaping`). Several faults may shape a link at once; each that ends takes only
its own part away. How each is shown to have taken effect:

delay                   a probe takes at least so long
throttle, stall,        traffic that was sent into a link waits there, and did not before; a link that nobody talks
large-packets           over can't be shown to hold anything back, so such a fault is skipped
duplicate, reorder,     the link has done it to a frame, or to some bytes
corrupt
reset                   there were connections, and they were reset
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence

from cluster.places.base import Link, LinkCounts, Place, ShapesLinks, Shaping
from cluster.words import counted
from nemesis import kinds
from nemesis.aim import links_of, take_aim
from nemesis.background import Background, rest
from nemesis.family import Fault, Skipped
from nemesis.kinds import RESET
from nemesis.probes import PASS_TIMEOUT_S, Probes, listing
from nemesis.schedule import Planned
from nemesis.spec import FaultSpec

#: Nodes speak to each other several times a second at least; who is silent for longer says nothing over this link.
TRAFFIC_BUDGET_S = 3.0
TRAFFIC_POLL_S = 0.02


def _abilities(place: Place) -> ShapesLinks:
    assert isinstance(place, ShapesLinks), "a scenario that asks for this is refused at such a place"
    return place


class Shapings:
    """All that is done to links, by the fault that does it; one for all families."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._active: dict[str, tuple[frozenset[Link], Shaping]] = {}

    async def add(self, fault: str, links: frozenset[Link], shaping: Shaping) -> None:
        self._active[fault] = links, shaping
        await self._set()

    async def drop(self, fault: str) -> None:
        if (shaped := self._active.pop(fault, None)) is None:
            return
        try:
            await self._set()
        except BaseException:
            self._active[fault] = shaped  # so that who heals once more does not find it done
            raise

    async def _set(self) -> None:
        merged: dict[Link, Shaping] = {}
        for links, shaping in self._active.values():
            for link in links:
                merged[link] = merged.get(link, Shaping()) | shaping
        await _abilities(self._place).shape_links(merged)


def _shaping(spec: FaultSpec) -> Shaping:
    match spec.fault:
        case kinds.DELAY:
            return Shaping(delay_ms=spec.span_ms("delay"))
        case kinds.THROTTLE:
            return Shaping(rate=int(spec.number("rate")))
        case kinds.STALL:
            return Shaping(stall=True)
        case kinds.LARGE_PACKETS:
            return Shaping(largest=int(spec.number("largest")))
        case kinds.DUPLICATE:
            return Shaping(duplicate=spec.number("share"))
        case kinds.REORDER:
            return Shaping(reorder=spec.number("share"))
        case kinds.CORRUPT:
            return Shaping(corrupt=spec.number("share"))
    raise ValueError(f"{spec.fault} is no shaping of links")


#: What counts as an effect, and the words for it, where a probe can't show it.
_EFFECTS: dict[str, tuple[Callable[[LinkCounts], int], str]] = {
    kinds.THROTTLE: (lambda counts: counts.held_bytes, "bytes wait in"),
    kinds.STALL: (lambda counts: counts.held_bytes, "bytes wait in"),
    kinds.LARGE_PACKETS: (lambda counts: counts.held_bytes, "bytes are stuck in"),
    kinds.DUPLICATE: (lambda counts: counts.duplicated, "frames came twice through"),
    kinds.CORRUPT: (lambda counts: counts.corrupted, "changed pieces went through"),
    kinds.REORDER: (lambda counts: counts.reordered, "frames were overtaken in"),
}


class ShapedLinks:
    """One kind of fault that shapes links."""

    def __init__(self, kind: str, place: Place, nodes: Sequence[str], shapings: Shapings) -> None:
        self.kind = kind
        self._place = place
        self._nodes = tuple(nodes)
        self._shapings = shapings
        self._probes = Probes(place, nodes)

    async def prepare(self, planned: Planned) -> Fault:
        aim = await take_aim(self._place, self._nodes, planned)
        detail = aim.detail() | dict(planned.spec.given())
        summary = aim.words(self.kind, self._nodes)
        return Fault(planned.id, self.kind, aim.around, detail, aim.explicit(planned.spec), summary)

    async def apply(self, fault: Fault) -> str:
        links = links_of(fault.detail["cuts"])
        if self.kind == kinds.DELAY:
            return await self._delay(fault, links)
        effect, words = _EFFECTS[self.kind]
        before = await self._measure(links, effect)
        await self._shapings.add(fault.id, links, _shaping(fault.explicit))
        grown = await self._grown(before, effect)
        return "; ".join(f"{count} {words} {listing([link])}" for link, count in sorted(grown.items())[:3])

    async def _delay(self, fault: Fault, links: Collection[Link]) -> str:
        before = await self._probes.times(await self._probes.leading_to_life(links))
        if not before:
            raise Skipped(f"of its {counted(len(links), 'link')} none let a probe through even before")
        await self._shapings.add(fault.id, frozenset(links), _shaping(fault.explicit))
        low_ms, high_ms = fault.explicit.span_ms("delay")
        after = await self._probes.times(before, PASS_TIMEOUT_S + high_ms / 500)
        late = {link: taken for link, taken in after.items() if taken >= low_ms / 1000}
        if len(late) < len(after) or not late:
            raise Skipped(f"a probe was not late through {listing(set(after) - set(late)) or 'any link'}")
        link = min(late, key=lambda link: late[link])
        return (
            f"a probe took {late[link] * 1000:.1f} ms at least ({listing([link])}), and {before[link] * 1000:.1f} ms"
            f" before; {counted(len(links), 'link')}"
        )

    async def _measure(self, links: Collection[Link], effect: Callable[[LinkCounts], int]) -> dict[Link, int]:
        counts = await asyncio.gather(*map(_abilities(self._place).link_counts, links))
        return {link: effect(count) for link, count in zip(links, counts, strict=True)}

    async def _grown(self, before: dict[Link, int], effect: Callable[[LinkCounts], int]) -> dict[Link, int]:
        """By how much the effect has grown on each link where it has, once there is one. Raises Skipped."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + TRAFFIC_BUDGET_S
        while True:
            after = await self._measure(before, effect)
            grown = {link: after[link] - count for link, count in before.items() if after[link] > count}
            if grown:
                return grown
            if clock() > deadline:
                raise Skipped(f"nothing came of it on {counted(len(before), 'link')} within {TRAFFIC_BUDGET_S:g} s")
            await asyncio.sleep(TRAFFIC_POLL_S)

    async def undo(self, fault: Fault) -> None:
        await self._shapings.drop(fault.id)

    async def confirm(self, fault: Fault) -> str:
        return await self._probes.say_mended(await self._probes.leading_to_life(links_of(fault.detail["cuts"])))


class Resets:
    """Connections are reset, again and again."""

    kind = RESET

    def __init__(self, place: Place, nodes: Sequence[str]) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._probes = Probes(place, nodes)
        self._background = Background()
        self._counts: dict[str, int] = {}

    async def prepare(self, planned: Planned) -> Fault:
        aim = await take_aim(self._place, self._nodes, planned)
        summary = aim.words(self.kind, self._nodes)
        return Fault(planned.id, self.kind, aim.around, aim.detail(), aim.explicit(planned.spec), summary)

    async def apply(self, fault: Fault) -> str:
        links = links_of(fault.detail["cuts"])
        count = self._counts[fault.id] = await _abilities(self._place).reset_links(links)
        if count == 0:
            raise Skipped(f"no connection through its {counted(len(links), 'link')}")
        self._background.start(fault.id, self._reset(fault))
        return f"{counted(count, 'reset')} of connections at once"

    async def _reset(self, fault: Fault) -> None:
        draws = random.Random(f"{fault.id}/{fault.explicit}")
        while True:
            await rest(fault.explicit.span_ms("interval"), draws)
            self._counts[fault.id] += await _abilities(self._place).reset_links(links_of(fault.detail["cuts"]))

    async def undo(self, fault: Fault) -> None:
        await self._background.stop(fault.id)

    async def confirm(self, fault: Fault) -> str:
        count = self._counts.pop(fault.id, 0)
        links = await self._probes.leading_to_life(links_of(fault.detail["cuts"]))
        return f"{counted(count, 'reset')} of connections in all; {await self._probes.say_mended(links)}"
