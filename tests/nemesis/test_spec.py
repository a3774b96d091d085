from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.places import node_names
from cluster.places.base import Capability
from nemesis.kinds import Value
from nemesis.schedule import plan
from nemesis.shapes import build
from nemesis.spec import FAULTS, SHAPES, TARGETS, FaultSpec, validate

SECOND = 1_000_000_000
LIMIT = 60 * SECOND

KILL = FaultSpec("kill", target="one", at_ns=SECOND, for_ns=SECOND)
CUT = FaultSpec("partition", shape="one", at_ns=SECOND, for_ns=SECOND)


@pytest.mark.parametrize(
    ("spec", "count", "field", "says"),
    [
        (replace(KILL, fault="explode"), 3, "fault", "'explode' one of partition, "),
        (replace(KILL, target=None), 3, "target", "a kill without a target one of one, minority"),
        (replace(KILL, target="everyone"), 3, "target", "'everyone' one of one, minority"),
        (replace(KILL, target="minority"), 2, "target", "minority of 2 nodes at least 3 nodes"),
        (replace(KILL, target="follower"), 1, "target", "follower of 1 node at least 2 nodes"),
        (replace(KILL, target=("n1", "n5")), 3, "target", "no node n5 in this cluster some of n1, n2, n3"),
        (replace(KILL, target=()), 3, "target", "an empty list"),
        (replace(KILL, target=("n1", "n1")), 3, "target", "a node named twice"),
        (replace(KILL, shape="one"), 3, "shape", "shape for the fault kill a target; only faults of links have it"),
        (replace(CUT, shape=None), 3, "shape", "a partition without a shape one of one, majority-minority"),
        (replace(CUT, shape="star"), 3, "shape", "'star' one of one, majority-minority"),
        (replace(CUT, shape="bridge"), 3, "shape", "bridge with 3 nodes at least 5 nodes (two groups"),
        (replace(CUT, shape="majorities-ring"), 3, "shape", "majorities-ring with 3 nodes at least 4 nodes"),
        (replace(CUT, shape="isolated-leader", target="one"), 3, "target", "no target: the shape needs none"),
        (replace(CUT, target="majority"), 3, "target", "'majority' for the shape one one of one, leader, follower"),
        (replace(CUT, target=("n1", "n2")), 3, "target", "2 of 3 nodes for the shape one a list of at most 1"),
        (replace(CUT, shape="majority-minority", target=("n1", "n2", "n3")), 3, "target", "a list of at most 2"),
        (replace(CUT, shape=None, cuts=()), 3, "cuts", "no link"),
        (replace(CUT, shape=None, cuts=(("n1", "n4"),)), 3, "cuts", "no node n4 in this cluster"),
        (replace(CUT, shape=None, cuts=(("n1", "n1"),)), 3, "cuts", "a link from n1 to itself"),
        (replace(CUT, cuts=(("n1", "n2"),)), 3, "shape", "shape beside cuts"),
        (replace(KILL, at_ns=None), 3, "at", "neither at nor every"),
        (replace(KILL, at_ns=-1), 3, "at", "a time since the start"),
        (replace(KILL, for_ns=0), 3, "for", "0s at least 0.5s"),
        (replace(KILL, at_ns=60 * SECOND), 3, "at", "from 60s to 61s a fault that ends within the time limit, 60s"),
        (replace(KILL, at_ns=None, every_ns=60 * SECOND), 3, "every", "from 60s to 61s"),
        (replace(KILL, every_ns=SECOND), 3, "every", "every 1s for 1s a period that is longer"),
    ],
)
def test_what_is_wrong_is_said_with_what_would_do(spec: FaultSpec, count: int, field: str, says: str) -> None:
    problems = validate(spec, node_names(count), LIMIT)
    assert [problem.field for problem in problems] == [field]
    assert says in f"{problems[0].found} {problems[0].remedy}"


def test_several_problems_are_all_said() -> None:
    spec = FaultSpec("partition", shape="bridge", for_ns=0)
    assert [problem.field for problem in validate(spec, node_names(3), LIMIT)] == ["shape", "for", "at"]


def test_what_a_place_cannot_do_is_said() -> None:
    (problem,) = validate(KILL, node_names(3), LIMIT, {Capability.CUT_LINKS, Capability.PAUSE})
    assert (problem.field, problem.found) == ("fault", "kill, which needs a place that can kill")


good = st.one_of(
    st.builds(FaultSpec, st.sampled_from(["kill", "pause"]), target=st.sampled_from(sorted(TARGETS))),
    st.sampled_from(
        [
            FaultSpec("partition", shape=shape, target=target)
            for shape, rule in SHAPES.items()
            for target in (None, *rule.targets)
        ]
    ),
)


@given(good, st.integers(1, 9))
def test_valid_specs_can_be_planned_and_built(spec: FaultSpec, count: int) -> None:
    spec = replace(spec, at_ns=SECOND, for_ns=SECOND)
    nodes = node_names(count)
    if validate(spec, nodes, LIMIT):
        return
    (planned,) = plan([spec], 1, LIMIT)
    if spec.shape is not None:
        around = ("n1",) if spec.shape != "majorities-ring" else nodes
        assert build(spec.shape, nodes, around, planned.draws())


def test_every_named_thing_is_valid_somewhere() -> None:
    nodes = node_names(5)
    for target in TARGETS:
        assert validate(replace(KILL, target=target), nodes, LIMIT) == []
    for shape in SHAPES:
        assert validate(replace(CUT, shape=shape), nodes, LIMIT) == []


GIVEN: dict[str, tuple[tuple[str, Value], ...]] = {
    "clock": (("jump", SECOND),),
    "delay": (("delay", (5, 10)),),
    "disk-restore": (("age", (500, 500)),),
    "starve": (("cpu", 0.1),),
    "throttle": (("rate", 1000),),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_every_kind_is_valid_somewhere(kind: str) -> None:
    target = {"partition": None, "random": None, "transfer": "follower"}.get(kind, "one")
    shape = "one" if kind == "partition" else None
    spec = FaultSpec(kind, target, shape, at_ns=SECOND, for_ns=SECOND, options=GIVEN.get(kind, ()))
    assert validate(spec, node_names(5), LIMIT) == []
