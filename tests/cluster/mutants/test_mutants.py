"""Each mutant is caught, by a claim or by an invariant, where the true node is not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import checker
from cluster.mutants import MUTANTS, elections, names, removals
from cluster.node.core import Core
from cluster.node.members import Members
from cluster.node.messages import VoteReply, VoteRequest
from cluster.node.raft import Persistent, Raft, Timing
from tests.cluster.node.simulated import SimulatedCluster
from tests.cluster.node.test_core import Script, followers
from tests.cluster.node.test_core import cluster as elected
from tests.cluster.node.test_random_runs import SAFETY, run


def violated(net: SimulatedCluster) -> set[str]:
    results = checker.check(net.history, SAFETY, checker.Options(tokens_span_keys=True))
    return {claim for claim, result in results.claims.items() if result.verdict == "invalid"}


@pytest.mark.parametrize(
    ("mutant", "claims"),
    [
        ("every-node-grants", {"linearizable", "mutual-exclusion", "fencing"}),
        ("expire-ignores-token", {"mutual-exclusion"}),
        ("grant-before-commit", {"linearizable", "fencing"}),
        ("reads-without-quorum", {"linearizable"}),
        ("release-ignores-token", {"linearizable", "mutual-exclusion"}),
        ("release-on-applied-state", {"linearizable"}),
        ("token-from-wall-clock", {"fencing"}),
    ],
)
def test_random_runs_find_it(mutant: str, claims: set[str]) -> None:
    found = set()
    for seed in range(12):
        found |= violated(run(seed, MUTANTS[mutant].core_type, size=3 + 2 * (seed % 2), watch=False))
        if found >= claims:
            return
    pytest.fail(f"12 seeds show only {found}")


def test_committing_with_a_minority_loses_what_was_committed() -> None:
    def many_runs() -> None:
        for seed in range(12):
            run(seed, elections.CommitWithMinority)

    with pytest.raises(AssertionError, match=r"state machine safety|leader completeness|is committed"):
        many_runs()


def late_expiry(core_type: type[Core]) -> set[str]:
    """A holder releases in time, and the next one gets the lock before the first one's lease would have been over."""
    net = elected(core_type=core_type)
    first, second, third = (Script(net, i, "n1") for i in range(3))
    first.acquire(lease_ms=1000)
    first.release(1)
    second.acquire(lease_ms=60_000)
    net.run_for(1100)
    third.acquire(lease_ms=60_000)
    return violated(net)


def retried_release(core_type: type[Core]) -> set[str]:
    """The answer to a release is late; it is sent again over another connection, when the next grant is on its way."""
    net = elected(core_type=core_type)
    leader = net.await_leader()
    first, again, second = (Script(net, i, leader.id) for i in range(3))
    first.acquire(lease_ms=60_000)
    second.queue(lease_ms=60_000)
    net.run_for(20)
    net.cuts |= {(follower, leader.id) for follower in followers(net)}
    first.client.release("a", 1, first._then)
    net.run_for(10)
    again.client.release("a", 1, again._then)
    net.run_for(100)
    net.cuts.clear()
    second.wait()
    return violated(net)


@pytest.mark.parametrize(
    ("story", "mutant", "claims"),
    [
        (late_expiry, removals.ExpireIgnoresToken, {"mutual-exclusion"}),
        (retried_release, removals.ReleaseOnAppliedState, {"linearizable"}),
    ],
)
def test_a_lock_is_taken_from_its_new_holder(
    story: Callable[[type[Core]], set[str]], mutant: type[Core], claims: set[str]
) -> None:
    assert story(mutant) == claims
    assert story(Core) == set()


@pytest.mark.parametrize(("core_type", "holder"), [(Core, None), (removals.NoGhostCleanUp, 1)])
def test_a_ghost_stays_for_its_whole_lease(core_type: type[Core], holder: int | None) -> None:
    net = elected(core_type=core_type)
    ghost = Script(net, 0, "n1")
    ghost.client.acknowledges = False
    ghost.queue(lease_ms=60_000, wait_ms=0)
    net.run_for(20)
    ghost.client.close()
    net.run_for(5000)
    assert Script(net, 1, "n2").inspect() == ("ok", holder)


@pytest.mark.parametrize(
    ("raft_type", "votes"), [(Raft, [True, False]), (elections.VoteNotPersisted.raft_type, [True, True])]
)
def test_a_node_that_forgets_its_vote_votes_twice_in_a_term(raft_type: type[Raft], votes: list[bool]) -> None:
    given = []
    found = Persistent()
    members = Members.of_voters({"n1": "", "n2": "", "n3": ""})
    for candidate in ("n2", "n3"):
        raft = raft_type("n1", members, lambda _: 0, 0, found, Timing())
        raft.receive(0, candidate, VoteRequest(5, 0, 0, False))
        out = raft.collect()
        if out.persist is not None and out.persist.hard_state is not None:
            found = Persistent(out.persist.hard_state)
        given += [reply.granted for _, reply in out.after_persist if isinstance(reply, VoteReply)]
    assert given == votes


def test_every_mutant_is_known_by_name_and_runs_as_a_node() -> None:
    for name in names():
        assert issubclass(MUTANTS[name].core_type, Core)
        assert MUTANTS[name].description
    command = [sys.executable, "-m", "cluster.mutants"]
    got = subprocess.run([*command, "every-node-grants", "serve", "--help"], capture_output=True, text=True)
    assert (got.returncode, "--listen" in got.stdout) == (0, True)
    got = subprocess.run([*command, "no-such-mutant", "serve"], capture_output=True, text=True)
    assert (got.returncode, "every-node-grants" in got.stderr) == (254, True)
