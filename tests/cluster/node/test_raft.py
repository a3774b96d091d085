"""Elections and replication, by the sections of Ongaro's dissertation."""

import pytest

from cluster.node.commands import Grant, Noop
from cluster.node.leases import MS
from cluster.node.members import Members
from cluster.node.messages import Append, AppendReply, Batch, HardState, VoteReply, VoteRequest
from cluster.node.raft import Persistent, Raft, Role, Timing
from cluster.node.raftlog import Entry

GRANT = Grant("a", 1000)


def node(
    *, others: tuple[str, ...] = ("n2", "n3"), term: int = 0, vote: str | None = None, terms: tuple[int, ...] = ()
) -> Raft:
    found = Persistent(HardState(term, vote), entries=[Entry(i, term, GRANT) for i, term in enumerate(terms, 1)])
    members = Members.of_voters(dict.fromkeys(("n1", *others), ""))
    return Raft("n1", members, lambda n: n // 2, 0, found, Timing())


def elect(raft: Raft) -> None:
    raft.tick(raft.deadline())
    raft.receive(raft.now, "n2", VoteReply(raft.term + 1, True, True))
    raft.persisted(raft.now, raft.collect().persist or Batch(None, ()))
    raft.receive(raft.now, "n2", VoteReply(raft.term, True, False))
    assert raft.role is Role.LEADER


def test_9_6_pre_vote_changes_no_term_until_a_majority_would_vote() -> None:
    raft = node(term=4)
    raft.tick(raft.deadline())
    out = raft.collect()
    assert raft.term == 4
    assert out.persist is None
    assert out.after_persist == [(peer, VoteRequest(5, 0, 0, True)) for peer in ("n2", "n3")]
    raft.receive(raft.now, "n2", VoteReply(5, True, True))
    out = raft.collect()
    assert out.persist == Batch(HardState(5, "n1"), ())
    assert out.after_persist[0] == ("n2", VoteRequest(5, 0, 0, False))


def test_a_candidate_counts_its_own_vote_only_when_it_is_on_disk() -> None:
    raft = node(others=())
    raft.tick(raft.deadline())
    batch = raft.collect().persist
    assert batch is not None
    assert raft.role is Role.CANDIDATE
    raft.persisted(raft.now, batch)
    assert raft.role is Role.LEADER


def test_a_vote_of_an_earlier_term_or_of_a_pre_vote_does_not_count() -> None:
    raft = node()
    raft.tick(raft.deadline())
    raft.receive(raft.now, "n2", VoteReply(1, True, True))
    raft.collect()
    for stale in (VoteReply(1, True, True), VoteReply(0, True, False)):
        raft.receive(raft.now, "n3", stale)
        assert raft.role is Role.CANDIDATE


def test_one_voter_is_counted_once() -> None:
    raft = node(others=("n2", "n3", "n4", "n5"))
    raft.tick(raft.deadline())
    for _ in range(5):
        raft.receive(raft.now, "n2", VoteReply(1, True, True))
    assert raft.term == 0


@pytest.mark.parametrize(
    ("request_", "granted"),
    [
        (VoteRequest(3, 3, 2, False), True),
        (VoteRequest(3, 2, 2, False), False),  # a shorter log
        (VoteRequest(3, 9, 1, False), False),  # an older last term
        (VoteRequest(1, 9, 9, False), False),  # an older term
    ],
)
def test_3_6_1_votes_only_for_a_log_at_least_as_up_to_date(request_: VoteRequest, granted: bool) -> None:
    raft = node(term=2, terms=(1, 2, 2))
    raft.receive(0, "n2", request_)
    [(_, reply)] = raft.collect().after_persist
    assert isinstance(reply, VoteReply)
    assert reply.granted is granted


def test_3_4_one_vote_a_term_and_it_is_saved_before_it_is_given() -> None:
    raft = node(term=2)
    raft.receive(0, "n2", VoteRequest(3, 0, 0, False))
    raft.receive(0, "n3", VoteRequest(3, 0, 0, False))
    raft.receive(0, "n2", VoteRequest(3, 0, 0, False))
    out = raft.collect()
    assert out.persist == Batch(HardState(3, "n2"), ())
    assert [reply.granted for _, reply in out.after_persist if isinstance(reply, VoteReply)] == [True, False, True]
    assert out.now == []


def test_4_2_3_a_node_that_hears_a_leader_does_not_vote() -> None:
    raft = node(term=2)
    raft.receive(0, "n2", Append(2, 0, 0, (), 0, 0))
    raft.collect()
    raft.receive(400 * MS, "n3", VoteRequest(9, 5, 5, False))
    assert raft.collect().after_persist == []
    assert raft.term == 2
    raft.receive(501 * MS, "n3", VoteRequest(9, 5, 5, False))
    assert raft.term == 9


def test_6_4_a_leader_begins_its_term_with_a_noop_and_sends_it() -> None:
    raft = node()
    elect(raft)
    out = raft.collect()
    assert out.persist == Batch(None, (Entry(1, 1, Noop()),))
    assert ("n2", Append(1, 0, 0, (Entry(1, 1, Noop()),), 0, 0)) in out.now


def test_3_6_2_an_entry_of_an_earlier_term_is_not_committed_by_counting() -> None:
    raft = node(term=2, terms=(1, 2))
    elect(raft)
    raft.receive(raft.now, "n2", AppendReply(3, True, 2, 2, 0))
    raft.receive(raft.now, "n3", AppendReply(3, True, 2, 2, 0))
    assert raft.commit == 0
    raft.receive(raft.now, "n2", AppendReply(3, True, 3, 2, 0))
    batch = raft.collect().persist
    assert raft.commit == 0, "its own copy is not on disk yet"
    assert batch is not None
    raft.persisted(raft.now, batch)
    assert raft.commit == 3


def test_10_2_1_two_followers_commit_what_the_leaders_disk_does_not_have_yet() -> None:
    raft = node()
    elect(raft)
    raft.collect()
    for peer in ("n2", "n3"):
        raft.receive(raft.now, peer, AppendReply(1, True, 1, 0, 0))
    assert raft.commit == 1


def test_3_5_the_consistency_check_refuses_and_skips_a_whole_conflicting_term() -> None:
    raft = node(term=3, terms=(1, 2, 2, 2))
    raft.receive(0, "n2", Append(3, 4, 3, (), 0, 0))
    [(_, reply)] = raft.collect().after_persist
    assert reply == AppendReply(3, False, 1, 4, 0)
    raft.receive(0, "n2", Append(3, 9, 3, (), 0, 0))
    [(_, reply)] = raft.collect().after_persist
    assert reply == AppendReply(3, False, 4, 9, 0)


def test_3_5_a_conflicting_suffix_is_replaced_and_an_agreeing_one_is_kept() -> None:
    raft = node(term=3, terms=(1, 2, 2))
    raft.receive(0, "n2", Append(3, 1, 1, (Entry(2, 2, GRANT),), 0, 0))
    assert raft.log.last_index == 3, "an old append must not cut what came after it"
    raft.receive(0, "n2", Append(3, 1, 1, (Entry(2, 3, GRANT),), 2, 0))
    out = raft.collect()
    assert [entry.term for entry in raft.log.between(1, 9)] == [1, 3]
    assert out.persist == Batch(None, (Entry(2, 3, GRANT),))
    assert raft.commit == 2


def test_a_follower_commits_no_further_than_the_append_vouches_for() -> None:
    raft = node(term=2, terms=(1, 1, 1))
    raft.receive(0, "n2", Append(2, 1, 1, (), 3, 0))
    assert raft.commit == 1


def test_a_committed_entry_is_never_overwritten() -> None:
    raft = node(term=2, terms=(1, 1))
    raft.receive(0, "n2", Append(2, 2, 1, (), 2, 0))
    with pytest.raises(AssertionError, match="committed"):
        raft.receive(0, "n2", Append(2, 1, 1, (Entry(2, 2, GRANT),), 2, 0))


def test_6_2_a_leader_that_hears_no_majority_steps_down() -> None:
    raft = node()
    elect(raft)
    began = raft.now
    raft.receive(began + 300 * MS, "n2", AppendReply(1, True, 1, 0, 0))
    raft.tick(began + 600 * MS)
    assert raft.role is Role.LEADER
    raft.tick(began + 801 * MS)
    assert raft.role is Role.FOLLOWER
    assert raft.leader is None


def test_a_leader_that_was_left_behind_learns_the_newer_term() -> None:
    follower = node(term=7)
    follower.receive(0, "n2", Append(5, 0, 0, (), 0, 0))
    [(_, reply)] = follower.collect().after_persist
    leader = node()
    elect(leader)
    leader.receive(leader.now, "n2", reply)
    assert (leader.role, leader.term) == (Role.FOLLOWER, 7)


def test_6_4_a_read_round_is_confirmed_by_answers_that_are_younger_than_it() -> None:
    raft = node()
    elect(raft)
    raft.collect()
    wanted = raft.next_round()
    raft.begin_round()
    raft.receive(raft.now, "n2", AppendReply(1, True, 1, 0, wanted - 1))
    assert raft.confirmed_round() < wanted
    raft.begin_round()
    assert raft.round == wanted, "one round at a time"
    raft.receive(raft.now, "n3", AppendReply(1, True, 1, 0, wanted))
    assert raft.confirmed_round() == wanted


def test_an_old_reject_does_not_send_the_leader_back() -> None:
    raft = node(term=1, terms=(1, 1, 1))
    elect(raft)
    raft.receive(raft.now, "n2", AppendReply(2, True, 4, 3, 0))
    raft.receive(raft.now, "n2", AppendReply(2, False, 4, 2, 0))
    assert raft.peers["n2"].next == 5


def test_a_follower_that_lost_its_disk_counts_no_longer_and_is_served_from_the_start() -> None:
    raft = node(term=1, terms=(1, 1, 1))
    elect(raft)
    raft.receive(raft.now, "n2", AppendReply(2, True, 4, 3, 0))
    raft.collect()
    raft.receive(raft.now, "n2", AppendReply(2, False, 0, 4, 0))
    assert raft.peers["n2"].match == 0
    [append] = [message for name, message in raft.collect().now if name == "n2"]
    assert isinstance(append, Append)
    assert append.prev_index == 0
    assert len(append.entries) == 4
