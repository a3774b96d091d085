"""Nodes that get too little CPU time, or too little memory.

What a node may use is the place's to limit; that the limit holds is read back from whoever enforces it, and for CPU
time also measured: what the node used before, and what since. A node that is short of memory may end; then it is
started again in the end, unless another fault has its process by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from cluster.concurrency import all_of
from cluster.places.base import Limits, Place, PlaceError, ProcessState, StarvesNodes, Usage
from nemesis.family import Fault, Skipped
from nemesis.kinds import STARVE
from nemesis.processes import Holds
from nemesis.schedule import Planned
from nemesis.spec import FaultSpec
from nemesis.targets import LEADER_TARGETS, NoTarget, choose, find_leader

#: Over how long CPU time is measured, before and since. Some periods of the quota, which is kept on average.
BEFORE_S = 0.3
SINCE_S = 0.7
#: What a quota lets through beyond the share: half of it, and a few milliseconds that were under way.
EXCESS = 1.5
EXCESS_S = 0.03


class Starvations:
    """Several may limit a node at once; what holds is the least of each."""

    kind = STARVE

    def __init__(self, place: Place, nodes: Sequence[str], holds: Holds) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._holds = holds
        self._active: dict[str, tuple[tuple[str, ...], Limits]] = {}

    async def prepare(self, planned: Planned) -> Fault:
        target = planned.spec.target
        assert target is not None
        leader = await find_leader(self._place, self._nodes) if target in LEADER_TARGETS else None
        states = dict(zip(self._nodes, await asyncio.gather(*map(self._place.state, self._nodes)), strict=True))
        candidates = [node for node, state in states.items() if state is ProcessState.RUNNING]
        try:
            chosen = choose(target, self._nodes, candidates, leader.node if leader else None, planned.draws())
        except NoTarget as nobody:
            raise Skipped(str(nobody)) from nobody
        targets = tuple(node for node in chosen if node in candidates)
        if not targets:
            raise Skipped(f"nothing to starve: {', '.join(f'{node} is {states[node]}' for node in chosen)}")
        explicit = replace(planned.spec, target=targets)
        return Fault(planned.id, self.kind, targets, planned.spec.given(), explicit, f"starve {','.join(targets)}")

    async def apply(self, fault: Fault) -> str:
        limits = _limits(fault.explicit)
        before = await self._rates(fault.targets, BEFORE_S) if limits.cpu is not None else {}
        self._active[fault.id] = fault.targets, limits
        await self._set(fault.targets)
        if limits.cpu is not None:
            return await self._shown_slow(fault, before)
        usages = await self._usages(fault.targets)
        if free := [node for node, usage in usages.items() if usage.limits.memory is None]:
            raise Skipped(f"{', '.join(free)} has no limit of memory after all")
        told = ", ".join(f"{node} may use {usage.limits.memory} bytes" for node, usage in usages.items())
        return f"as read back: {told}"

    async def _shown_slow(self, fault: Fault, before: dict[str, float]) -> str:
        usages = await self._usages(fault.targets)
        since = await self._rates(fault.targets, SINCE_S)
        told = []
        for node, rate in since.items():
            share = usages[node].limits.cpu
            if share is None:
                raise Skipped(f"{node} has no limit of CPU time after all")
            if rate > share * EXCESS + EXCESS_S / SINCE_S:
                raise Skipped(f"{node} used {rate:.1%} of a core in spite of its {share:.1%}")
            told.append(f"{node} {rate:.1%} of a core (of {share:.1%}), and {before[node]:.1%} before")
        return f"CPU time used over {SINCE_S:g} s: {', '.join(told)}"

    async def _rates(self, nodes: Sequence[str], window_s: float) -> dict[str, float]:
        """CPU time by real time. Raises Skipped for a process that ended meanwhile."""
        clock = asyncio.get_running_loop().time

        async def look(node: str) -> tuple[float, int]:
            usage = await self._usage(node)
            return clock(), usage.cpu_ns

        first = await asyncio.gather(*map(look, nodes))
        await asyncio.sleep(window_s)
        second = await asyncio.gather(*map(look, nodes))
        return {
            node: (end[1] - begin[1]) / 1e9 / (end[0] - begin[0])
            for node, begin, end in zip(nodes, first, second, strict=True)
        }

    async def _usages(self, nodes: Sequence[str]) -> dict[str, Usage]:
        return dict(zip(nodes, await asyncio.gather(*map(self._usage, nodes)), strict=True))

    async def _usage(self, node: str) -> Usage:
        return await _abilities(self._place).usage(node)

    async def _set(self, nodes: Sequence[str]) -> None:
        """Have each of the nodes limited as all faults together say."""
        await all_of(_abilities(self._place).starve_node(node, self._least(node)) for node in nodes)

    def _least(self, node: str) -> Limits:
        all_limits = [limits for targets, limits in self._active.values() if node in targets]
        return Limits(
            min((limits.cpu for limits in all_limits if limits.cpu is not None), default=None),
            min((limits.memory for limits in all_limits if limits.memory is not None), default=None),
        )

    async def undo(self, fault: Fault) -> None:
        if (active := self._active.pop(fault.id, None)) is None:
            return
        try:
            await self._set(fault.targets)
        except BaseException:
            self._active[fault.id] = active  # so that who heals once more does not find it done
            raise
        _, limits = active
        if limits.memory is None:
            return
        states = await asyncio.gather(*map(self._place.state, fault.targets))
        ended = [node for node, state in zip(fault.targets, states, strict=True) if state is ProcessState.DEAD]
        await all_of(self._place.start_node(node) for node in ended if self._holds.holder(node) is None)

    async def confirm(self, fault: Fault) -> str:
        told = []
        for node in fault.targets:
            try:
                limits = (await self._usage(node)).limits
            except PlaceError:
                told.append(f"{node} is down")
                continue
            still = [name for name, value in (("CPU time", limits.cpu), ("memory", limits.memory)) if value is not None]
            told.append(f"{node} is limited in {' and '.join(still)} by another fault" if still else f"{node} is free")
        return f"as read back: {', '.join(told)}"


def _limits(spec: FaultSpec) -> Limits:
    options = spec.given()
    return Limits(
        spec.number("cpu") if "cpu" in options else None, int(spec.number("memory")) if "memory" in options else None
    )


def _abilities(place: Place) -> StarvesNodes:
    assert isinstance(place, StarvesNodes), "a scenario that asks for this is refused at such a place"
    return place
