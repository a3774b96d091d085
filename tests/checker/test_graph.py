"""Cycles: closed, of few operations, each edge true of the history; and their pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from typing import Any

import pytest

import checker
from checker import Finding, drawing, graph, linearizable, sweep
from checker.graph import Edge
from checker.history import History
from checker.operations import Operation
from tests.checker import exhaustive, script
from tests.checker.compare import history_of
from tests.checker.scripts import SCRIPTS

SAMPLE = 800


def findings(events: list[Any]) -> tuple[Finding, ...]:
    return checker.check(events, ["linearizable"]).claims["linearizable"].findings


@pytest.mark.parametrize(
    "name", [name for name, text in SCRIPTS.items() if not exhaustive.linearizable(script.events(text))]
)
def test_every_kind_of_violation_has_a_cycle_or_is_a_matter_of_counting(name: str) -> None:
    (finding,) = findings(script.events(SCRIPTS[name]))
    cycle = finding.data["cycle"]
    if not cycle:
        assert "unknown outcome" in finding.message
        return
    for edge, following in pairwise([*cycle, cycle[0]]):
        assert edge["after"] == following["before"]
    assert len({operation for edge in cycle for operation in edge["operations"]}) <= 8


def test_cycles_are_contradictions() -> None:
    """Every edge is checked against the history by itself, with nothing of how it was found."""
    cycles = counted = 0
    for number in range(SAMPLE):
        events = history_of(41, number, operations=12 if number % 3 else 40)
        if not events:
            continue
        for operations in History.of(events).by_key.values():
            reason = sweep.decide(operations)
            if reason is None:
                continue
            cycle = graph.cycle_of(reason, [operation for operation, _ in linearizable.cited(reason)])
            counted += not cycle
            cycles += bool(cycle)
            for edge, following in pairwise([*cycle, *cycle[:1]]):
                assert edge.after == following.before
            for edge in cycle:
                assert _holds(edge, {operation.index: operation for operation in operations}), (number, edge)
            assert len({operation for edge in cycle for operation in edge.operations}) <= 8
    assert cycles > 4 * counted > 0


def _holds(edge: Edge, by_index: dict[int, Operation]) -> bool:
    """Whether one node must come before the other, by the operations that the edge rests on."""
    before, after, on = edge.before, edge.after, [by_index[index] for index in edge.operations]
    tokens = {o.token for o in by_index.values() if o.outcome == "ok" and o.token is not None}
    match before.what, after.what:
        case "invoke", "end":
            return before.of == after.of
        case "end", "invoke":
            return by_index[before.of].end < after.of
        case "end", "end":
            one, other = on
            return one.token == other.token and one.f == other.f and one.outcome == other.outcome == "ok"
        case "enter", "exit":
            return before.of == after.of and before.of in tokens
        case "exit", "enter":
            return before.of < after.of and not [t for t in tokens if before.of < t < after.of]
        case "invoke", ("enter" | "exit"):
            operation = by_index[before.of]
            return (
                operation.token == after.of
                and operation.outcome == "ok"
                and (operation.f == "acquire") == (after.what == "enter")
            )
        case "end", "enter":
            # Nobody had asked.
            acquires = [o for o in by_index.values() if o.f == "acquire"]
            mine = [o for o in acquires if o.outcome == "info" or (o.outcome == "ok" and o.token == after.of)]
            return all(o.index > by_index[before.of].end for o in mine)
        case (("exit" | "end"), "exit"):
            return after.of == graph.OPEN
        case (("enter" | "exit"), "end"):
            shown = by_index[after.of]
            if shown.outcome == "ok" and shown.token == before.of:
                return True
            # Forced: it was open only after the state had been entered.
            return shown in on and (shown.outcome == "fail" or shown.token is None)
    return False


def test_a_picture_shows_every_operation_and_every_edge() -> None:
    (finding,) = findings(script.events(SCRIPTS["refused-while-free"]))
    picture = drawing.draw(finding)
    root = ElementTree.fromstring(picture)
    texts = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    for operation in finding.operations:
        assert any(f"[{operation.index}]" in text for text in texts)
    for edge in finding.data["cycle"]:
        assert any(edge["because"] in text for text in texts)
    assert not re.search(r"(href|src|url\((?!#))", picture)


def test_a_picture_is_safe_for_any_name() -> None:
    events = script.events("1 acquire <script>&\n1 ok 1\n2 acquire <script>&\n2 ok 1")
    (finding,) = findings(events)
    assert "<script>" not in drawing.draw(finding)
    ElementTree.fromstring(drawing.draw(finding))
    ElementTree.fromstring(drawing.draw(Finding("recovery", checker.Verdict.INVALID, "late")))
