"""Partitions and flapping: sets of links that let nothing through, for a while or on and off.

Several may be active at once. What is cut is the union of their cuts, and each that ends takes only its own away, so a
link that two of them cut stays cut until both have ended.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from cluster.places.base import CutsPorts, Link, Place, PortCut
from cluster.systems.base import MAIN_PORT
from cluster.words import counted
from nemesis.aim import links_of, take_aim
from nemesis.background import Background, rest
from nemesis.family import Fault, Skipped
from nemesis.kinds import FLAPPING, PARTITION
from nemesis.probes import Probes, listing
from nemesis.schedule import Planned
from nemesis.spec import FaultSpec

#: That a probe doesn't pass is waited for in full, while the partition already lasts.
CUT_TIMEOUT_S = 0.3


class Cuts:
    """All cuts of a place, by the fault that made them; one for both families."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._active: dict[str, tuple[frozenset[Link], str | None]] = {}

    async def add(self, fault: str, links: frozenset[Link], port: str | None) -> None:
        """`port`: that one alone; None: whatever the port."""
        self._active[fault] = links, port
        await self._set()

    async def drop(self, fault: str) -> None:
        if (cut := self._active.pop(fault, None)) is None:
            return
        try:
            await self._set()
        except BaseException:
            self._active[fault] = cut  # so that who heals once more does not find it done
            raise

    def uncut(self, links: Iterable[Link], port: str | None) -> list[Link]:
        """Those of the links on which something passes, to that port if one is named."""
        named = port or MAIN_PORT
        cut = self._whole() | {link for links, of in self._active.values() if of == named for link in links}
        return [link for link in links if link not in cut]

    def _whole(self) -> frozenset[Link]:
        return frozenset(link for links, port in self._active.values() if port is None for link in links)

    async def _set(self) -> None:
        await self._place.set_cuts(self._whole())
        if isinstance(self._place, CutsPorts):
            await self._place.cut_ports(
                PortCut(link, port) for links, port in self._active.values() if port is not None for link in links
            )


class Partitions:
    kind = PARTITION

    def __init__(self, place: Place, nodes: Sequence[str], cuts: Cuts) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._cuts = cuts
        self._probes = Probes(place, nodes)
        self._provable: dict[str, list[Link]] = {}

    async def prepare(self, planned: Planned) -> Fault:
        aim, port = await take_aim(self._place, self._nodes, planned), _port(planned.spec)
        provable = await self._probes.passing(await self._open(aim.links, port), port=port)
        if not provable:
            raise Skipped(f"of its {counted(len(aim.links), 'link')} none let a probe through even before the cut")
        self._provable[planned.id] = provable
        detail, summary = aim.detail(), aim.words(self.kind, self._nodes)
        if port is not None:
            detail, summary = {**detail, "port": port}, f"{summary} of the port {port}"
        return Fault(planned.id, self.kind, aim.around, detail, aim.explicit(planned.spec), summary)

    async def apply(self, fault: Fault) -> str:
        provable = self._provable.pop(fault.id)
        links, port = links_of(fault.detail["cuts"]), _port(fault.explicit)
        await self._cuts.add(fault.id, links, port)
        leaks = await self._probes.passing(provable, CUT_TIMEOUT_S, port)
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
        port = _port(fault.explicit)
        return await self._probes.say_mended(await self._open(links_of(fault.detail["cuts"]), port), port)

    async def _open(self, links: Iterable[Link], port: str | None) -> list[Link]:
        """Those of the links that should let a probe through: nothing cuts them, and their target runs."""
        return await self._probes.leading_to_life(self._cuts.uncut(links, port))


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
            await self._cuts.add(fault.id, links, _port(spec))

    async def undo(self, fault: Fault) -> None:
        await self._background.stop(fault.id)
        await super().undo(fault)


def _port(spec: FaultSpec) -> str | None:
    """The only port that it is about, if one is named."""
    port = spec.given().get("port")
    return None if port is None else str(port)
