from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.places import node_names
from nemesis.shapes import majority, minority
from nemesis.targets import NoTarget, choose

clusters = st.integers(1, 9).map(node_names)
draws = st.integers(0, 2**32).map(random.Random)


@given(clusters, draws, st.data())
def test_sizes_and_candidates(nodes: tuple[str, ...], draws: random.Random, data: st.DataObject) -> None:
    candidates = data.draw(st.sets(st.sampled_from(nodes), min_size=1))
    sizes = {"one": 1, "majority": majority(len(nodes)), "all": len(nodes), "minority": minority(len(nodes))}
    for target, size in sizes.items():
        if size == 0:
            continue
        chosen = choose(target, nodes, candidates, None, draws)
        assert len(chosen) == min(size, len(candidates))
        assert set(chosen) <= candidates
        assert list(chosen) == [node for node in nodes if node in chosen]


@given(clusters.filter(lambda nodes: len(nodes) > 1), draws, st.data())
def test_leader_and_follower(nodes: tuple[str, ...], draws: random.Random, data: st.DataObject) -> None:
    leader = data.draw(st.sampled_from(nodes))
    assert choose("leader", nodes, nodes, leader, draws) == (leader,)
    (follower,) = choose("follower", nodes, nodes, leader, draws)
    assert follower != leader


@pytest.mark.parametrize(
    ("target", "candidates", "leader", "says"),
    [
        ("leader", {"n1"}, None, "no node leads"),
        ("follower", {"n1", "n2"}, None, "no node leads"),
        ("follower", {"n1"}, "n1", "no node is left for the target follower"),
        ("one", set(), None, "no node is left for the target one"),
    ],
)
def test_nobody_to_hit(target: str, candidates: set[str], leader: str | None, says: str) -> None:
    with pytest.raises(NoTarget, match=says):
        choose(target, ("n1", "n2"), candidates, leader, random.Random(1))


def test_a_list_is_taken_as_it_is() -> None:
    assert choose(("n2", "n1"), ("n1", "n2", "n3"), (), None, random.Random(1)) == ("n2", "n1")


def test_the_same_stream_draws_the_same() -> None:
    nodes = node_names(7)
    one, two = (choose("minority", nodes, nodes, None, random.Random("7/x/0")) for _ in range(2))
    assert one == two
    assert len({choose("one", nodes, nodes, None, random.Random(seed)) for seed in range(60)}) == 7
