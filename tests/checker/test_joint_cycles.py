"""Cycles through several keys, whose tokens have one order: found for every refusal, true, and never of what fits."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import networkx as nx
import pytest

import checker
from checker import cycles, joint_cycles, linearizable, subhistory, sweep, together
from checker.cycles import NEVER, Point, Step, Wrong
from checker.history import Event, History
from checker.operations import Operation
from tests.checker import exhaustive, generate, script
from tests.checker.compare import history_of
from tests.checker.test_together import TOGETHER

SAMPLE = 1000
FITTING = 20
PARTS = 300

SPANNING = checker.Options(tokens_span_keys=True)


def apart(events: Sequence[Event]) -> list[Event]:
    """The same with tokens of which no two keys have one, so that it is not for this that they are refused."""
    found = []
    for event in events:
        value = event.value
        if value is not None and value.get("token") is not None and event.key is not None:
            value = {**value, "token": 4 * value["token"] + "abcd".index(event.key)}
        found.append(msgspec.structs.replace(event, value=value))
    return found


def histories(seed: int, count: int) -> Iterator[list[Event]]:
    yield from (script.events(text) for text, _ in TOGETHER.values())
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        yield apart(generate.crowded(rng, rng.choice(["ab", "abc", "abcd"])))
        yield apart(history_of(seed, number))


def refused(events: Sequence[Event]) -> together.Refused | None:
    """Where only all keys together say so."""
    keys = History.of(events).by_key if events else {}
    if any(sweep.decide(operations) is not None for operations in keys.values()):
        return None
    joint = together.decide(keys)
    return joint if isinstance(joint, together.Refused) else None


def test_every_refusal_has_a_cycle_that_holds() -> None:
    rules: dict[str, int] = {}
    for events in histories(71, SAMPLE):
        joint = refused(events)
        if joint is None or joint.cases > 1:
            continue
        keys = History.of(events).by_key
        cycle = linearizable.joint_cycle(joint, keys)
        assert len({operation for edge in cycle for operation in edge.operations}) <= 8
        joint_cycles.verify(keys, msgspec.convert([edge.step() for edge in cycle], list[Step]))
        for rule in {edge.rule for edge in cycle}:
            rules[rule] = rules.get(rule, 0) + 1
    assert min(rules[rule] for rule in ("grants", "leave", "counted", "once")) > 0
    assert rules["grants"] > 50


def test_what_is_taken_for_true_of_keys_that_fit_together_is_no_contradiction() -> None:
    """All edges that the verifier accepts, whoever might write them, have no cycle."""
    accepted = fitting = 0
    for events in histories(72, 2 * FITTING):
        keys = History.of(events).by_key if events else {}
        if len(keys) < 2 or len(events) > 18 or not exhaustive.linearizable(events, joint=True):
            continue
        true = _all_true(keys)
        assert nx.is_directed_acyclic_graph(true)
        accepted += sum(true.edges[edge]["step"].rule in ("grants", "counted") for edge in true.edges)
        fitting += 1
    assert fitting > FITTING / 2
    assert accepted > fitting


def _all_true(keys: Mapping[str, Sequence[Operation]]) -> nx.DiGraph[Point]:
    joint = joint_cycles._Joint(keys, joint_cycles.reaches(keys))
    operations = [operation for of_key in keys.values() for operation in of_key]
    events: list[Point] = [(what, operation.index) for operation in operations for what in ("invoke", "end")]
    tokens = {o.token for o in operations if o.outcome == "ok" and o.token is not None} | {-5, 1000}
    moments: list[Point] = [(what, token) for token in sorted(tokens) for what in ("enter", "exit")] + [NEVER]
    graph: nx.DiGraph[Point] = nx.DiGraph()

    def take(step: Step) -> bool:
        if graph.has_edge(step.before, step.after):
            return False
        try:
            joint.check(step)
        except Wrong:
            return False
        graph.add_edge(step.before, step.after, step=step)
        return True

    for before in [*events, *moments]:
        for after in [*events, *moments]:
            for rule in ("lasts", "order", "tokens", "grants", "effect", "once", "nobody", "last", "counted"):
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
                    ways.append(tuple(graph.edges[edge]["step"] for edge in nx.utils.pairwise(path)))
            for since in ways:
                for left in moments:
                    changed |= take(Step(left, end, "leave", since))
    return graph


TWO = "1 acquire a\n1 ok 2\n2 acquire b\n2 ok 3\n3 inspect b\n3 ok 3\n4 acquire c\n4 ok 3"


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Step(("enter", 2), ("enter", 2), "grants"), "enter 2 need not come before enter 2 by the rule 'grants'"),
        (Step(("exit", 2), ("exit", 2), "grants"), "exit 2 need not come before exit 2 by the rule 'grants'"),
        (Step(("enter", 3), ("enter", 3), "tokens"), "no key has enter 3 and enter 3"),
        (Step(("end", 2), ("end", 2), "once"), "end 2 need not come before end 2 by the rule 'once'"),
        (Step(("end", 99), ("end", 99), "order"), "no key has end 99 and end 99"),
        (Step(("enter", 2), ("enter", 2), "guess"), "there is no rule 'guess'"),
        (Step(("enter", 2), ("enter", 2), "counted"), "enter 2 is not the invoke of an operation"),
    ],
)
def test_an_edge_that_does_not_hold_is_refused(step: Step, words: str) -> None:
    keys = History.of(script.events(TWO)).by_key
    with pytest.raises(Wrong, match=re.escape(words)):
        joint_cycles.verify(keys, [step])
    with pytest.raises(Wrong, match="it ends at end 0, not at invoke 0"):
        joint_cycles.verify(keys, [Step(("invoke", 0), ("end", 0), "lasts")])
    assert cycles.EDGES_MAX < 1000
    with pytest.raises(Wrong, match="a cycle has 1 to"):
        joint_cycles.verify(keys, [step] * 1000)


def test_parts_of_several_keys_are_refused_by_whoever_looks_at_them() -> None:
    parts = shorter = 0
    for events in histories(73, PARTS):
        if refused(events) is None:
            continue
        history = History.of(events)
        results = subhistory.with_parts(checker.check(events, ["linearizable"], SPANNING), history, SPANNING)
        (finding,) = results.claims["linearizable"].findings
        part = subhistory.of_finding(finding, history)
        assert not exhaustive.linearizable(part, joint=True)
        assert exhaustive.linearizable(part)
        assert checker.check(part, ["linearizable"], SPANNING).violated == ("linearizable",)
        for index in finding.data["sub_history"]:
            kept = [one for one in history.operations if one.index in finding.data["sub_history"]]
            fewer = subhistory._with_helpers_of_each(kept, [one for one in kept if one.index != index])
            assert len(fewer) == len(kept) or not subhistory._refused_together(fewer)
        parts += 1
        shorter += len(part) < len(events) / 2
    assert parts > 10
    assert shorter > parts / 2


def test_there_is_no_part_without_a_refusal_of_all_keys() -> None:
    events = script.events("1 acquire a\n1 ok 2\n2 acquire b\n2 ok 3")
    assert subhistory.smallest(History.of(events).operations, [0], several_keys=True) is None
