"""Who belongs to the cluster changes: nodes are removed, and come back with their data or with nothing.

What is asked for is made true by asking again and again, whoever leads by then, until the system says that it is final:
a change whose answer was lost may or may not have been begun, and asking for what is so already is no change. Several
nodes are asked for at once; that only one change is on its way at a time is the system's own matter. A node is wiped
only after its removal is final: before that, what it has promised may still count.

The end of the fault adds them again. That asks the system, as no other healing does, and so needs a leader: when there
is none the fault stays active, and healing everything at the end of the run, which mends the rest at the same time,
brings the members back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.concurrency import all_of
from cluster.places.base import HoldsData, Place, PlaceError, ProcessState
from cluster.systems.base import ChangesMembers, Member, Outcome
from cluster.words import counted
from nemesis.family import Fault, Skipped
from nemesis.kinds import MEMBERSHIP
from nemesis.processes import Holds
from nemesis.schedule import Planned
from nemesis.shapes import majority
from nemesis.targets import LEADER_BUDGET_S, LEADER_POLL_S, NoTarget, ask_all, choose

#: A change takes milliseconds; with a leader that is lost on the way, an election more. Other faults wait meanwhile.
CHANGE_BUDGET_S = 2.5
#: A node that has lost everything gets it first. What takes longer, or has no leader to ask, is tried again later.
RETURN_BUDGET_S = 4.0
RETURN_LEADER_BUDGET_S = 0.5
#: How long one answer is waited for, and how long until the same is asked again.
ASK_TIMEOUT_S = 2.0
ASK_POLL_S = 0.1

REMOVE, REPLACE = "remove", "replace"


@dataclass(frozen=True, slots=True)
class Configuration:
    """What the leader of a term lists."""

    leader: str
    term: int
    members: Mapping[str, Member]

    def words(self) -> str:
        names = [name if member.votes else f"{name} (learns)" for name, member in sorted(self.members.items())]
        return f"{self.leader} (term {self.term}) lists {', '.join(names)}"


async def configuration(place: Place, budget_s: float = LEADER_BUDGET_S) -> Configuration | None:
    """As the leader of the highest term lists it; None when there is none within `budget_s`."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + budget_s
    while True:
        leading = [status for status in await ask_all(place, place.nodes) if status.leads and status.members]
        best = max(leading, key=lambda status: status.term, default=None)
        if best is not None and best.members is not None:
            return Configuration(best.id, best.term, best.members)
        if clock() >= deadline:
            return None
        await asyncio.sleep(LEADER_POLL_S)


