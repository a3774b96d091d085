"""Who is hit: names of targets to nodes, at the moment of injection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from cluster.places.base import Place
from cluster.systems.base import NodeStatus, NodeUnreachable
from nemesis.shapes import majority, minority

#: A node that is alive answers in milliseconds; a paused one never.
STATUS_TIMEOUT_S = 0.3
#: Electing a leader takes about a second; without a majority there will be none for as long as another fault lasts.
LEADER_BUDGET_S = 3.0
LEADER_POLL_S = 0.1

LEADER_TARGETS = frozenset({"leader", "follower"})


class NoTarget(Exception):
    """There is nobody to hit right now, and why."""


@dataclass(frozen=True, slots=True)
class Leader:
    node: str
    term: int


def choose(
    target: str | Sequence[str],
    nodes: Sequence[str],
    candidates: Collection[str],
    leader: str | None,
    draws: random.Random,
) -> tuple[str, ...]:
    """The nodes that `target` names. What is drawn is drawn among `candidates`, those that a fault could still change;
    how many make a minority or a majority is a matter of all `nodes`. Raises NoTarget."""
    if not isinstance(target, str):
        return tuple(target)
    if target in LEADER_TARGETS and leader is None:
        raise NoTarget("no node leads")
    if target == "leader":
        assert leader is not None
        return (leader,)
    pool = [node for node in nodes if node in candidates]
    if target == "follower":
        pool = [node for node in pool if node != leader]
    sizes = {"minority": minority(len(nodes)), "majority": majority(len(nodes)), "all": len(nodes)}
    drawn = draws.sample(pool, min(sizes.get(target, 1), len(pool)))
    if not drawn:
        raise NoTarget(f"no node is left for the target {target}")
    return tuple(node for node in nodes if node in drawn)


async def find_leader(place: Place, nodes: Collection[str], budget_s: float = LEADER_BUDGET_S) -> Leader | None:
    """Ask every node who leads and believe the highest term, again until nobody knows of a higher term than the
    leader's own or `budget_s` is over; then the best that is known, which may be a leader about to be deposed."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + budget_s
    while True:
        answers = await ask_all(place, nodes)
        leading = [answer for answer in answers if answer.leads]
        best = max(leading, key=lambda answer: answer.term, default=None)
        settled = best is not None and best.term >= max(answer.term for answer in answers)
        if settled or clock() >= deadline:
            return None if best is None else Leader(best.id, best.term)
        await asyncio.sleep(LEADER_POLL_S)


async def ask_all(place: Place, nodes: Collection[str]) -> list[NodeStatus]:
    """The statuses of those nodes that answer in time; all are asked at once."""

    async def ask(node: str) -> NodeStatus | None:
        try:
            return await place.system.status(place.address(node), STATUS_TIMEOUT_S)
        except NodeUnreachable:
            return None

    answers = await asyncio.gather(*(ask(node) for node in nodes))
    return [answer for answer in answers if answer is not None]
