"""Histories made up for tests: a lock service that is well behaved, or is not, with faults around it."""

from __future__ import annotations

import random
from typing import Any

from checker.history import NEMESIS, Event, EventType

NODES = ("n1", "n2", "n3", "n4", "n5")
MS = 1_000_000


class Script:
    """Collects events with their times and puts them in order."""

    def __init__(self) -> None:
        self._events: list[tuple[int, int, dict[str, Any]]] = []

    def at(
        self,
        ms: float,
        process: int | str,
        type: EventType,
        f: str,
        value: Any = None,
        *,
        key: str | None = None,
        error: str | None = None,
        node: str | None = None,
    ) -> None:
        fields = {"process": process, "type": type, "f": f, "key": key, "value": value, "error": error, "node": node}
        self._events.append((int(ms * MS), len(self._events), fields))

    def nemesis(self, ms: float, f: str, **value: Any) -> None:
        self.at(ms, NEMESIS, "info", f, value)

    def call(
        self,
        ms: float,
        took: float,
        process: int,
        f: str,
        asked: Any,
        type: EventType,
        answer: Any = None,
        *,
        key: str,
        error: str | None = None,
    ) -> None:
        node = NODES[process % len(NODES)]
        self.at(ms, process, "invoke", f, asked, key=key, node=node)
        self.at(ms + took, process, type, f, answer, key=key, error=error, node=node)

    def events(self) -> list[Event]:
        return [
            Event(index, time, **fields) for index, (time, _, fields) in enumerate(sorted(self._events, key=_order))
        ]


def _order(entry: tuple[int, int, dict[str, Any]]) -> tuple[int, int]:
    return entry[:2]


class Clients:
    """Hands out processes that are not busy; the number of one that got an `info` is never used again."""

    def __init__(self, count: int, rng: random.Random) -> None:
        self._free_ms = dict.fromkeys(range(count), 0.0)
        self._next = count
        self._rng = rng

    def take(self, start_ms: float, end_ms: float) -> int:
        idle = [process for process, free_ms in self._free_ms.items() if free_ms < start_ms]
        if idle:
            process = self._rng.choice(idle)
        else:
            process, self._next = self._next, self._next + 1
        self._free_ms[process] = end_ms
        return process

    def retire(self, start_ms: float) -> int:
        process = self.take(start_ms, start_ms)
        del self._free_ms[process]
        return process


FAULTS = (
    ("partition", 0.12, 0.25, ["n1", "n2"], "no probe passed from n1 to n3 within 0.3 s, nor back"),
    ("kill", 0.32, 0.40, ["n3"], "process 4711 of n3 is gone"),
    ("pause", 0.47, 0.57, ["n1", "n4"], "processes of n1 and n4 are in state T"),
    ("partition", 0.62, 0.74, ["n5"], "no probe passed from n5 to any other node within 0.3 s"),
)
LEADERS = ((0.0, "n2", 1), (0.13, "n4", 2), (0.335, "n5", 3), (0.63, "n1", 5))
ASKED = {"lease_ms": 2000, "wait_ms": 0}
#: With `violate`, every so many-th grant is given while the one before is in force.
VIOLATION_EVERY = 97


def chaos(
    *,
    operations: int = 3_000,
    seconds: float = 40.0,
    keys: tuple[str, ...] = ("a", "b", "c"),
    clients: int = 10,
    seed: int = 1,
    violate: bool = False,
) -> list[Event]:
    """About so many operations under partitions, kills and pauses."""
    rng = random.Random(seed)
    script, pool = Script(), Clients(clients, rng)
    end_ms = seconds * 1000
    _nemesis(script, end_ms)
    step_ms = end_ms * 0.9 / max(operations / len(keys) / 2, 1)
    times = {key: rng.random() * step_ms for key in keys}
    token = 0
    while operations > 0 and min(times.values()) < end_ms * 0.9:
        key = min(times, key=lambda name: times[name])
        now = times[key]
        slow = 8 if any(start <= now / end_ms <= end for _, start, end, _, _ in FAULTS) else 1
        took = min(rng.lognormvariate(1.2, 0.5) * slow, step_ms / 3)
        luck = rng.random()
        if luck < 0.06 * slow:
            script.call(now, took, pool.take(now, now + took), "acquire", ASKED, "fail", key=key, error="timeout")
            times[key] += step_ms
            operations -= 1
            continue
        if luck > 1 - 0.004 * slow:
            script.call(now, 1000, pool.retire(now), "acquire", ASKED, "info", key=key, error="timeout")
            times[key] += step_ms
            operations -= 1
            continue
        token += 1
        hold = min(step_ms * (0.4 + rng.random()), 1500)
        back = now + took + hold
        process = pool.take(now, back + took)
        script.call(now, took, process, "acquire", ASKED, "ok", {"token": token}, key=key)
        if violate and token % VIOLATION_EVERY == 0:
            token += 1
            other = pool.take(now, back + 3 * took)
            script.call(now + took + hold * 0.2, took, other, "acquire", ASKED, "ok", {"token": token}, key=key)
            script.call(now + took * 2 + hold * 0.8, took, other, "release", {"token": token}, "ok", key=key)
            token_back = token - 1
        else:
            token_back = token
        script.call(back, took, process, "release", {"token": token_back}, "ok", key=key)
        times[key] = back + took + step_ms * 0.2
        operations -= 2
    return script.events()


def _nemesis(script: Script, end_ms: float) -> None:
    script.nemesis(0, "phase", name="main")
    for share, node, term in LEADERS:
        script.nemesis(end_ms * share, "leader", node=node, term=term)
    for number, (kind, start, end, targets, evidence) in enumerate(FAULTS):
        fault = {"fault": f"f{number}", "targets": targets}
        script.nemesis(end_ms * start, kind, action="inject", **fault)
        script.nemesis(end_ms * start + 40, kind, action="injected", evidence=evidence, **fault)
        script.nemesis(end_ms * end, kind, action="heal", **fault)
        script.nemesis(end_ms * end + 30, kind, action="healed", evidence="every link answers again", **fault)
    script.nemesis(end_ms * 0.9, "phase", name="recovery")
    script.nemesis(end_ms * 0.93, "ready", seconds=1.2)
    script.nemesis(end_ms * 0.94, "phase", name="final")
    script.nemesis(end_ms, "phase", name="end")
