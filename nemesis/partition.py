"""Partitions: sets of links that let nothing through.

Several may be active at once. What is cut is the union of their cuts, and each that ends takes only its own away, so a
link that two of them cut stays cut until both have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from cluster.places.base import Link, Place, ProcessState
from nemesis import shapes
from nemesis.family import Fault, Skipped
from nemesis.schedule import Planned
from nemesis.spec import PARTITION, SHAPES
from nemesis.targets import LEADER_TARGETS, NoTarget, choose, find_leader

#: A probe through a whole link is back in milliseconds. One that should pass may take longer on a loaded machine; one
#: that should not is waited for in full, while the partition already lasts.
PASS_TIMEOUT_S = 1.0
CUT_TIMEOUT_S = 0.3
#: After mending: a node that was restarted meanwhile must come up before it answers.
MEND_BUDGET_S = 3.0
MEND_POLL_S = 0.1
#: Enough to see what kind of links they are; the history holds the complete list.
LINKS_NAMED_MAX = 4


class Partitions:
    kind = PARTITION

    def __init__(self, place: Place, nodes: Sequence[str]) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._active: dict[str, frozenset[Link]] = {}
        self._provable: dict[str, list[Link]] = {}

    async def prepare(self, planned: Planned) -> Fault:
        around, cuts = await self._choose(planned)
        provable = await self._passing(await self._open(cuts), PASS_TIMEOUT_S)
        if not provable:
            raise Skipped(f"none of its {len(cuts)} links let a probe through even before the cut")
        self._provable[planned.id] = provable
        listed = tuple(sorted((link.source, link.target) for link in cuts))
        detail = {"shape": planned.spec.shape or "cuts", "cuts": [list(link) for link in listed]}
        explicit = replace(planned.spec, shape=None, target=None, cuts=listed)
        summary = f"partition {detail['shape']}" + (f" {','.join(around)}" if len(around) < len(self._nodes) else "")
        return Fault(planned.id, self.kind, around, detail, explicit, summary)

    async def _choose(self, planned: Planned) -> tuple[tuple[str, ...], frozenset[Link]]:
        spec = planned.spec
        if spec.cuts is not None:
            cuts = frozenset(Link(*link) for link in spec.cuts)
            touched = {node for link in cuts for node in link}
            return tuple(node for node in self._nodes if node in touched), cuts
        assert spec.shape is not None
        draws = planned.draws()
        if spec.shape == "isolated-leader":
            target: str | Sequence[str] = "leader"
        else:
            target = spec.target or next(iter(SHAPES[spec.shape].targets), "all")
        leader = await find_leader(self._place, self._nodes) if target in LEADER_TARGETS else None
        try:
            around = choose(target, self._nodes, self._nodes, leader.node if leader else None, draws)
        except NoTarget as nobody:
            raise Skipped(str(nobody)) from nobody
        return around, shapes.build(spec.shape, self._nodes, around, draws)

    async def apply(self, fault: Fault) -> str:
        provable = self._provable.pop(fault.id)
        self._active[fault.id] = _cuts(fault)
        await self._set_cuts()
        leaks = await self._passing(provable, CUT_TIMEOUT_S)
        if leaks:
            raise Skipped(f"a probe still went through {_listing(leaks)}")
        return (
            f"probes passed {_listing(provable)} before, and none within {CUT_TIMEOUT_S * 1000:.0f} ms after;"
            f" {len(self._active[fault.id])} links cut"
        )

    async def undo(self, fault: Fault) -> None:
        self._provable.pop(fault.id, None)
        if self._active.pop(fault.id, None) is not None:
            await self._set_cuts()

    async def confirm(self, fault: Fault) -> str:
        mended = await self._open(_cuts(fault))
        if not mended:
            return "its links lead to nodes that are down, or are cut by another fault"
        silent: Collection[Link] = mended
        clock = asyncio.get_running_loop().time
        deadline = clock() + MEND_BUDGET_S
        while silent and clock() < deadline:
            passing = await self._passing(silent, PASS_TIMEOUT_S)
            silent = [link for link in silent if link not in passing]
            if silent:
                await asyncio.sleep(MEND_POLL_S)
        if silent:
            return f"mended, but no probe passed {_listing(silent)} within {MEND_BUDGET_S:g} s"
        return f"probes pass {_listing(mended)} again"

    async def _set_cuts(self) -> None:
        await self._place.set_cuts(_union(self._active.values()))

    async def _open(self, links: Iterable[Link]) -> list[Link]:
        """Those of the links that should let a probe through: no active partition cuts them, and their target runs."""
        cut = _union(self._active.values())
        states = dict(zip(self._nodes, await asyncio.gather(*map(self._place.state, self._nodes)), strict=True))
        return [link for link in links if link not in cut and states[link.target] is ProcessState.RUNNING]

    async def _passing(self, links: Iterable[Link], timeout_s: float) -> list[Link]:
        """Those of the links that let a probe through; all are probed at once."""
        probed = sorted(links)
        passed = await asyncio.gather(*(self._place.probe_link(link, timeout_s) for link in probed))
        return [link for link, answered in zip(probed, passed, strict=True) if answered]


def _cuts(fault: Fault) -> frozenset[Link]:
    return frozenset(Link(source, target) for source, target in fault.detail["cuts"])


def _union(cuts: Iterable[frozenset[Link]]) -> frozenset[Link]:
    return frozenset().union(*cuts)


def _listing(links: Collection[Link]) -> str:
    named = [f"{link.source}->{link.target}" for link in sorted(links)]
    more = len(named) - LINKS_NAMED_MAX
    return ", ".join(named[:LINKS_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
