"""Partitions and flapping: sets of links that let nothing through, for a while or on and off.

Several may be active at once. What is cut is the union of their cuts, and each that ends takes only its own away, so a
link that two of them cut stays cut until both have ended.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from cluster.places.base import Link, Place
from cluster.words import counted
from nemesis.aim import links_of, take_aim
from nemesis.background import Background, rest
from nemesis.family import Fault, Skipped
from nemesis.kinds import FLAPPING, PARTITION
from nemesis.probes import Probes, listing
from nemesis.schedule import Planned

#: That a probe doesn't pass is waited for in full, while the partition already lasts.
CUT_TIMEOUT_S = 0.3


class Cuts:
    """All cuts of a place, by the fault that made them; one for both families."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._active: dict[str, frozenset[Link]] = {}

    async def add(self, fault: str, links: frozenset[Link]) -> None:
        self._active[fault] = links
        await self._set()

    async def drop(self, fault: str) -> None:
        if self._active.pop(fault, None) is not None:
            await self._set()

    def uncut(self, links: Iterable[Link]) -> list[Link]:
        cut = self._union()
        return [link for link in links if link not in cut]

    def _union(self) -> frozenset[Link]:
        return frozenset().union(*self._active.values())

    async def _set(self) -> None:
        await self._place.set_cuts(self._union())


class Partitions:
    kind = PARTITION

    def __init__(self, place: Place, nodes: Sequence[str], cuts: Cuts) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._cuts = cuts
        self._probes = Probes(place, nodes)
        self._provable: dict[str, list[Link]] = {}

    async def prepare(self, planned: Planned) -> Fault:
        aim = await take_aim(self._place, self._nodes, planned)
        provable = await self._probes.passing(await self._open(aim.links))
        if not provable:
            raise Skipped(f"of its {counted(len(aim.links), 'link')} none let a probe through even before the cut")
        self._provable[planned.id] = provable
        summary = aim.words(self.kind, self._nodes)
        return Fault(planned.id, self.kind, aim.around, aim.detail(), aim.explicit(planned.spec), summary)

    async def apply(self, fault: Fault) -> str:
        provable = self._provable.pop(fault.id)
        links = links_of(fault.detail["cuts"])
        await self._cuts.add(fault.id, links)
        leaks = await self._probes.passing(provable, CUT_TIMEOUT_S)
        if leaks:
            raise Skipped(f"a probe still went through {listing(leaks)}")
        return (
            f"probes passed {listing(provable)} before, and none within {CUT_TIMEOUT_S * 1000:.0f} ms after;"
            f" {counted(len(links), 'link')} cut"
        )

    async def undo(self, fault: Fault) -> None:
        self._provable.pop(fault.id, None)
        await self._cuts.drop(fault.id)

    async def confirm(self, fault: Fault) -> str:
        return await self._probes.say_mended(await self._open(links_of(fault.detail["cuts"])))

    async def _open(self, links: Iterable[Link]) -> list[Link]:
        """Those of the links that should let a probe through: nothing cuts them, and their target runs."""
        return await self._probes.leading_to_life(self._cuts.uncut(links))


class Flappings(Partitions):
    """The same, on and off; the first cut is the one that is shown to take effect."""

    kind = FLAPPING

    def __init__(self, place: Place, nodes: Sequence[str], cuts: Cuts) -> None:
        super().__init__(place, nodes, cuts)
        self._background = Background()

    async def apply(self, fault: Fault) -> str:
        evidence = await super().apply(fault)
        self._background.start(fault.id, self._flap(fault))
        return evidence

    async def _flap(self, fault: Fault) -> None:
        spec, links = fault.explicit, links_of(fault.detail["cuts"])
        draws = random.Random(f"{fault.id}/{spec}")
        while True:
            await rest(spec.span_ms("down"), draws)
            await self._cuts.drop(fault.id)
            await rest(spec.span_ms("up"), draws)
            await self._cuts.add(fault.id, links)

    async def undo(self, fault: Fault) -> None:
        await self._background.stop(fault.id)
        await super().undo(fault)
