"""Waiting until a cluster serves: probed, never slept for."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cluster.places.base import Place, ProcessState

#: One attempt's time-out. A linearizable read takes milliseconds when there is a leader and waits for one when there is
#: none; asking again costs little and finds a node that was restarted meanwhile.
ATTEMPT_TIMEOUT_S = 1.0
#: Between attempts, so that a node that refuses connections is not asked in a tight loop.
ATTEMPT_INTERVAL_S = 0.05


@dataclass(frozen=True, slots=True)
class Readiness:
    """How long it took until all nodes served; `missing` tells of each that does not (with its log's end) why."""

    seconds: float
    missing: Mapping[str, str]

    @property
    def complete(self) -> bool:
        return not self.missing

    def describe(self) -> str:
        if self.complete:
            return f"all nodes served after {self.seconds:.2f}s"
        return f"not ready after {self.seconds:.2f}s:\n" + "\n".join(self.missing.values())


async def await_ready(place: Place, nodes: Collection[str], budget_s: float) -> Readiness:
    """Probe all `nodes` at once until each has served a client once, or is dead, or `budget_s` is over.

    A dead node is given up at once: nobody is going to start it again while this waits.
    """
    clock = asyncio.get_running_loop().time
    started = clock()

    async def wait_for(node: str) -> str | None:
        while (left := started + budget_s - clock()) > 0:
            if await place.system.ready(place.address(node), min(ATTEMPT_TIMEOUT_S, left)):
                return None
            if await place.state(node) is ProcessState.DEAD:
                break
            await asyncio.sleep(ATTEMPT_INTERVAL_S)
        return await place.account(node)

    answers = await asyncio.gather(*(wait_for(node) for node in nodes))
    missing = {node: why for node, why in zip(nodes, answers, strict=True) if why is not None}
    return Readiness(clock() - started, missing)