class Memberships:
    kind = MEMBERSHIP

    def __init__(self, place: Place, nodes: Sequence[str], holds: Holds) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._holds = holds
        #: Where others find each node, as they were told first.
        self._where: dict[str, str] = {}
        #: Of each fault, the nodes that may not belong to the cluster because of it.
        self._out: dict[str, set[str]] = {}
        self._asked: dict[str, int] = {}

    async def prepare(self, planned: Planned) -> Fault:
        spec = planned.spec
        assert spec.target is not None
        before = await self._known()
        states = dict(zip(self._nodes, await asyncio.gather(*map(self._place.state, self._nodes)), strict=True))
        candidates = [node for node in before.members if self._free(node, states[node])]
        try:
            chosen = choose(spec.target, self._nodes, candidates, before.leader, planned.draws())
        except NoTarget as nobody:
            raise Skipped(str(nobody)) from nobody
        targets = tuple(node for node in chosen if node in candidates)
        if not targets:
            raise Skipped(f"{before.words()}; {', '.join(chosen)} can't be removed now")
        if isinstance(spec.target, str):
            room = len(before.members) - majority(len(self._nodes))
            if room < 1:
                raise Skipped(f"{before.words()}, of {counted(len(self._nodes), 'node')}: no more shall be removed")
            targets = targets[:room]
        left = [node for node in before.members if node not in targets]
        alive = [node for node in left if states[node] is ProcessState.RUNNING]
        if len(alive) < majority(len(left)):
            raise Skipped(f"of {', '.join(left) or 'none'}, who would be left, too few run to agree on anything")
        change = str(spec.given()["change"])
        detail = {"target": _plain(spec.target), "change": change, "members": sorted(before.members)}
        explicit = replace(spec, target=targets)
        return Fault(planned.id, self.kind, targets, detail, explicit, f"{change} {','.join(targets)}")

    def _free(self, node: str, state: ProcessState) -> bool:
        return state is ProcessState.RUNNING and self._holds.holder(node) is None

    async def apply(self, fault: Fault) -> str:
        before = await self._known()
        self._where = {node: member.address for node, member in before.members.items()} | self._where
        out = self._out.setdefault(fault.id, set())
        clock = asyncio.get_running_loop().time
        started_s = clock()
        out.update(fault.targets)
        await all_of(self._remove(fault.id, node) for node in fault.targets)
        took_ms = (clock() - started_s) * 1000
        after = await self._known(without=fault.targets)
        if fault.detail["change"] == REPLACE:
            await all_of(self._wipe(fault, node) for node in fault.targets)
        asked = counted(self._asked.pop(fault.id, 0), "request")
        wiped = f"; {', '.join(fault.targets)} lost everything" if fault.detail["change"] == REPLACE else ""
        return f"{before.words()} before and {after.words()} after {asked} in {took_ms:.0f} ms{wiped}"

    async def _known(self, without: Collection[str] = ()) -> Configuration:
        """Raises Skipped when nobody leads, or, where some were removed, when no leader lists the rest alone."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + LEADER_BUDGET_S
        while True:
            known = await configuration(self._place, max(0.0, deadline - clock()))
            if known is not None and not known.members.keys() & set(without):
                return known
            if clock() >= deadline:
                raise Skipped("no node leads" if known is None else known.words())
            await asyncio.sleep(ASK_POLL_S)

    async def _remove(self, fault: str, node: str) -> None:
        def ask(leader: str) -> Awaitable[Outcome]:
            return _system(self._place).remove_member(self._place.address(leader), node, ASK_TIMEOUT_S)

        complaint = await self._until_final(fault, ask, CHANGE_BUDGET_S, CHANGE_BUDGET_S)
        if complaint is not None:
            raise Skipped(f"{node} could not be removed: {complaint}")

    async def _until_final(
        self, fault: str, ask: Callable[[str], Awaitable[Outcome]], budget_s: float, leader_budget_s: float
    ) -> str | None:
        """Ask whoever leads until the change is final; what was in the way, if it never was. Nobody may lead for so
        long."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + budget_s
        complaint = "no node leads"
        while (left := deadline - clock()) > 0:
            known = await configuration(self._place, min(left, leader_budget_s))
            if known is None:
                return complaint
            self._asked[fault] = self._asked.get(fault, 0) + 1
            outcome = await ask(known.leader)
            if outcome.type == "ok":
                return None
            complaint = f"{known.leader} (term {known.term}) says {outcome.error}"
            await asyncio.sleep(ASK_POLL_S)
        return complaint

    async def _wipe(self, fault: Fault, node: str) -> None:
        self._holds.take(node, fault)
        await self._place.kill_node(node)
        await _data(self._place).wipe_node(node)

    async def undo(self, fault: Fault) -> None:
        await all_of(self._bring_back(fault, node) for node in sorted(self._out.get(fault.id, ())))
        self._out.pop(fault.id, None)

    async def _bring_back(self, fault: Fault, node: str) -> None:
        if self._holds.holder(node) == fault.id:
            await self._place.start_node(node)
            self._holds.release([node])

        def ask(leader: str) -> Awaitable[Outcome]:
            where = self._where[node]
            return _system(self._place).add_member(self._place.address(leader), node, where, ASK_TIMEOUT_S)

        complaint = await self._until_final(fault.id, ask, RETURN_BUDGET_S, RETURN_LEADER_BUDGET_S)
        if complaint is not None:
            raise PlaceError(f"{node} is no member again: {complaint}")
        self._out[fault.id].discard(node)

    async def confirm(self, fault: Fault) -> str:
        asked = counted(self._asked.pop(fault.id, 0), "request")
        known = await configuration(self._place)
        return f"nobody leads, after {asked}" if known is None else f"{known.words()}, after {asked}"


def _plain(target: str | Sequence[str]) -> str | list[str]:
    return target if isinstance(target, str) else list(target)


def _system(place: Place) -> ChangesMembers:
    assert isinstance(place.system, ChangesMembers), "a scenario that asks for this is refused with such a system"
    return place.system


def _data(place: Place) -> HoldsData:
    assert isinstance(place, HoldsData), "a scenario that asks for this is refused at such a place"
    return place
