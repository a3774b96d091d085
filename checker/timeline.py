"""What the nemesis' events tell: faults and when they were active, who led, phases, counters, readiness.

Every such event has the process "nemesis". A fault's events share the id in `value.fault`; its `value.action` goes from
"inject" over "injected" (or "skipped") to "heal" and "healed". Events of other shapes are passed over: they serve words
and coverage alone, so an unknown one must not stop a check.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from checker.events import NEMESIS, Event
from checker.verdict import Fault

NANOSECONDS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Leader:
    """A node that was seen to lead, from this position on."""

    index: int
    time_s: float
    node: str
    term: int | None


@dataclass(frozen=True, slots=True)
class Ready:
    """The cluster after healing: served again after `seconds`, or `error` says why not."""

    index: int
    seconds: float | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """`counters` are the run's totals, None when they were never recorded."""

    faults: tuple[Fault, ...]
    leaders: tuple[Leader, ...]
    ready: tuple[Ready, ...]
    counters: dict[str, int] | None

    @classmethod
    def of(cls, events: Iterable[Event]) -> Timeline:
        """From all events of a history, or only the nemesis'."""
        faults: dict[str, list[Event]] = {}
        leaders: list[Leader] = []
        ready: list[Ready] = []
        counters: dict[str, int] | None = None
        for event in events:
            if event.process != NEMESIS or event.value is None:
                continue
            value = event.value
            if event.f == "leader" and isinstance(value.get("node"), str):
                leaders.append(Leader(event.index, _seconds(event), value["node"], _whole(value.get("term"))))
            elif event.f == "ready":
                seconds = value.get("seconds")
                error = value.get("error")
                ready.append(
                    Ready(
                        event.index,
                        float(seconds) if isinstance(seconds, int | float) else None,
                        None if error is None else str(error),
                    )
                )
            elif event.f == "counters":
                counters = {name: number for name, number in value.items() if _whole(number) is not None}
            elif isinstance(value.get("fault"), str) and isinstance(value.get("action"), str):
                faults.setdefault(value["fault"], []).append(event)
        return cls(
            tuple(fault for events_of in faults.values() if (fault := _fault(events_of)) is not None),
            tuple(leaders),
            tuple(ready),
            counters,
        )

    def active(self, start: int, end: int) -> tuple[Fault, ...]:
        """The faults that were active at some time between two positions of the history, both included."""
        return tuple(fault for fault in self.faults if fault.start <= end and (fault.end is None or fault.end >= start))

    def leader_changes(self) -> list[tuple[Leader, Leader]]:
        """Each change from one leader or term to the next."""
        return [
            (before, after)
            for before, after in pairwise(self.leaders)
            if (before.node, before.term) != (after.node, after.term)
        ]


def _fault(events: list[Event]) -> Fault | None:
    """One fault from its events; None when it was skipped or only announced as healed."""
    by_action = {event.value["action"]: event for event in reversed(events) if event.value is not None}
    start = by_action.get("inject") or by_action.get("injected")
    if start is None or start.value is None or ("skipped" in by_action and "injected" not in by_action):
        return None
    end = by_action.get("healed")
    injected = by_action.get("injected")
    value = {**start.value, **((injected.value or {}) if injected else {})}
    evidence = value.get("evidence") if injected else None
    return Fault(
        id=str(value["fault"]),
        kind=start.f,
        targets=_names(value.get("targets")),
        start_s=_seconds(start),
        end_s=_seconds(end) if end else None,
        start=start.index,
        end=end.index if end else None,
        took_effect=bool(evidence),
        evidence=str(evidence) if evidence else None,
        breaks=_names(value.get("breaks")),
    )


def _names(value: Any) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else ()


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _seconds(event: Event) -> float:
    return event.time / NANOSECONDS
