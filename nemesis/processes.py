"""Kill, stop, crash loops and pause.

At most one fault holds a node's process at a time. A kill takes a paused process over from the pause: the pause ended
with the process, and healing it leaves the node to the kill. Any other second fault on a held node, or on one that died
by itself, would change nothing and leaves that node out. So healing a fault touches exactly the nodes that it holds.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from cluster.concurrency import all_of
from cluster.places.base import Place, ProcessState
from cluster.systems.base import NodeUnreachable
from cluster.words import counted
from nemesis.background import Background, rest
from nemesis.family import Fault, Skipped
from nemesis.kinds import CRASH_LOOP, KILL, PAUSE, STOP
from nemesis.schedule import Planned
from nemesis.targets import LEADER_TARGETS, NoTarget, choose, find_leader

#: A running node answers in milliseconds; that a paused one doesn't is waited for in full.
SILENCE_TIMEOUT_S = 0.3


class Holds:
    """Which fault holds which node; one for both families."""

    def __init__(self) -> None:
        self._holders: dict[str, str] = {}

    def take(self, node: str, fault: Fault) -> None:
        self._holders[node] = fault.id

    def of(self, fault: Fault) -> list[str]:
        return [node for node in fault.targets if self._holders.get(node) == fault.id]

    def release(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self._holders.pop(node, None)

    def holder(self, node: str) -> str | None:
        return self._holders.get(node)


class ProcessFaults(ABC):
    """What kill and pause have in common: choosing among the nodes whose process the fault can still change, and
    healing those that it still holds."""

    kind: str
    _changes: frozenset[ProcessState]

    def __init__(self, place: Place, nodes: Sequence[str], holds: Holds) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._holds = holds
        self._healed: dict[str, list[str]] = {}

    @abstractmethod
    async def _heal_node(self, node: str) -> None: ...

    async def prepare(self, planned: Planned) -> Fault:
        target = planned.spec.target
        assert target is not None
        leader = await find_leader(self._place, self._nodes) if target in LEADER_TARGETS else None
        states = await self._states(self._nodes)
        candidates = [node for node, state in states.items() if state in self._changes]
        try:
            chosen = choose(target, self._nodes, candidates, leader.node if leader else None, planned.draws())
        except NoTarget as nobody:
            raise Skipped(f"{nobody} ({self._tell(states)})") from nobody
        targets = tuple(node for node in chosen if node in candidates)
        if not targets:
            raise Skipped(f"nothing to {self.kind}: {self._tell({node: states[node] for node in chosen})}")
        detail: dict[str, object] = {"target": target if isinstance(target, str) else list(target)}
        if leader is not None:
            detail["leader"] = {"node": leader.node, "term": leader.term}
        if left_out := [node for node in chosen if node not in targets]:
            detail["left_out"] = self._tell({node: states[node] for node in left_out})
        explicit = replace(planned.spec, target=targets)
        return Fault(planned.id, self.kind, targets, detail, explicit, f"{self.kind} {','.join(targets)}")

    async def _states(self, nodes: Sequence[str]) -> dict[str, ProcessState]:
        return dict(zip(nodes, await asyncio.gather(*map(self._place.state, nodes)), strict=True))

    def _tell(self, states: Mapping[str, ProcessState]) -> str:
        told = []
        for node, state in states.items():
            holder = self._holds.holder(node)
            told.append(f"{node} is {state}" + (f" by {holder}" if holder else ""))
        return ", ".join(told)

    async def _bring(self, fault: Fault, step: Callable[[str], Awaitable[None]], state: ProcessState) -> None:
        """Hold all targets and take the step with each. Raises Skipped unless all processes are then in that state."""
        for node in fault.targets:
            self._holds.take(node, fault)
        await all_of(map(step, fault.targets))
        states = await self._states(fault.targets)
        if others := {node: found for node, found in states.items() if found is not state}:
            raise Skipped(f"not {state} after all: {self._tell(others)}")

    async def undo(self, fault: Fault) -> None:
        held = self._holds.of(fault)
        self._healed.setdefault(fault.id, held)
        await self._heal_nodes(fault, held)
        self._holds.release(held)

    async def _heal_nodes(self, fault: Fault, nodes: Sequence[str]) -> None:
        await all_of(map(self._heal_node, nodes))

    async def confirm(self, fault: Fault) -> str:
        nodes = self._healed.pop(fault.id)
        if not nodes:
            return "nothing was left to heal: another fault has taken its nodes over"
        states = await self._states(nodes)
        accounts = [await self._place.account(node) for node, state in states.items() if state != ProcessState.RUNNING]
        return "; ".join(accounts) if accounts else f"the process of {', '.join(nodes)} runs"


class Kills(ProcessFaults):
    """SIGKILL; healed by starting the node again with the data that it left."""

    kind = KILL
    _changes = frozenset({ProcessState.RUNNING, ProcessState.PAUSED})

    async def apply(self, fault: Fault) -> str:
        await self._bring(fault, self._place.kill_node, ProcessState.DEAD)
        return f"the process of {', '.join(fault.targets)} is gone"

    async def _heal_nodes(self, fault: Fault, nodes: Sequence[str]) -> None:
        """All at once, or with `stagger` one after the other, in an order and at intervals that are drawn."""
        if "stagger" not in fault.explicit.given():
            await super()._heal_nodes(fault, nodes)
            return
        draws = random.Random(f"{fault.id}/{fault.explicit}")
        for position, node in enumerate(draws.sample(nodes, len(nodes))):
            if position > 0:
                await rest(fault.explicit.span_ms("stagger"), draws)
            await self._heal_node(node)

    async def _heal_node(self, node: str) -> None:
        await self._place.start_node(node)


class Stops(ProcessFaults):
    """SIGTERM, and SIGKILL for a node that doesn't end; healed as a kill is."""

    kind = STOP
    _changes = frozenset({ProcessState.RUNNING})

    async def apply(self, fault: Fault) -> str:
        await self._bring(fault, self._place.stop_node, ProcessState.DEAD)
        accounts = await asyncio.gather(*map(self._place.account, fault.targets))
        return "; ".join(account.partition(";")[0] for account in accounts)

    async def _heal_node(self, node: str) -> None:
        await self._place.start_node(node)


