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
from fencepost.report import clocks, series
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
    clock_offsets = clocks.offsets(events)
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
        claims=_claims(results, {event.index: event for event in events}),
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
        clocks=clock_offsets,
        data=_embedded(
            _plots(events, calls, end, drawn, points, found_faults)
            | {"clocks": [offsets.to_dict() for offsets in clock_offsets]}
        ),
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
                "shape": fault.shape,
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


def _claims(results: Mapping[str, Any], by_index: Mapping[int, Event]) -> list[dict[str, Any]]:
    rows = []
    for name, claim in (results.get("claims") or {}).items():
        findings = claim.get("findings") or []
        rows.append(
            {
                "name": name,
                "says": CLAIMS.get(name, ""),
                "verdict": VERDICTS.get(str(claim.get("verdict")), VERDICTS["unknown"]),
                "numbers": {key: _number(value) for key, value in (claim.get("numbers") or {}).items()},
                "more": max(0, len(findings) - FINDINGS_MAX),
                "findings": [_finding(finding, by_index) for finding in findings[:FINDINGS_MAX]],
            }
        )
    return rows


def _finding(finding: Mapping[str, Any], by_index: Mapping[int, Event]) -> dict[str, Any]:
    first, _, rest = str(finding.get("message", "")).partition("\n")
    operations = finding.get("operations") or []
    return {
        "message": first,
        "rest": rest,
        "verdict": str(finding.get("verdict", "unknown")),
        "operations": [_operation(operation, by_index) for operation in operations[:OPERATIONS_MAX]],
        "more": max(0, len(operations) - OPERATIONS_MAX),
        "faults": [f"{fault.get('kind')} of {series.words(fault.get('targets') or [])}" for fault in finding["faults"]]
        if finding.get("faults")
        else [],
    }


def _operation(operation: Mapping[str, Any], by_index: Mapping[int, Event]) -> dict[str, Any]:
    """A cited operation, with what it asked and was answered if the history is at hand."""
    end = operation.get("end")
    invoke, completion = by_index.get(operation.get("index", -1)), by_index.get(-1 if end is None else end)
    return {
        **operation,
        "asked": series.words(invoke.value or {}) if invoke else "",
        "answer": series.words(completion.value or {}) if completion else "",
        "type": "open" if end is None else operation.get("type"),
    }


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def _named(results: Mapping[str, Any]) -> set[tuple[str, int]]:
    """The (key, token) that the findings of violated claims name."""
    return {
        (operation["key"], operation["token"])
        for claim in (results.get("claims") or {}).values()
        for finding in claim.get("findings") or []
        if finding.get("verdict") == "invalid"
        for operation in finding.get("operations") or []
        if operation.get("key") is not None and operation.get("token") is not None
    }


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


def _clock(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.3f} s"
