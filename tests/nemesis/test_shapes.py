"""Partitions' shapes, for every size of cluster that each is allowed for."""

from __future__ import annotations

import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.places import node_names
from cluster.places.base import Link
from nemesis.shapes import Cuts, build, majority, minority
from nemesis.spec import SHAPES

draws = st.integers(0, 2**32).map(random.Random)


def clusters(shape: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.integers(SHAPES[shape].nodes_min, 12).map(node_names)


def views(nodes: tuple[str, ...], cuts: Cuts) -> dict[str, frozenset[str]]:
    """Whom each node can talk with, both ways, itself included."""
    return {
        node: frozenset(other for other in nodes if Link(node, other) not in cuts and Link(other, node) not in cuts)
        for node in nodes
    }


def symmetric(cuts: Cuts) -> bool:
    return all(link.reverse in cuts for link in cuts)


@given(st.integers(1, 1000))
def test_majority_and_minority(count: int) -> None:
    assert majority(count) > count / 2 >= majority(count) - 1
    assert count - minority(count) >= majority(count) > count - minority(count) - 1


@pytest.mark.parametrize("shape", ["one", "isolated-leader"])
@given(data=st.data())
def test_isolating_one(shape: str, data: st.DataObject) -> None:
    nodes = data.draw(clusters(shape))
    node = data.draw(st.sampled_from(nodes))
    cuts = build(shape, nodes, (node,), random.Random(0))
    seen = views(nodes, cuts)
    assert symmetric(cuts)
    assert seen.pop(node) == {node}
    assert set(seen.values()) == {frozenset(nodes) - {node}}


@given(clusters("majority-minority"), draws, st.data())
def test_majority_and_minority_shape(nodes: tuple[str, ...], draws: random.Random, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(nodes))
    cuts = build("majority-minority", nodes, (node,), draws)
    seen = views(nodes, cuts)
    assert symmetric(cuts)
    assert {len(view) for view in seen.values()} == {minority(len(nodes)), len(nodes) - minority(len(nodes))}
    assert len(seen[node]) == minority(len(nodes)), "the node that it is about is in the minority"
    assert all(seen[other] == view for view in seen.values() for other in view)


@given(clusters("majority-minority"), draws, st.data())
def test_an_explicit_group_stays_as_it_is(nodes: tuple[str, ...], draws: random.Random, data: st.DataObject) -> None:
    size = st.integers(minority(len(nodes)), len(nodes) - 1)
    group = tuple(data.draw(st.permutations(nodes))[: data.draw(size)])
    cuts = build("majority-minority", nodes, group, draws)
    assert views(nodes, cuts)[group[0]] == frozenset(group)


@given(clusters("majorities-ring"), draws)
def test_majorities_ring(nodes: tuple[str, ...], draws: random.Random) -> None:
    cuts = build("majorities-ring", nodes, nodes, draws)
    seen = views(nodes, cuts)
    assert symmetric(cuts)
    assert all(len(view) >= majority(len(nodes)) for view in seen.values())
    assert len(set(seen.values())) == len(nodes), "no two nodes see the same majority"
    assert all(node in view for node, view in seen.items())


def test_majorities_ring_needs_as_many_nodes_as_it_says() -> None:
    nodes = node_names(SHAPES["majorities-ring"].nodes_min - 1)
    assert build("majorities-ring", nodes, nodes, random.Random(0)) == frozenset()


@given(clusters("bridge"), draws, st.data())
def test_bridge(nodes: tuple[str, ...], draws: random.Random, data: st.DataObject) -> None:
    middle = data.draw(st.sampled_from(nodes))
    cuts = build("bridge", nodes, (middle,), draws)
    seen = views(nodes, cuts)
    assert symmetric(cuts)
    assert seen.pop(middle) == frozenset(nodes)
    halves = set(seen.values())
    assert len(halves) == 2
    left, right = halves
    assert left & right == {middle}
    assert left | right == set(nodes)
    assert abs(len(left) - len(right)) <= 1
    assert min(len(left), len(right)) >= 3, "two or more on either side, and the bridge"


@given(clusters("one-way"), draws, st.data())
def test_one_way(nodes: tuple[str, ...], draws: random.Random, data: st.DataObject) -> None:
    node = data.draw(st.sampled_from(nodes))
    cuts = build("one-way", nodes, (node,), draws)
    others = [other for other in nodes if other != node]
    out = frozenset(Link(node, other) for other in others)
    assert cuts in (out, frozenset(link.reverse for link in out))


def test_one_way_is_drawn_both_ways() -> None:
    nodes = node_names(3)
    assert len({build("one-way", nodes, ("n1",), random.Random(seed)) for seed in range(20)}) == 2


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_a_matter_of_its_draws_alone(shape: str) -> None:
    nodes = node_names(7)
    around = nodes if not SHAPES[shape].targets and shape == "majorities-ring" else ("n3",)
    one, two = (build(shape, nodes, around, random.Random("9/x/0")) for _ in range(2))
    assert one == two
    assert one <= {Link(*pair) for pair in permutations(nodes, 2)}
    assert one
