"""Clocks that are wrong: a step, steps to and fro, another rate.

Evidence comes from outside: a node is asked what its clock says, between two readings of our own, so the answer is
known to within half of what the question took. Everything is a difference of two such readings, so it does not matter
what a clock counts from.

A scenario declares how wrong the clocks that measure leases may be (`clock_error`, a share of any span of time; over
the shortest lease, a step of so much). A fault beyond that says so (`breaks`): what the checker then finds is reported
as what it is, a consequence of a broken assumption.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cluster.concurrency import all_of
from cluster.places.base import Clock, ClockSetting, Place, ProcessState, TurnsClocks
from cluster.systems.base import Feature, NodeUnreachable, features
from nemesis.background import Background, rest
from nemesis.family import Fault, Skipped
from nemesis.kinds import CLOCK
from nemesis.schedule import Planned
from nemesis.spec import FaultSpec
from nemesis.targets import LEADER_TARGETS, NoTarget, choose, find_leader

#: A node that is alive answers in milliseconds; on a loaded machine it takes longer.
ASK_TIMEOUT_S = 1.0
#: Between the two readings that show a rate, or that a clock stands still.
RATE_WINDOW_S = 0.4
#: A reading is taken anew, so many times at most, while the answer took longer than this.
READING_S_MAX = 0.02
READINGS_MAX = 5
#: A node that was just started again comes up meanwhile.
SILENCE_BUDGET_S = 2.0
SILENCE_POLL_S = 0.1

#: What the machine's own corrections may move a wall clock by while a fault lasts.
BACK_NS_MAX = 50_000_000

#: What a fault beyond the declared bound breaks, in the checker's words.
CLOCK_ERROR = "clock_error"


@dataclass(frozen=True, slots=True)
class ClockBound:
    """The scenario's promise: `error` as a share, and the shortest lease that it has to hold over."""

    error: float = 0.0
    lease_ns: int = 0

    def broken_by(self, spec: FaultSpec) -> bool:
        options = spec.given()
        step_ns = max(abs(int(spec.number(name))) if name in options else 0 for name in ("jump", "strobe"))
        rate = spec.number("rate") if "rate" in options else 1.0
        return step_ns > self.error * self.lease_ns or abs(rate - 1) > self.error


#: Clocks that may not be wrong at all.
EXACT = ClockBound()


@dataclass(frozen=True, slots=True)
class Reading:
    """A node's clock less our own, in nanoseconds, give or take `error_ns`; `at_ns` is our own."""

    at_ns: int
    ahead_ns: int
    error_ns: int


