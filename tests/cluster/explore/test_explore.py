from __future__ import annotations

import pytest

from cluster.explore import Bounds, Space, elect, explore, lines, mermaid
from cluster.explore.frozen import freeze, pack, unpack
from cluster.explore.space import State
from cluster.mutants import MUTANTS
from cluster.node.core import Core
from cluster.node.protocol import Acquire, Inspect
from fencepost import exploring


def test_all_states_of_two_nodes_that_elect_a_leader_are_valid() -> None:
    explored = explore(Space(Bounds(nodes=2, clients=0, timeouts=3, crashes=1, beats=1, requests=0)))
    assert explored.violation is None
    assert explored.complete
    assert explored.states > 500


def test_grants_crashes_and_ended_leases_are_valid_as_far_as_is_said() -> None:
    space = Space(Bounds(nodes=2, timeouts=2, crashes=1, requests=2, leases=1, gone=1, patience=1, beats=2, reads=True))
    explored = explore(space, begin=elect(space), depth=5)
    assert explored.violation is None
    assert explored.depth == 5
    assert not explored.complete
    assert "Nothing is said of what lies beyond" in explored.verdict()


@pytest.mark.parametrize(
    ("mutant", "claim", "events"),
    [
        ("applies-twice", "state machine safety", 4),
        ("believed-unconfirmed", "causes", 6),
        ("commit-with-minority", "state machine safety", 7),
        ("counter-from-held-locks", "state machine safety", 10),
        ("counter-not-in-snapshot", "state machine safety", 7),
        ("every-node-grants", "election safety", 2),
        ("expire-ignores-token", "state machine safety", 5),
        ("ghost-clean-up-any-holder", "causes", 6),
        ("grant-before-commit", "acknowledged grants", 2),
        ("held-from-memory", "reads", 4),
        ("no-noop", "reads", 9),
        ("not-held-from-projection", "reads", 8),
        ("reads-before-term-start", "reads", 8),
        ("reads-without-quorum", "reads", 4),
        ("release-ignores-token", "causes", 7),
        ("two-grants-in-flight", "state machine safety", 7),
        ("votes-twice", "election safety", 10),
        pytest.param("answers-before-fsync", "leader completeness", 12, marks=pytest.mark.slow),
        pytest.param("keeps-conflicts", "state machine safety", 17, marks=pytest.mark.slow),
        pytest.param("term-not-persisted", "election safety", 12, marks=pytest.mark.slow),
        pytest.param("vote-not-persisted", "election safety", 12, marks=pytest.mark.slow),
    ],
)
def test_a_mutant_is_found_with_the_shortest_trace(mutant: str, claim: str, events: int) -> None:
    space, begin, explored = exploring.run(exploring.SHOWS[mutant], mutant, depth=17, for_s=None)
    assert explored.violation is not None
    assert explored.violation.claim == claim
    assert len(explored.trace) - len(begin) == events
    told = list(lines(space, explored.trace))
    assert told[-1].words.startswith(f"VIOLATION: {claim}")
    assert mermaid(told).count("\n") == len(told) + 1


@pytest.mark.parametrize("mutant", sorted(exploring.SHOWS))
def test_the_true_node_is_valid_where_a_mutant_is_not(mutant: str) -> None:
    _, _, explored = exploring.run(exploring.SHOWS[mutant], None, depth=7, for_s=None)
    assert explored.violation is None


def test_silence_at_any_time_leads_nowhere_else() -> None:
    class AtAnyTime(Space):
        def _asked_to_vote(self, state: State, node: int) -> bool:
            return True

    bounds = Bounds(nodes=2, clients=1, timeouts=1, beats=1, requests=1, in_flight=3)
    some, all_ = Space(bounds), AtAnyTime(bounds)
    fewer, more = explore(some, begin=elect(some)), explore(all_, begin=elect(all_))
    assert fewer.complete
    assert more.complete
    assert fewer.states <= more.states
    assert promised(some) == promised(all_)


def promised(space: Space) -> set[object]:
    return set(space.ledger.met)


def test_a_copy_of_a_core_is_equal_and_lives_by_itself() -> None:
    space = Space(Bounds(nodes=1, clients=1, timeouts=1, beats=1, requests=0))
    state = space.first()
    for event in (("timeout", 0, 0),):
        after = space.step(state, event)
        assert after is not None
        state = after
    core: Core = unpack(space.nodes._packed[state[0]]).core
    assert core.leads
    core.request(0, 1, Inspect(1, "k"))
    copy: Core = unpack(pack(core))
    assert freeze(copy) == freeze(core)
    core.request(0, 1, Acquire(2, "k", 1000, 0))
    assert freeze(copy) != freeze(core)
    assert [answer.id for _, answer in copy.collect(0).answers] == [
        1
    ]  # what the copy's closure answers from is its own


def test_the_same_is_explored_every_time() -> None:
    bounds = Bounds(timeouts=1, requests=1, beats=1, crashes=1)
    assert [explore(Space(bounds), depth=6).states for _ in range(2)] == [explore(Space(bounds), depth=6).states] * 2


def test_mutants_that_show_exist() -> None:
    assert exploring.SHOWS.keys() <= MUTANTS.keys()
