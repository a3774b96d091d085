"""Cycles: closed, of few operations, each edge true of the history; and their pictures."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import networkx as nx
import pytest

import checker
from checker import Finding, cycles, drawing, graph, linearizable, sweep, verifier
from checker.cycles import NEVER, Point, Step, Wrong
from checker.graph import Edge
from checker.history import OPEN, History
from checker.operations import Operation
from tests.checker import exhaustive, script
from tests.checker.compare import history_of
from tests.checker.scripts import SCRIPTS

SAMPLE = 800
FITTING = 30


def findings(events: list[Any]) -> tuple[Finding, ...]:
    return checker.check(events, ["linearizable"]).claims["linearizable"].findings


@pytest.mark.parametrize(
    "name", [name for name, text in SCRIPTS.items() if not exhaustive.linearizable(script.events(text))]
)
def test_every_kind_of_violation_has_a_cycle(name: str) -> None:
    (finding,) = findings(script.events(SCRIPTS[name]))
    cycle = finding.data["cycle"]
    for edge, following in pairwise([*cycle, cycle[0]]):
        assert edge["after"] == following["before"]
    assert len({operation for edge in cycle for operation in edge["operations"]}) <= 8


def test_cycles_are_contradictions() -> None:
    """Every edge is checked against the history by itself, with nothing of how it was found."""
    found = counted = 0
    for number in range(SAMPLE):
        events = history_of(41, number, operations=12 if number % 3 else 40)
        if not events:
            continue
        for operations in History.of(events).by_key.values():
            reason = sweep.decide(operations)
            if reason is None:
                continue
            cycle = graph.cycle_of(reason, [operation for operation, _ in linearizable.cited(reason)])
            assert cycle
            found += 1
            counted += any(edge.rule == "counted" for edge in cycle)
            for edge, following in pairwise([*cycle, *cycle[:1]]):
                assert edge.after == following.before
            for edge in cycle:
                if edge.rule != "counted":
                    assert _holds(edge, {operation.index: operation for operation in operations}), (number, edge)
            assert len({operation for edge in cycle for operation in edge.operations}) <= 8
            steps = msgspec.convert([edge.step() for edge in cycle], list[Step])
            cycles.verify(operations, steps, list(verifier.reaches(operations)))
    assert found > 4 * counted > 0


def test_what_the_verifier_takes_for_true_of_a_history_that_fits_is_no_contradiction() -> None:
    """All edges that it accepts together, whoever might write them, have no cycle."""
    accepted = 0
    for number in range(FITTING):
        events = history_of(43, number, operations=8)
        if not events:
            continue
        for operations in History.of(events).by_key.values():
            if sweep.decide(operations) is None:
                true = _all_true(operations)
                assert nx.is_directed_acyclic_graph(true), number
                accepted += true.number_of_edges()
    assert accepted > 20 * FITTING


def _all_true(operations: Sequence[Operation]) -> nx.DiGraph[Point]:
    reaches = list(verifier.reaches(operations))
    key = cycles.Key(operations, reaches)
    events: list[Point] = [(what, operation.index) for operation in operations for what in ("invoke", "end")]
    tokens = {o.token for o in operations if o.outcome == "ok" and o.token is not None} | {-5, 1000}
    moments: list[Point] = [(what, token) for token in tokens for what in ("enter", "exit")] + [NEVER]
    graph: nx.DiGraph[Point] = nx.DiGraph()

    def take(step: Step) -> bool:
        if graph.has_edge(step.before, step.after):
            return False
        try:
            key.check(step)
        except Wrong:
            return False
        graph.add_edge(step.before, step.after, step=step)
        return True

    points = [*events, *moments]
    for before in points:
        for after in points:
            for rule in ("lasts", "order", "tokens", "effect", "once", "nobody", "last", "counted"):
                take(Step(before, after, rule))
    changed = True
    while changed:
        changed = False
        for operation in operations:
            begin, end = ("invoke", operation.index), ("end", operation.index)
            ways: list[tuple[Step, ...]] = [()]
            for entered in moments:
                if graph.has_node(entered) and graph.has_node(begin) and nx.has_path(graph, entered, begin):
                    path = nx.shortest_path(graph, entered, begin)
                    ways.append(tuple(graph.edges[one, other]["step"] for one, other in pairwise(path)))
            for since in ways:
                for left in moments:
                    changed |= take(Step(left, end, "leave", since))
    return graph


TWO = "1 acquire a\n1 ok 1\n1 release a 1\n1 ok\n2 acquire a\n2 ok 2\n3 inspect a\n3 ok 2"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([], "a cycle has 1 to"),
        ([Step(("invoke", 0), ("end", 0), "lasts")], "it ends at end 0, not at invoke 0"),
        (
            [Step(("invoke", 0), ("end", 0), "lasts"), Step(("invoke", 2), ("invoke", 0), "order")],
            "after end 0 it goes on with invoke 2",
        ),
        ([Step(("end", 2), ("end", 2), "once")], "end 2 need not come before end 2 by the rule 'once'"),
        ([Step(("exit", 1), ("exit", 1), "tokens")], "need not come before"),
        ([Step(("end", 0), ("end", 0), "guess")], "there is no rule 'guess'"),
        ([Step(("end", 7), ("end", 7), "lasts")], "end 7 is not the invoke of an operation of the key"),
        ([Step(("end", 1), ("end", 1), "once")], "end 1 is not the end of an operation of the key"),
        ([Step(("enter", 9), ("enter", 9), "counted")], "nothing is known of enter 9"),
        ([Step(NEVER, NEVER, "last", (Step(NEVER, NEVER, "last"),))], "rests on no others"),
    ],
)
def test_a_broken_cycle_is_refused(steps: list[Step], words: str) -> None:
    (operations,) = History.of(script.events(TWO)).by_key.values()
    with pytest.raises(Wrong, match=re.escape(words)):
        cycles.verify(operations, steps, list(verifier.reaches(operations)))


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
            return after.of == OPEN
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