async def read(place: Place, node: str, clock: Clock, timeout_s: float = ASK_TIMEOUT_S) -> Reading | None:
    """None: no answer, or one without this clock."""
    loop = asyncio.get_running_loop()
    before_ns = round(loop.time() * 1e9)
    try:
        status = await place.system.status(place.address(node), timeout_s)
    except NodeUnreachable:
        return None
    took_ns = round(loop.time() * 1e9) - before_ns
    says = status.lease_ns if clock is Clock.LEASE else status.wall_ns
    middle_ns = before_ns + took_ns // 2
    return None if says is None else Reading(middle_ns, says - middle_ns, took_ns // 2 + 1)


async def read_closely(place: Place, node: str, clock: Clock) -> Reading:
    """The best of a few readings. Raises Skipped when there is none."""
    time = asyncio.get_running_loop().time
    deadline = time() + SILENCE_BUDGET_S
    while (best := await read(place, node, clock)) is None:
        if time() > deadline:
            raise Skipped(f"{node} does not say what its {clock} clock is")
        await asyncio.sleep(SILENCE_POLL_S)
    for _ in range(READINGS_MAX - 1):
        if best.error_ns < READING_S_MAX / 2 * 1e9:
            break
        reading = await read(place, node, clock)
        if reading is not None and reading.error_ns < best.error_ns:
            best = reading
    return best


class Clocks:
    """One fault at a time turns a clock of a node; others leave that node out."""

    kind = CLOCK

    def __init__(self, place: Place, nodes: Sequence[str], bound: ClockBound) -> None:
        self._place = place
        self._nodes = tuple(nodes)
        self._bound = bound
        self._background = Background()
        self._turned: dict[tuple[str, Clock], str] = {}
        self._before: dict[str, dict[str, Reading]] = {}

    async def prepare(self, planned: Planned) -> Fault:
        spec = planned.spec
        clock, target = Clock(str(spec.given()["clock"])), spec.target
        assert target is not None
        leader = await find_leader(self._place, self._nodes) if target in LEADER_TARGETS else None
        states = dict(zip(self._nodes, await asyncio.gather(*map(self._place.state, self._nodes)), strict=True))
        candidates = [
            node
            for node, state in states.items()
            if state is ProcessState.RUNNING and (node, clock) not in self._turned
        ]
        try:
            chosen = choose(target, self._nodes, candidates, leader.node if leader else None, planned.draws())
        except NoTarget as nobody:
            raise Skipped(str(nobody)) from nobody
        targets = tuple(node for node in chosen if node in candidates)
        if not targets:
            raise Skipped(f"the {clock} clock of {', '.join(chosen)} is turned already, or the node doesn't run")
        detail: dict[str, object] = dict(spec.given())
        if "strobe" not in detail:
            detail.pop("period", None)
        excused = clock is Clock.LEASE or Feature.NO_WALL_CLOCK not in features(self._place.system)
        breaks = (CLOCK_ERROR,) if excused and self._bound.broken_by(spec) else ()
        explicit = replace(spec, target=targets)
        summary = f"{clock} clock of {','.join(targets)}"
        return Fault(planned.id, self.kind, targets, detail, explicit, summary, breaks=breaks)

    async def apply(self, fault: Fault) -> str:
        clock, spec = _clock(fault), fault.explicit
        options = spec.given()
        before = self._before[fault.id] = await self._read_all(fault.targets, clock)
        self._turned |= {(node, clock): fault.id for node in fault.targets}
        if "rate" in options:
            rate = spec.number("rate")
            await self._turn(fault, ClockSetting(rate=rate))
            return await self._shown_rate(fault, rate)
        step_ns = int(spec.number("jump" if "jump" in options else "strobe"))
        await self._turn(fault, ClockSetting(step_ns))
        evidence = await self._shown_step(fault, before, step_ns)
        if "strobe" in options:
            self._background.start(fault.id, self._strobe(fault, step_ns))
        return evidence

    async def _strobe(self, fault: Fault, step_ns: int) -> None:
        draws = random.Random(f"{fault.id}/{fault.explicit}")
        while True:
            step_ns = -step_ns
            await rest(fault.explicit.span_ms("period"), draws)
            await self._turn(fault, ClockSetting(step_ns))

    async def _turn(self, fault: Fault, setting: ClockSetting) -> None:
        place, clock = _abilities(self._place), _clock(fault)
        await all_of(place.turn_clock(node, clock, setting) for node in fault.targets)

    async def _read_all(self, nodes: Sequence[str], clock: Clock) -> dict[str, Reading]:
        readings = await asyncio.gather(*(read_closely(self._place, node, clock) for node in nodes))
        return dict(zip(nodes, readings, strict=True))

    async def _shown_step(self, fault: Fault, before: Mapping[str, Reading], step_ns: int) -> str:
        clock = _clock(fault)
        if step_ns < 0 and clock is Clock.LEASE:
            return await self._shown_rate(fault, 0.0, min(RATE_WINDOW_S, -step_ns / 2e9))
        after = await self._read_all(fault.targets, clock)
        told = []
        for node, reading in after.items():
            moved_ns = reading.ahead_ns - before[node].ahead_ns
            slack_ns = reading.error_ns + before[node].error_ns
            if abs(moved_ns - step_ns) > slack_ns + abs(step_ns) // 10:
                raise Skipped(f"the {clock} clock of {node} moved by {_s(moved_ns)} instead of {_s(step_ns)}")
            told.append(f"{node} by {_s(moved_ns)}")
        return f"the {clock} clock moved, as the nodes tell: {', '.join(told)}"

    async def _shown_rate(self, fault: Fault, rate: float, window_s: float = RATE_WINDOW_S) -> str:
        clock = _clock(fault)
        first = await self._read_all(fault.targets, clock)
        await asyncio.sleep(window_s)
        second = await self._read_all(fault.targets, clock)
        told = []
        for node, end in second.items():
            begin = first[node]
            window_ns = end.at_ns - begin.at_ns
            found = 1 + (end.ahead_ns - begin.ahead_ns) / window_ns
            slack = (end.error_ns + begin.error_ns) / window_ns
            if abs(found - rate) > abs(1 - rate) / 4 + slack:
                raise Skipped(f"the {clock} clock of {node} runs at {found:.3f} instead of {rate:g}")
            told.append(f"{node} at {found:.3f}")
        return f"over {window_s:g} s the {clock} clock ran, as the nodes tell: {', '.join(told)}"

    async def undo(self, fault: Fault) -> None:
        await self._background.stop(fault.id)
        place, clock = _abilities(self._place), _clock(fault)
        mine = [node for (node, turned), by in self._turned.items() if turned is clock and by == fault.id]
        await all_of(place.true_clock(node, clock) for node in mine)
        for node in mine:
            del self._turned[node, clock]

    async def confirm(self, fault: Fault) -> str:
        before = self._before.pop(fault.id, {})
        running = [node for node in fault.targets if await self._place.state(node) is ProcessState.RUNNING]
        if not running:
            return "its nodes are down"
        try:
            told = await self._shown_rate(replace(fault, targets=tuple(running)), 1.0)
            if _clock(fault) is Clock.LEASE:
                return f"{told}; what it is ahead stays, as no monotonic clock goes back"
            return f"{told}; {await self._shown_back(running, before)}"
        except Skipped as problem:
            return f"undone, but {problem}"

    async def _shown_back(self, nodes: Sequence[str], before: Mapping[str, Reading]) -> str:
        after = await self._read_all(nodes, Clock.WALL)
        off_ns = {node: after[node].ahead_ns - before[node].ahead_ns for node in nodes if node in before}
        astray = [f"{node} by {_s(ns)}" for node, ns in off_ns.items() if abs(ns) > BACK_NS_MAX + after[node].error_ns]
        if astray:
            raise Skipped(f"the wall clock is still off: {', '.join(astray)}")
        return "and it says what it would have said"


def _abilities(place: Place) -> TurnsClocks:
    assert isinstance(place, TurnsClocks), "a scenario that asks for this is refused at such a place"
    return place


def _clock(fault: Fault) -> Clock:
    return Clock(str(fault.detail["clock"]))


def _s(ns: int) -> str:
    return f"{ns / 1e9:+.3f} s"
