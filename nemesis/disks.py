"""Disks that stall, are slow, are full, fail, or forget.

What a disk does is the place's; that a node has met it, its disk reports. A node that finds its disk full or failing
stops, as it has to: what it holds on disk is then unknown. So these faults end by starting it again on a disk that
works; a disk that forgets needs a kill at the right moment, when something was written and not synced, and then the
same.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from cluster.concurrency import all_of
from cluster.places.base import BreaksDisks, DiskMode, DiskReport, Place, ProcessState
from cluster.words import counted
from nemesis.family import Fault, Skipped
from nemesis.kinds import DISK_ERROR, DISK_FULL, DISK_LOSE_UNSYNCED, DISK_SLOW, DISK_STALL
from nemesis.processes import Holds, ProcessFaults
from nemesis.schedule import Planned

#: Nodes under load write many times a second; who doesn't for so long has no disk that could be seen to fail.
WRITE_BUDGET_S = 3.0
WRITE_POLL_S = 0.005
#: Without the nodes that were killed already there may be no leader, and nothing to write.
STRAGGLER_BUDGET_S = 0.3
#: From the failed write to the end of the process.
END_BUDGET_S = 3.0
END_POLL_S = 0.02

MODES = {
    DISK_STALL: DiskMode.STALL,
    DISK_SLOW: DiskMode.VOLATILE,
    DISK_FULL: DiskMode.FULL,
    DISK_ERROR: DiskMode.ERROR,
    DISK_LOSE_UNSYNCED: DiskMode.VOLATILE,
}


class Disks(ProcessFaults):
    """One kind of disk fault; `broken` says which fault has which node's disk, and is shared by all kinds."""

    _changes = frozenset({ProcessState.RUNNING})

    def __init__(self, kind: str, place: Place, nodes: Sequence[str], holds: Holds, broken: dict[str, str]) -> None:
        super().__init__(place, nodes, holds)
        self.kind = kind
        self._broken = broken

    async def prepare(self, planned: Planned) -> Fault:
        """How slow a disk becomes is drawn here, so that the same again is as slow again."""
        fault = await super().prepare(planned)
        if self.kind not in (DISK_LOSE_UNSYNCED, DISK_SLOW):
            return fault
        slow_ms = random.Random(f"{planned.stream}/slow").randint(*planned.spec.span_ms("slow"))
        explicit = replace(fault.explicit, options=(("slow", (slow_ms, slow_ms)),))
        return replace(fault, detail={**fault.detail, "slow_ms": slow_ms}, explicit=explicit)

    async def apply(self, fault: Fault) -> str:
        targets = [node for node in fault.targets if node not in self._broken]
        if not targets:
            raise Skipped(f"the disk of {', '.join(fault.targets)} is broken already")
        self._broken.update(dict.fromkeys(targets, fault.id))
        if self.kind == DISK_LOSE_UNSYNCED:
            return await self._lose(fault, targets)
        if self.kind == DISK_SLOW:
            return await self._slow_down(fault, targets)
        return "; ".join(await all_of(self._break(fault, node) for node in targets))

    async def _slow_down(self, fault: Fault, targets: Sequence[str]) -> str:
        """Who has nothing to write now may have later."""
        disks, slow_ms = _abilities(self._place), fault.explicit.span_ms("slow")[1]
        await all_of(disks.break_disk(node, MODES[self.kind], slow_ms) for node in targets)
        wrote = [node for node, met in zip(targets, await all_of(map(self._writes, targets)), strict=True) if met]
        if not wrote:
            raise Skipped(f"{', '.join(targets)} wrote nothing within {WRITE_BUDGET_S:g} s")
        return f"writes of {', '.join(wrote)} met a sync of {slow_ms} ms"

    async def _writes(self, node: str) -> bool:
        try:
            await self._met(node, lambda report: report.hits > 0)
        except Skipped:
            return False
        return True

    async def _lose(self, fault: Fault, targets: Sequence[str]) -> str:
        """All at once: who is left alone by the death of the others has nothing to write, and dies with them."""
        disks, slow_ms = _abilities(self._place), fault.explicit.span_ms("slow")[1]
        await all_of(disks.break_disk(node, MODES[self.kind], slow_ms) for node in targets)
        begun = asyncio.Event()
        lost = dict(zip(targets, await all_of(self._kill_dirty(fault, node, begun) for node in targets), strict=True))
        if not any(lost.values()):
            raise Skipped(f"all that {', '.join(targets)} had written was on disk at the moment of the kill")
        return "; ".join(
            f"{node} was killed with {count} bytes written and not on disk" for node, count in lost.items()
        )

    async def _kill_dirty(self, fault: Fault, node: str, begun: asyncio.Event) -> int:
        """How many bytes it lost: none, when its sync ended just before the kill, or it wrote nothing any more once the
        killing had `begun`."""
        disks = _abilities(self._place)
        clock = asyncio.get_running_loop().time
        deadline, alone_since = clock() + WRITE_BUDGET_S, None
        while clock() < deadline and not (await disks.disk_report(node)).unsynced_bytes:
            if begun.is_set() and alone_since is None:
                alone_since = clock()
                deadline = min(deadline, alone_since + STRAGGLER_BUDGET_S)
            await asyncio.sleep(WRITE_POLL_S)
        begun.set()
        self._holds.take(node, fault)
        await self._place.kill_node(node)
        return (await disks.disk_report(node)).unsynced_bytes

    async def _break(self, fault: Fault, node: str) -> str:
        await _abilities(self._place).break_disk(node, MODES[self.kind])
        report = await self._met(node, lambda report: report.hits > 0)
        if self.kind == DISK_STALL:
            return f"a write of {node} waits"
        self._holds.take(node, fault)
        return f"{counted(report.hits, 'write')} of {node} failed; {await self._end_of(node)}"

    async def _met(self, node: str, shown: Callable[[DiskReport], bool]) -> DiskReport:
        clock = asyncio.get_running_loop().time
        deadline = clock() + WRITE_BUDGET_S
        while clock() < deadline:
            report = await _abilities(self._place).disk_report(node)
            if shown(report):
                return report
            await asyncio.sleep(WRITE_POLL_S)
        raise Skipped(f"{node} wrote nothing within {WRITE_BUDGET_S:g} s")

    async def _end_of(self, node: str) -> str:
        clock = asyncio.get_running_loop().time
        deadline = clock() + END_BUDGET_S
        while clock() < deadline and await self._place.state(node) is not ProcessState.DEAD:
            await asyncio.sleep(END_POLL_S)
        return (await self._place.account(node)).partition(";")[0]

    async def undo(self, fault: Fault) -> None:
        mine = [node for node, by in self._broken.items() if by == fault.id]
        await all_of(_abilities(self._place).break_disk(node, None) for node in mine)
        for node in mine:
            del self._broken[node]
        await super().undo(fault)

    async def _heal_node(self, node: str) -> None:
        await self._place.start_node(node)

    async def confirm(self, fault: Fault) -> str:
        if self.kind not in (DISK_STALL, DISK_SLOW):
            return await super().confirm(fault)
        self._healed.pop(fault.id, None)
        if self.kind == DISK_SLOW:
            return f"the disk of {', '.join(fault.targets)} syncs as fast as it can"
        clock = asyncio.get_running_loop().time
        deadline = clock() + WRITE_BUDGET_S
        while clock() < deadline:
            reports = await asyncio.gather(*map(_abilities(self._place).disk_report, fault.targets))
            if not any(report.waiting for report in reports):
                return f"no write of {', '.join(fault.targets)} waits any more"
            await asyncio.sleep(WRITE_POLL_S)
        return f"undone, but a write still waited {WRITE_BUDGET_S:g} s later"


def _abilities(place: Place) -> BreaksDisks:
    assert isinstance(place, BreaksDisks), "a scenario that asks for this is refused at such a place"
    return place
