"""Leadership is moved: to one node, once, or to another one again and again.

The evidence is another leader in a higher term. Who leads then may be another node than the one that was asked for:
one that begins an election can lose it.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

from cluster.places.base import Place, ProcessState
from cluster.systems.base import MovesLeadership
from cluster.words import counted
from nemesis.background import Background, rest
from nemesis.family import Fault, Skipped
from nemesis.kinds import TRANSFER
from nemesis.schedule import Planned
from nemesis.targets import Leader, NoTarget, ask_all, choose, find_leader

#: Moving it takes two round trips; a leader gives it up after an election's time-out, and may be asked again.
MOVE_BUDGET_S = 4.0
ASK_AGAIN_S = 1.0
ASK_TIMEOUT_S = 0.5
POLL_S = 0.02


class Transfers:
    kind = TRANSFER

    def __init__(self, place: Place, nodes: Sequence[str]) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._background = Background()
        self._moves: dict[str, int] = {}

    async def prepare(self, planned: Planned) -> Fault:
        spec = planned.spec
        assert spec.target is not None
        leader, to = await self._choose(spec.target, planned.draws())
        detail = {"leader": {"node": leader.node, "term": leader.term}, "to": to}
        # Again and again is to whom it is drawn each time.
        explicit = spec if "interval" in spec.given() else replace(spec, target=(to,))
        return Fault(planned.id, self.kind, (to,), detail, explicit, f"{self.kind} from {leader.node} to {to}")

    async def _choose(self, target: str | Sequence[str], draws: random.Random) -> tuple[Leader, str]:
        """Who leads, and who shall. Raises Skipped."""
        leader = await find_leader(self._place, self._nodes)
        if leader is None:
            raise Skipped("no node leads")
        states = dict(zip(self._nodes, await asyncio.gather(*map(self._place.state, self._nodes)), strict=True))
        voters = await self._voters(leader)
        able = [node for node in voters if node != leader.node and states[node] is ProcessState.RUNNING]
        try:
            chosen = [node for node in choose(target, self._nodes, able, leader.node, draws) if node in able]
        except NoTarget as nobody:
            raise Skipped(str(nobody)) from nobody
        if not chosen:
            raise Skipped(f"{leader.node} leads, and none of {', '.join(target)} could do so")
        return leader, chosen[0]

    async def _voters(self, leader: Leader) -> list[str]:
        """As the leader lists them; where it doesn't, all."""
        for status in await ask_all(self._place, [leader.node]):
            if status.members is not None:
                return [node for node in self._nodes if node in status.members and status.members[node].votes]
        return list(self._nodes)

    async def apply(self, fault: Fault) -> str:
        before = Leader(**fault.detail["leader"])
        clock = asyncio.get_running_loop().time
        started_s = clock()
        after = await self._move(before, fault.targets[0])
        took_ms = (clock() - started_s) * 1000
        self._moves[fault.id] = 1
        if "interval" in fault.explicit.given():
            self._background.start(fault.id, self._go_on(fault))
        return f"{before.node} led term {before.term}, and {took_ms:.0f} ms later {after.node} led term {after.term}"

    async def _move(self, before: Leader, to: str) -> Leader:
        """The new leader. Raises Skipped when there is none."""
        clock = asyncio.get_running_loop().time
        deadline, ask_at, said = clock() + MOVE_BUDGET_S, clock(), "nothing"
        while clock() < deadline:
            if clock() >= ask_at:
                outcome = await _system(self._place).move_leadership(
                    self._place.address(before.node), to, ASK_TIMEOUT_S
                )
                said, ask_at = outcome.error or outcome.type, clock() + ASK_AGAIN_S
            for status in await ask_all(self._place, self._nodes):
                if status.leads and status.term > before.term and status.id != before.node:
                    return Leader(status.id, status.term)
            await asyncio.sleep(POLL_S)
        raise Skipped(f"nobody but {before.node} led within {MOVE_BUDGET_S:g} s; asked to hand over, it said {said}")

    async def _go_on(self, fault: Fault) -> None:
        draws = random.Random(f"{fault.id}/{fault.explicit}")
        target = fault.explicit.target
        assert target is not None
        while True:
            await rest(fault.explicit.span_ms("interval"), draws)
            try:
                before, to = await self._choose(target, draws)
                await self._move(before, to)
            except Skipped:
                continue
            self._moves[fault.id] += 1

    async def undo(self, fault: Fault) -> None:
        await self._background.stop(fault.id)

    async def confirm(self, fault: Fault) -> str:
        leader = await find_leader(self._place, self._nodes)
        leads = "nobody leads" if leader is None else f"{leader.node} leads term {leader.term}"
        return f"{counted(self._moves.pop(fault.id, 0), 'move')} of leadership in all; {leads}"


def _system(place: Place) -> MovesLeadership:
    assert isinstance(place.system, MovesLeadership), "a scenario that asks for this is refused with such a system"
    return place.system
