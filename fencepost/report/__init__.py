"""`report.html`: one run in one file, which needs nothing but a browser, from a disk or a web server.

The tables are HTML, made here; the plots are drawn by `templates/report.js` from numbers that are embedded as JSON.
Whatever a history or a scenario says is text: Jinja2 escapes it in the tables, and in the JSON every `<`, `>` and `&`
is written as an escape, so that no key can end the script element.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import jinja2
from markupsafe import Markup

from checker.history import Event
from fencepost.report import series
from fencepost.report.calls import Call, Ending, pair
from fencepost.report.lanes import Lanes, lanes
from fencepost.report.words import CLAIMS, COVERAGE, VERDICTS

#: Findings of one claim that are written out, and operations of one finding.
FINDINGS_MAX = 50
OPERATIONS_MAX = 40


@dataclass(frozen=True, slots=True)
class About:
    """What the history does not say about its run; all of it is optional."""

    title: str = "history"
    facts: Mapping[str, str] = field(default_factory=dict)
    command: str | None = None
    notices: Sequence[str] = ()
    expectation: str | None = None
    minimums: Mapping[str, int] = field(default_factory=dict)
    clock_error: float = 0.0
    made: datetime = field(default_factory=lambda: datetime.now(UTC))


def render(events: Sequence[Event], results: Mapping[str, Any], about: About) -> str:
    """The page. `results` has the shape of `results.json`; `events` may be damaged or empty."""
    calls = pair(events)
    end = max((event.time for event in events), default=0)
    drawn = lanes(calls, end, about.clock_error, _named(results))
    points = series.points(calls)
    found_faults = series.faults(events)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fencepost", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["ms"] = _milliseconds
    environment.filters["clock"] = _clock
    page = environment.get_template("report.html").render(
        about=about,
        verdict=VERDICTS.get(str(results.get("verdict")), VERDICTS["unknown"]),
        verdicts=VERDICTS,
        claims=_claims(results, {event.index: event for event in events}, calls),
        coverage=_coverage(results, about.minimums),
        operations=results.get("operations") or {},
        calls=len(calls),
        open_calls=sum(call.ending is Ending.OPEN for call in calls),
        events=len(events),
        seconds=end / 1e9,
        checked_in=results.get("seconds"),
        latencies=series.latencies(calls),
        faults=found_faults,
        lanes=drawn,
        points=points,
        data=_embedded(_plots(events, calls, end, drawn, points, found_faults)),
    )
    return str(page)


def _plots(
    events: Sequence[Event],
    calls: Sequence[Call],
    end: int,
    drawn: Lanes,
    points: series.Points,
    found_faults: Sequence[series.Fault],
) -> dict[str, Any]:
    processes, nodes, endings = series.Names(), series.Names(), series.Names()
    return {
        "end": end / 1e6,
        "calls": len(calls),
        "points": {"columns": points.columns, "names": points.names},
        "lanes": [series.lane_columns(lane, processes, nodes, endings) for lane in drawn.lanes],
        "processes": processes.list(),
        "nodes": nodes.list(),
        "endings": endings.list(),
        "rates": series.rates(calls, end),
        "faults": [
            {
                "id": fault.id,
                "kind": fault.kind,
                "start": fault.start / 1e6,
                "end": end / 1e6 if fault.healed is None else fault.healed / 1e6,
                "healed": fault.healed is not None,
                "targets": fault.targets,
                "detail": fault.detail,
                "evidence": fault.evidence,
                "state": fault.state,
            }
            for fault in found_faults
        ],
        "leaders": [
            {"time": time / 1e6, "node": str(value.get("node")), "term": value.get("term")}
            for time, value in series.marks(events, "leader")
        ],
        "phases": [
            {"time": time / 1e6, "name": str(value.get("name"))} for time, value in series.marks(events, "phase")
        ],
    }


def _embedded(data: Any) -> Markup:
    """JSON that no HTML parser sees anything in."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def _claims(
    results: Mapping[str, Any], by_index: Mapping[int, Event], calls: Sequence[Call]
) -> list[dict[str, Any]]:
    partner: dict[int, Event] = {}
    for call in calls:
        if call.completion is not None:
            partner[call.invoke.index] = call.completion
            partner[call.completion.index] = call.invoke
    rows = []
    for name, claim in (results.get("claims") or {}).items():
        findings = claim.get("findings") or []
        rows.append(
            {
                "name": name,
                "says": CLAIMS.get(name, ""),
                "verdict": VERDICTS.get(str(claim.get("verdict")), VERDICTS["unknown"]),
                "numbers": {key: value for key, value in claim.items() if key not in ("verdict", "findings")},
                "total": len(findings),
                "findings": [_finding(finding, by_index, partner) for finding in findings[:FINDINGS_MAX]],
            }
        )
    return rows


