from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.places import node_names
from cluster.places.base import Capability
from nemesis.kinds import KINDS
from nemesis.schedule import plan
from nemesis.spec import FaultSpec, validate
from nemesis.swarm import ONLY_WHEN_NAMED, RANDOM_THROUGHOUT, expand

MS = 1_000_000
LIMIT = 60_000 * MS
NODES = node_names(5)


@given(st.integers(0, 2**63 - 1), st.integers(1, 7))
def test_whatever_is_drawn_is_a_valid_fault_that_fits(seed: int, count: int) -> None:
    nodes = node_names(count)
    drawn = expand([RANDOM_THROUGHOUT], seed, nodes, LIMIT, clients=3)
    for spec in drawn:
        assert validate(spec, nodes, LIMIT, clients=3) == []
        assert spec.fault not in ONLY_WHEN_NAMED
        assert spec.at_ns is not None
    assert len(plan(drawn, seed, LIMIT)) == len(drawn)


def test_the_same_seed_draws_the_same_and_others_differ() -> None:
    runs = [expand([RANDOM_THROUGHOUT], seed, NODES, LIMIT) for seed in range(20)]
    assert runs == [expand([RANDOM_THROUGHOUT], seed, NODES, LIMIT) for seed in range(20)]
    assert len(set(runs)) == 20


def test_a_run_has_some_kinds_on_and_all_runs_together_have_all() -> None:
    runs = [{spec.fault for spec in expand([RANDOM_THROUGHOUT], seed, NODES, 600_000 * MS)} for seed in range(60)]
    possible = set(KINDS) - ONLY_WHEN_NAMED
    sizes = [len(kinds) for kinds in runs]
    assert set().union(*runs) == possible
    assert max(sizes) < len(possible), "no run does a little of everything"
    assert Counter(kind in kinds for kinds in runs for kind in possible)[True] > 300


def test_only_what_is_named_is_drawn() -> None:
    spec = FaultSpec("random", every_ns=3_000 * MS, for_ns=1_000 * MS, options=(("kinds", ("clock", "kill")),))
    drawn = {fault.fault for seed in range(20) for fault in expand([spec], seed, NODES, LIMIT)}
    assert drawn == {"clock", "kill"}


def test_only_what_the_place_can_do_is_drawn() -> None:
    drawn = [spec for seed in range(20) for spec in expand([RANDOM_THROUGHOUT], seed, NODES, LIMIT, [Capability.KILL])]
    assert {spec.fault for spec in drawn} == {"kill", "stop", "crash-loop", "client-pause"}


def test_other_faults_stay_as_they_are() -> None:
    kill = FaultSpec("kill", "one", at_ns=0, for_ns=1_000 * MS)
    assert expand([kill, RANDOM_THROUGHOUT], 1, NODES, LIMIT)[0] == kill
    assert expand([kill], 1, NODES, LIMIT) == (kill,)


@pytest.mark.parametrize("at_ns", [0, 5_000 * MS])
def test_once_is_once(at_ns: int) -> None:
    (drawn,) = expand([FaultSpec("random", at_ns=at_ns, for_ns=2_000 * MS)], 1, NODES, LIMIT)
    assert drawn.at_ns == at_ns


def test_random_faults_may_come_faster_than_they_end() -> None:
    assert validate(FaultSpec("random", every_ns=1_000 * MS, for_ns=3_000 * MS), NODES, LIMIT) == []
