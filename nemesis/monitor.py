"""Watching the cluster while it runs: who leads, what the nodes have counted, and how their clocks run.

Every node is asked on its own beat, so one that is paused and answers nothing delays no other; where the place sees
into its nodes, nobody is asked. What a clock says is
compared with our own in the middle of the question, and what counts is by how much that changes: where a clock starts
from means nothing.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from checker.history import NEMESIS
from cluster.places.base import Place, SeesNodes
from cluster.systems.base import NodeStatus, NodeUnreachable
from nemesis.conductor import Recorder
from nemesis.targets import Leader

#: A leader that lasted less than this may go unseen; asking more often would be load of its own.
INTERVAL_S = 0.2
TIMEOUT_S = 0.5

#: Often enough to plot; a fault is shown to have taken effect by readings of its own.
CLOCKS_INTERVAL_S = 1.0

#: Counters of the replicated log: nodes agree on them, and a node that starts again counts them anew from its log.
REPLICATED = frozenset({"grants", "releases", "expiries"})


class _Offsets:
    """How far each node's clock has moved against ours since it was first seen, in milliseconds."""

    def __init__(self) -> None:
        self._first_ns: dict[str, int] = {}
        self._fresh: dict[str, float] = {}

    def see(self, node: str, says_ns: int | None, at_ns: int) -> None:
        if says_ns is not None:
            ahead_ns = says_ns - at_ns
            self._fresh[node] = round((ahead_ns - self._first_ns.setdefault(node, ahead_ns)) / 1e6, 1)

    def take(self) -> dict[str, float]:
        """Those of the nodes that have answered since the last time."""
        fresh, self._fresh = self._fresh, {}
        return dict(sorted(fresh.items()))


class Monitor:
    """`await run()` until it is cancelled; then `record_counters()`."""

    def __init__(self, place: Place, *, record: Recorder) -> None:
        self._place = place
        self._record = record
        self._leaders: list[Leader] = []
        self._latest: dict[str, NodeStatus | None] = dict.fromkeys(place.nodes)
        self._counted: dict[tuple[str, int], Mapping[str, int]] = {}
        self._clocks = {"lease_ms": _Offsets(), "wall_ms": _Offsets()}

    @property
    def leader(self) -> Leader | None:
        """The leader of the highest term that was seen, whether or not it still leads."""
        return self._leaders[-1] if self._leaders else None

    @property
    def leaders(self) -> Sequence[Leader]:
        """All that were seen, in the order of their terms."""
        return tuple(self._leaders)

    @property
    def latest(self) -> Mapping[str, NodeStatus | None]:
        """Each node's last answer; None while it gives none."""
        return dict(self._latest)

    def totals(self) -> dict[str, int]:
        """The run's counters. A node's own work since its last answer before it was killed is not in them."""
        totals: defaultdict[str, int] = defaultdict(int)
        for counters in self._counted.values():
            for name, count in counters.items():
                totals[name] = max(totals[name], count) if name in REPLICATED else totals[name] + count
        return dict(sorted(totals.items()))

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            if isinstance(self._place, SeesNodes):
                group.create_task(self._look(self._place))
            else:
                for node in self._place.nodes:
                    group.create_task(self._watch(node))
            group.create_task(self._sample_clocks())

    async def ask_once(self) -> None:
        """Ask every node now, so that the totals are the last word."""
        await asyncio.gather(*map(self._ask, self._place.nodes))

    def record_counters(self) -> None:
        self._record(NEMESIS, "info", "counters", value=self.totals())

    async def _look(self, place: SeesNodes) -> None:
        time = asyncio.get_running_loop().time
        while True:
            for node in self._place.nodes:
                self._note(node, place.seen(node), round(time() * 1e9))
            await asyncio.sleep(INTERVAL_S)

    async def _watch(self, node: str) -> None:
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            await self._ask(node)
            await asyncio.sleep(max(0.0, started + INTERVAL_S - loop.time()))

    async def _sample_clocks(self) -> None:
        while True:
            await asyncio.sleep(CLOCKS_INTERVAL_S)
            samples = {name: offsets.take() for name, offsets in self._clocks.items()}
            if value := {name: sample for name, sample in samples.items() if sample}:
                self._record(NEMESIS, "info", "clocks", value=value)

    async def _ask(self, node: str) -> None:
        time = asyncio.get_running_loop().time
        before_s = time()
        try:
            status = await self._place.system.status(self._place.address(node), TIMEOUT_S)
        except NodeUnreachable:
            status = None
        self._note(node, status, round((before_s + time()) / 2 * 1e9))

    def _note(self, node: str, status: NodeStatus | None, middle_ns: int) -> None:
        self._latest[node] = status
        if status is None:
            return
        self._clocks["lease_ms"].see(node, status.lease_ns, middle_ns)
        self._clocks["wall_ms"].see(node, status.wall_ns, middle_ns)
        self._counted[node, status.incarnation] = status.counters
        if status.leads:
            self._see(Leader(status.id, status.term))

    def _see(self, leader: Leader) -> None:
        """Two leaders of one term are a bug of the system; both are recorded."""
        known = self.leader
        if known is not None and (leader.term < known.term or leader in self._leaders):
            return
        self._leaders.append(leader)
        self._record(NEMESIS, "info", "leader", value={"node": leader.node, "term": leader.term})