def _finding(finding: Any, by_index: Mapping[int, Event], partner: Mapping[int, Event]) -> dict[str, Any]:
    if not isinstance(finding, Mapping):
        return {"message": str(finding), "operations": [], "more": 0, "rest": {}}
    indices = _indices(finding.get("operations"))
    operations = []
    for index in indices[:OPERATIONS_MAX]:
        event = by_index.get(index)
        if event is None:
            continue
        other = partner.get(index)
        invoke, completion = (event, other) if event.type == "invoke" else (other or event, event if other else None)
        operations.append(_operation(invoke, completion))
    rest = {name: value for name, value in finding.items() if name not in ("claim", "message", "operations")}
    return {
        "message": str(finding.get("message", "")),
        "operations": operations,
        "more": max(0, len(indices) - OPERATIONS_MAX),
        "rest": {name: series.words(value) for name, value in rest.items() if value not in (None, [], {}, "")},
    }


def _operation(invoke: Event, completion: Event | None) -> dict[str, Any]:
    answer = ""
    if completion is not None and completion is not invoke:
        answer = " ".join(part for part in (series.words(completion.value or {}), completion.error or "") if part)
    return {
        "index": invoke.index,
        "start": invoke.time,
        "end": None if completion is None or completion is invoke else completion.time,
        "process": invoke.process,
        "node": invoke.node or (completion.node if completion else None) or "",
        "f": invoke.f,
        "key": "" if invoke.key is None else invoke.key,
        "asked": series.words(invoke.value or {}),
        "ending": "open" if completion is None and invoke.type == "invoke" else (completion or invoke).type,
        "answer": answer,
    }


def _indices(operations: Any) -> list[int]:
    """The events that a finding names, each call once: as indices, or as objects that hold one."""
    indices: list[int] = []
    for operation in operations or []:
        index = operation.get("index", operation.get("invoke")) if isinstance(operation, Mapping) else operation
        if isinstance(index, Mapping):
            index = index.get("index")
        if isinstance(index, int) and index not in indices:
            indices.append(index)
    return indices


def _named(results: Mapping[str, Any]) -> set[tuple[str, int]]:
    """The (key, token) that the findings of violated claims name."""
    named: set[tuple[str, int]] = set()
    for claim in (results.get("claims") or {}).values():
        if claim.get("verdict") != "invalid":
            continue
        for finding in claim.get("findings") or []:
            if isinstance(finding, Mapping) and isinstance(finding.get("key"), str):
                tokens = finding.get("tokens") or []
                named |= {(finding["key"], token) for token in tokens if isinstance(token, int)}
    return named


def _coverage(results: Mapping[str, Any], minimums: Mapping[str, int]) -> list[dict[str, Any]]:
    found = results.get("coverage") or {}
    names = [*minimums, *(name for name in found if name not in minimums)]
    return [
        {
            "name": name,
            "says": COVERAGE.get(name, ""),
            "found": found.get(name),
            "needed": minimums.get(name),
            "reached": minimums.get(name) is None or (found.get(name) or 0) >= minimums[name],
        }
        for name in names
    ]


def _milliseconds(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.01 else "0"


def _clock(nanoseconds: int | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds / 1e9:.3f} s"

