"""Faults of clients: cut off from their nodes, or frozen.

A frozen client is the fault that breaks naive locks: a holder stops, its lease ends, another one gets the lock, and the
first goes on believing that it holds it. What is frozen is a client as the history sees it: what comes back meanwhile
is not known to it, and it begins nothing, until it is thawed.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Protocol

from cluster.places.base import CutsClients, Place, ProcessState
from nemesis.family import Fault, Skipped
from nemesis.kinds import CLIENT_PARTITION, CLIENT_PAUSE
from nemesis.probes import MEND_BUDGET_S, MEND_POLL_S, PASS_TIMEOUT_S
from nemesis.schedule import Planned
from nemesis.shapes import majority, minority
from nemesis.targets import LEADER_TARGETS, NoTarget, choose, find_leader

#: That nothing comes through is waited for in full.
CUT_TIMEOUT_S = 0.3
#: Holders hold for milliseconds; one is sure to come by within this, if the service grants anything at all.
HOLDER_BUDGET_S = 2.0
HOLDER_POLL_S = 0.002


class Freezer(Protocol):
    """The clients of a run, by the numbers of their threads."""

    @property
    def threads(self) -> Sequence[int]: ...

    def holding(self) -> Collection[int]:
        """Those that hold a lock, as far as they know."""

    def freeze(self, threads: Collection[int]) -> None: ...

    def thaw(self, threads: Collection[int]) -> None: ...

    def frozen(self) -> Collection[int]: ...


class ClientPauses:
    kind = CLIENT_PAUSE

    def __init__(self, clients: Freezer) -> None:
        self._clients = clients
        self._frozen: dict[str, list[int]] = {}

    async def prepare(self, planned: Planned) -> Fault:
        target = planned.spec.target
        assert target is not None
        threads = await self._choose(target, planned.draws())
        if not threads:
            raise Skipped(f"no client is left for the target {target}")
        names = tuple(f"client-{thread}" for thread in threads)
        explicit = replace(planned.spec, target=names)
        return Fault(planned.id, self.kind, names, {}, explicit, f"{self.kind} {','.join(names)}")

    async def _choose(self, target: str | Sequence[str], draws: random.Random) -> list[int]:
        if not isinstance(target, str):
            return [number for number in map(_number, target) if number not in self._clients.frozen()]
        awake = [thread for thread in self._clients.threads if thread not in self._clients.frozen()]
        if target == "holder":
            return await self._holder(draws)
        count = len(self._clients.threads)
        sizes = {"one": 1, "minority": minority(count), "majority": majority(count), "all": count}
        return sorted(draws.sample(awake, min(max(1, sizes[target]), len(awake))))

    async def _holder(self, draws: random.Random) -> list[int]:
        clock = asyncio.get_running_loop().time
        deadline = clock() + HOLDER_BUDGET_S
        while clock() < deadline:
            holders = sorted(set(self._clients.holding()) - set(self._clients.frozen()))
            if holders:
                chosen = draws.choice(holders)
                # Now: a moment later it may have given the lock back.
                self._clients.freeze([chosen])
                return [chosen]
            await asyncio.sleep(HOLDER_POLL_S)
        raise Skipped(f"no client held a lock within {HOLDER_BUDGET_S:g} s")

    async def apply(self, fault: Fault) -> str:
        threads = [_number(name) for name in fault.targets]
        self._frozen[fault.id] = threads
        self._clients.freeze(threads)
        holders = [f"client-{thread}" for thread in threads if thread in self._clients.holding()]
        told = f"{', '.join(holders)} held a lock" if holders else "none of them held a lock"
        return f"{', '.join(fault.targets)} began nothing more and learnt nothing; {told}"

    async def undo(self, fault: Fault) -> None:
        self._clients.thaw(self._frozen.pop(fault.id, ()))

    async def confirm(self, fault: Fault) -> str:
        return f"{', '.join(fault.targets)} go on"


def _number(name: str) -> int:
    return int(name.removeprefix("client-"))


class ClientPartitions:
    """Clients of some nodes reach them no more, nor do their answers come back; nodes reach each other."""

    kind = CLIENT_PARTITION

    def __init__(self, place: Place, nodes: Sequence[str]) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._active: dict[str, tuple[str, ...]] = {}

    async def prepare(self, planned: Planned) -> Fault:
        target = planned.spec.target
        assert target is not None
        leader = await find_leader(self._place, self._nodes) if target in LEADER_TARGETS else None
        cut = self._cut()
        candidates = [node for node in self._nodes if node not in cut]
        try:
            chosen = choose(target, self._nodes, candidates, leader.node if leader else None, planned.draws())
        except NoTarget as nobody:
            raise Skipped(str(nobody)) from nobody
        targets = tuple(await self._reached([node for node in chosen if node in candidates], PASS_TIMEOUT_S))
        if not targets:
            raise Skipped(f"clients don't reach {', '.join(chosen)} even before")
        explicit = replace(planned.spec, target=targets)
        return Fault(planned.id, self.kind, targets, {}, explicit, f"{self.kind} {','.join(targets)}")

    async def apply(self, fault: Fault) -> str:
        self._active[fault.id] = fault.targets
        await _abilities(self._place).cut_clients(self._cut())
        if leaks := await self._reached(fault.targets, CUT_TIMEOUT_S):
            raise Skipped(f"a client still reaches {', '.join(leaks)}")
        nodes = ", ".join(fault.targets)
        return f"a client reached {nodes} before, and none within {CUT_TIMEOUT_S * 1000:.0f} ms after"

    async def undo(self, fault: Fault) -> None:
        if (cut := self._active.pop(fault.id, None)) is None:
            return
        try:
            await _abilities(self._place).cut_clients(self._cut())
        except BaseException:
            self._active[fault.id] = cut  # so that who heals once more does not find it done
            raise

    async def confirm(self, fault: Fault) -> str:
        clock = asyncio.get_running_loop().time
        deadline = clock() + MEND_BUDGET_S
        running = [node for node in fault.targets if await self._place.state(node) is ProcessState.RUNNING]
        silent = [node for node in running if node not in self._cut()]
        while silent and clock() < deadline:
            reached = await self._reached(silent, PASS_TIMEOUT_S)
            silent = [node for node in silent if node not in reached]
            if silent:
                await asyncio.sleep(MEND_POLL_S)
        if silent:
            return f"mended, but no client reached {', '.join(silent)} within {MEND_BUDGET_S:g} s"
        return f"a client reaches {', '.join(running)} again" if running else "its nodes are down"

    def _cut(self) -> frozenset[str]:
        return frozenset(node for nodes in self._active.values() for node in nodes)

    async def _reached(self, nodes: Sequence[str], timeout_s: float) -> list[str]:
        system, place = self._place.system, _abilities(self._place)
        answers = await asyncio.gather(*(system.probe(place.client_address(node), timeout_s) for node in nodes))
        return [node for node, answered in zip(nodes, answers, strict=True) if answered]


def _abilities(place: Place) -> CutsClients:
    assert isinstance(place, CutsClients), "a scenario that asks for this is refused at such a place"
    return place
