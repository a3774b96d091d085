"""Our histories for other tools: Jepsen's EDN, and a trace that Perfetto and chrome://tracing open."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import msgspec

from checker.formats.edn import Keyword, write
from checker.history import OPEN, History
from checker.timeline import Timeline


class Target(StrEnum):
    JSONL = "jsonl"
    EDN = "edn"
    PERFETTO = "perfetto"


def export(history: History, target: Target) -> Iterator[str]:
    """The text, in parts."""
    if target is Target.EDN:
        return _edn(history)
    return _perfetto(history) if target is Target.PERFETTO else _jsonl(history)


def _jsonl(history: History) -> Iterator[str]:
    encode = msgspec.json.Encoder().encode
    for event in history.events:
        yield encode(event).decode() + "\n"


def _edn(history: History) -> Iterator[str]:
    """One map a line. The nemesis' process is the keyword that Jepsen gives it."""
    for event in history.events:
        process = event.process if isinstance(event.process, int) else Keyword(event.process)
        record: dict[str, Any] = {
            "index": event.index,
            "time": event.time,
            "type": Keyword(event.type),
            "process": process,
            "f": Keyword(event.f),
            "value": _keyed(event.value),
        }
        record |= {name: found for name in ("key", "error", "node") if (found := getattr(event, name)) is not None}
        yield write({Keyword(name): value for name, value in record.items()}) + "\n"


def _keyed(value: Any) -> Any:
    if isinstance(value, dict):
        return {Keyword(name): _keyed(item) for name, item in value.items()}
    return [_keyed(item) for item in value] if isinstance(value, list) else value


def _perfetto(history: History) -> Iterator[str]:
    """Chrome's trace format: a process for each key and one for the nemesis, a thread for each client; microseconds."""
    last = history.events[-1].time
    encode = msgspec.json.Encoder().encode
    events: list[dict[str, Any]] = []
    for number, key in enumerate(history.by_key, 1):
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": f"key {key}"}})
        for operation in history.by_key[key]:
            completion = operation.completion
            end = last if completion is None else completion.time
            named = "" if operation.token is None else f" {operation.token}"
            shown = "open" if operation.end == OPEN and completion is None else operation.outcome
            arguments = {"outcome": shown, "index": operation.index, "token": operation.token}
            arguments |= {"error": operation.error, "node": operation.node}
            events.append(
                {
                    "ph": "X",
                    "name": f"{operation.f}{named} {operation.error or shown}",
                    "cat": operation.outcome,
                    "pid": number,
                    "tid": operation.process,
                    "ts": operation.invoke.time / 1000,
                    "dur": (end - operation.invoke.time) / 1000,
                    "args": {name: value for name, value in arguments.items() if value is not None},
                }
            )
    events.append({"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "nemesis"}})
    timeline = Timeline.of(history.events)
    for number, fault in enumerate(timeline.faults):
        events.append(
            {
                "ph": "X",
                "name": f"{fault.kind} {', '.join(fault.targets)}".strip(),
                "cat": "fault",
                "pid": 0,
                "tid": number,
                "ts": fault.start_s * 1e6,
                "dur": ((last / 1e9 if fault.end_s is None else fault.end_s) - fault.start_s) * 1e6,
                "args": {"id": fault.id, "evidence": fault.evidence},
            }
        )
    events += [
        {"ph": "i", "s": "g", "name": f"leader {leader.node}", "pid": 0, "tid": 0, "ts": leader.time_s * 1e6}
        for leader in timeline.leaders
    ]
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    for place, event in enumerate(events):
        yield encode(event).decode() + (",\n" if place + 1 < len(events) else "\n")
    yield "]}\n"
