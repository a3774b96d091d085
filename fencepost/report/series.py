"""The numbers behind the report's plots, laid out in columns so that 100,000 calls stay a few megabytes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from checker.history import NEMESIS, Event
from fencepost.report.calls import Call, Ending
from fencepost.report.lanes import Lane

US = 1_000

#: Points of the latency plot. Above this, points are thinned out; the tables and rates always count every call.
POINTS_MAX = 50_000
#: Bars of the rate plot, about.
BINS = 160
#: Lanes of the nemesis' events that are not faults.
_NOT_FAULTS = frozenset({"leader", "phase", "ready", "counters", "clocks", "place"})


class Names:
    """Numbers strings and such, so that the page's data names each only once."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, name: Hashable) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def list(self) -> list[Any]:
        return list(self._numbers)


@dataclass(frozen=True, slots=True)
class Points:
    columns: dict[str, list[int]]
    names: dict[str, list[Any]]
    total: int
    drawn: int


def points(calls: Sequence[Call]) -> Points:
    """Every completed call as one point: invocation time (us, differences) and latency (us)."""
    completed = [call for call in calls if call.completion is not None]
    kept = completed if len(completed) <= POINTS_MAX else _thinned(completed)
    names = {name: Names() for name in ("f", "process", "key", "node", "error")}
    columns: dict[str, list[int]] = {name: [] for name in ("time", "index", "latency", "ending", *names)}
    last_time = last_index = 0
    for call in kept:
        completion = call.completion
        assert completion is not None
        time = call.invoke.time // US
        columns["time"].append(time - last_time)
        columns["index"].append(call.invoke.index - last_index)
        last_time, last_index = time, call.invoke.index
        columns["latency"].append(max(0, completion.time - call.invoke.time) // US)
        columns["ending"].append(call.ending)
        columns["f"].append(names["f"].number(call.invoke.f))
        columns["process"].append(names["process"].number(call.invoke.process))
        columns["key"].append(names["key"].number(call.invoke.key))
        columns["node"].append(names["node"].number(call.invoke.node or completion.node))
        columns["error"].append(names["error"].number(completion.error))
    return Points(columns, {name: table.list() for name, table in names.items()}, len(completed), len(kept))


def _thinned(calls: list[Call]) -> list[Call]:
    """Indeterminate calls and the slowest of each kind are kept, of the others every so many-th."""
    keep = [call for call in calls if call.ending is Ending.INFO][: POINTS_MAX // 2]
    rest = [call for call in calls if call.ending is not Ending.INFO]
    slowest = sorted(rest, key=_latency, reverse=True)[: POINTS_MAX // 10]
    taken = {id(call) for call in slowest}
    rest = [call for call in rest if id(call) not in taken]
    room = POINTS_MAX - len(keep) - len(slowest)
    keep += slowest + [rest[number * len(rest) // room] for number in range(min(room, len(rest)))]
    return sorted(keep, key=lambda call: call.invoke.index)


def _latency(call: Call) -> int:
    return 0 if call.completion is None else call.completion.time - call.invoke.time


def rates(calls: Iterable[Call], end: int) -> dict[str, Any]:
    """Completions per second, by outcome, in bins of a round width that begin at 0."""
    width_ms = _round_width(end / 1e6 / BINS)
    count = max(1, math.ceil(end / 1e6 / width_ms)) if end else 0
    bins = {ending: [0] * count for ending in (Ending.OK, Ending.FAIL, Ending.INFO)}
    for call in calls:
        if call.completion is not None and count:
            bins[call.ending][min(count - 1, int(call.completion.time / 1e6 / width_ms))] += 1
    return {"width_ms": width_ms, **{ending.name.lower(): counts for ending, counts in bins.items()}}


def _round_width(width_ms: float) -> float:
    for exponent in range(9):
        for step in (1, 2, 2.5, 5):
            if step * 10**exponent >= max(width_ms, 10):
                return float(step * 10**exponent)
    return width_ms


@dataclass(slots=True)
class Fault:
    """One fault of the ledger; times in nanoseconds, `healed` None while it lasted to the end."""

    id: str
    kind: str
    start: int
    healed: int | None = None
    targets: str = ""
    shape: str = ""
    detail: str = ""
    evidence: str = ""
    state: str = "not confirmed"


def faults(events: Iterable[Event]) -> list[Fault]:
    """Faults in the order of their beginnings."""
    found: dict[str, Fault] = {}
    for event in events:
        if event.process != NEMESIS or event.f in _NOT_FAULTS or not isinstance(event.value, dict):
            continue
        value = event.value
        identity, action = f"{event.f} {value.get('fault')}", value.get("action")
        fault = found.get(identity)
        if fault is None:
            fault = found[identity] = Fault(str(value.get("fault", "")), event.f, event.time)
        if value.get("targets"):
            fault.targets = words(value["targets"])
        if isinstance(detail := value.get("detail"), dict):
            fault.shape = str(detail.get("shape") or "")
            fault.detail = words({name: item for name, item in detail.items() if name != "shape"})
        if action == "injected":
            fault.state = "took effect"
            fault.evidence = str(value.get("evidence") or "")
        elif action == "skipped":
            fault.state = "skipped"
            fault.evidence = str(value.get("reason") or "")
            fault.healed = event.time
        elif action == "healed":
            fault.healed = event.time
            if value.get("evidence"):
                fault.evidence += ("; then: " if fault.evidence else "") + str(value["evidence"])
    return list(found.values())


def words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {words(item)}" for name, item in value.items())
    if isinstance(value, list):
        if value and all(isinstance(item, list) and len(item) == 2 for item in value):
            return " ".join(f"{source}→{target}" for source, target in value)
        return ", ".join(words(item) for item in value)
    return str(value)


def marks(events: Iterable[Event], name: str) -> list[tuple[int, dict[str, Any]]]:
    """The nemesis' events of one kind: (time in nanoseconds, value)."""
    return [(event.time, event.value or {}) for event in events if event.process == NEMESIS and event.f == name]


def latencies(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """For each operation and outcome: how many, and percentiles of the latency in milliseconds."""
    groups: dict[tuple[str, Ending], list[float]] = {}
    for call in calls:
        groups.setdefault((call.invoke.f, call.ending), []).append(_latency(call) / 1e6)
    rows = []
    for (f, ending), values in sorted(groups.items()):
        values.sort()
        row: dict[str, Any] = {"f": f, "ending": ending.name.lower(), "count": len(values), "p50": None}
        if ending is not Ending.OPEN:
            row |= {name: _percentile(values, share) for name, share in _PERCENTILES}
        rows.append(row)
    return rows


_PERCENTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def lane_columns(lane: Lane, processes: Names, nodes: Names, endings: Names) -> dict[str, Any]:
    """One key's grants: starts as differences, the rest relative to the start, in us."""
    columns: dict[str, Any] = {"key": lane.key, "rows": lane.rows, "total": lane.total}
    names = ("start", "end", "believed", "invoked", "token", "process", "node", "index", "row", "red", "released")
    columns |= {name: [] for name in names}
    last = last_token = last_index = 0
    for grant in lane.grants:
        start = grant.start // US
        columns["start"].append(start - last)
        columns["end"].append(grant.end // US - start)
        columns["believed"].append((grant.believed - grant.end) // US)
        columns["invoked"].append(start - grant.invoked // US)
        columns["token"].append(grant.token - last_token)
        columns["process"].append(processes.number(grant.process))
        columns["node"].append(nodes.number(grant.node))
        columns["index"].append(grant.index - last_index)
        columns["row"].append(grant.row)
        columns["red"].append(int(grant.red))
        columns["released"].append(endings.number(grant.released))
        last, last_token, last_index = start, grant.token, grant.index
    return columns