class CrashLoops(Kills):
    """SIGKILL and start, again and again, each node at times of its own; between two of its deaths a node may get far
    enough to serve, or not. The first kill is the one that is shown to take effect."""

    kind = CRASH_LOOP

    def __init__(self, place: Place, nodes: Sequence[str], holds: Holds) -> None:
        super().__init__(place, nodes, holds)
        self._background = Background()
        self._deaths: dict[str, int] = {}
        self._complaints: dict[str, str | None] = {}

    async def apply(self, fault: Fault) -> str:
        evidence = await super().apply(fault)
        self._deaths[fault.id] = len(fault.targets)
        self._background.start(fault.id, all_of(self._crash(fault, node) for node in fault.targets))
        return evidence

    async def _crash(self, fault: Fault, node: str) -> None:
        draws = random.Random(f"{fault.id}/{node}/{fault.explicit}")
        while True:
            await rest(fault.explicit.span_ms("down"), draws)
            if node not in self._holds.of(fault):
                return  # another fault has taken it over
            await self._place.start_node(node)
            await rest(fault.explicit.span_ms("up"), draws)
            if node not in self._holds.of(fault):
                return
            await self._place.kill_node(node)
            self._deaths[fault.id] += 1

    async def undo(self, fault: Fault) -> None:
        self._complaints[fault.id] = await self._background.stop(fault.id)
        await super().undo(fault)

    async def confirm(self, fault: Fault) -> str:
        deaths, complaint = self._deaths.pop(fault.id, 0), self._complaints.pop(fault.id, None)
        told = f"{counted(deaths, 'kill')} in all; {await super().confirm(fault)}"
        return told if complaint is None else f"{told}; {complaint}"


class Pauses(ProcessFaults):
    """SIGSTOP; healed by SIGCONT."""

    kind = PAUSE
    _changes = frozenset({ProcessState.RUNNING})

    async def apply(self, fault: Fault) -> str:
        await self._bring(fault, self._place.pause_node, ProcessState.PAUSED)
        answered = await asyncio.gather(*map(self._answers, fault.targets))
        if talking := [node for node, answer in zip(fault.targets, answered, strict=True) if answer]:
            raise Skipped(f"{', '.join(talking)} still answers")
        timeout_ms = SILENCE_TIMEOUT_S * 1000
        return f"the process of {', '.join(fault.targets)} is stopped and gave no status within {timeout_ms:.0f} ms"

    async def _answers(self, node: str) -> bool:
        try:
            await self._place.system.status(self._place.address(node), SILENCE_TIMEOUT_S)
        except NodeUnreachable:
            return False
        return True

    async def _heal_node(self, node: str) -> None:
        await self._place.resume_node(node)
