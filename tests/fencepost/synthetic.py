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


def chaos(
    *,
    operations: int = 3_000,
    seconds: float = 40.0,
    keys: tuple[str, ...] = ("a", "b", "c"),
    clients: int = 10,
    seed: int = 1,
    violate: bool = False,
) -> list[Event]:
    """A run under partitions, kills and pauses. With `violate` some grants are given while another is in force."""
    rng = random.Random(seed)
    script = Script()
    end = seconds * 1000
    script.nemesis(0, "phase", name="main")
    script.nemesis(1, "leader", node="n2", term=1)
    for number, (kind, at, lasts, targets, evidence) in enumerate(
        (
            ("partition", 0.12, 0.13, ["n1", "n2"], "no probe passed from n1 to n3 within 0.3 s, nor back"),
            ("kill", 0.32, 0.08, ["n3"], "process 4711 of n3 is gone"),
            ("pause", 0.47, 0.1, ["n1", "n4"], "processes of n1 and n4 are in state T"),
            ("partition", 0.62, 0.12, ["n5"], "no probe passed from n5 to any other node within 0.3 s"),
        )
    ):
        fault = {"fault": f"f{number}", "targets": targets}
        script.nemesis(end * at, kind, action="inject", **fault)
        script.nemesis(end * at + 40, kind, action="injected", evidence=evidence, **fault)
        script.nemesis(end * (at + lasts), kind, action="heal", **fault)
        script.nemesis(end * (at + lasts) + 30, kind, action="healed", evidence="every link answers again", **fault)
    for term, share in ((2, 0.13), (3, 0.335), (5, 0.63)):
        script.nemesis(end * share, "leader", node=rng.choice(NODES), term=term)
    faulty = [(0.12, 0.25), (0.32, 0.4), (0.47, 0.57), (0.62, 0.74)]
    token = 0
    step = end * 0.9 / max(operations / len(keys) / 2, 1)
    times = {key: rng.random() * step for key in keys}
    while operations > 0 and min(times.values()) < end * 0.9:
        key = min(times, key=lambda name: times[name])
        now = times[key]
        process = rng.randrange(clients)
        slow = 8 if any(low <= now / end <= high for low, high in faulty) else 1
        took = rng.lognormvariate(1.2, 0.5) * slow * min(1.0, step / 40)
        kind = rng.random()
        if kind < 0.06 * slow:
            script.call(now, took, process, "acquire", _asked(), "fail", key=key, error="held")
            times[key] = now + step
            operations -= 1
            continue
        if kind > 1 - 0.004 * slow:
            script.call(now, 1000.0, process, "acquire", _asked(), "info", key=key, error="timeout")
            times[key] = now + step
            operations -= 1
            continue
        token += 1
        hold = step * (0.4 + rng.random())
        script.call(now, took, process, "acquire", _asked(), "ok", {"token": token}, key=key)
        if violate and token % 397 == 0:
            token += 1
            other = (process + 1) % clients
            script.call(now + took + hold * 0.2, took, other, "acquire", _asked(), "ok", {"token": token}, key=key)
            script.call(now + took + hold * 0.8, took, other, "release", {"token": token}, "ok", key=key)
        script.call(now + took + hold, took, process, "release", {"token": token}, "ok", key=key)
        times[key] = now + 2 * took + hold + step * 0.2
        operations -= 2
    script.nemesis(end * 0.9, "phase", name="recovery")
    script.nemesis(end * 0.93, "ready", seconds=1.2)
    script.nemesis(end * 0.94, "phase", name="final")
    script.nemesis(end, "phase", name="end")
    return script.events()


def _asked() -> dict[str, int]:
    return {"lease_ms": 2000, "wait_ms": 0}
