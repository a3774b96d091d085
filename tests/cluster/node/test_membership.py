"""Members change one at a time; leadership moves on request (Ongaro 2014, chapters 3.10 and 4)."""

from __future__ import annotations

from cluster.node.commands import Configure, Grant
from cluster.node.members import Member, Members
from cluster.node.messages import Append, AppendReply, HardState, TimeoutNow, VoteRequest
from cluster.node.protocol import AddMember, MoveLeadership, Refused, RemoveMember
from cluster.node.raft import Persistent, Raft, Role, Timing
from cluster.node.raftlog import Entry
from tests.cluster.node.simulated import SimulatedCluster, SimulatedNode
from tests.cluster.node.test_core import Script, cluster, followers

VOTERS = Members.of_voters({"n1": "", "n2": "", "n3": ""})


class Admin(Script):
    def begin(self, request: AddMember | RemoveMember | MoveLeadership) -> None:
        self.client._open[request.id] = ("admin", "", self._then)
        self.client._transmit(request)

    def ask(self, request: AddMember | RemoveMember | MoveLeadership) -> tuple[str, int | None]:
        self.begin(request)
        return self.wait()

    def add(self, node: str) -> tuple[str, int | None]:
        return self.ask(AddMember(next(self.client._ids), Member(node, "", False)))

    def remove(self, node: str) -> tuple[str, int | None]:
        return self.ask(RemoveMember(next(self.client._ids), node))

    def move(self, node: str) -> tuple[str, int | None]:
        return self.ask(MoveLeadership(next(self.client._ids), node))


def join(net: SimulatedCluster, id: str) -> SimulatedNode:
    node = net.nodes[id] = SimulatedNode(net, id)
    node.start()
    return node


def members(net: SimulatedCluster) -> tuple[str, ...]:
    leader = net.await_leader()
    assert leader.core is not None
    return leader.core.raft.members.voters


def test_a_new_node_learns_before_it_votes() -> None:
    net = cluster()
    admin = Admin(net, 0, "n1")
    admin.acquire()
    joined = join(net, "n4")
    net.run_for(2000)
    assert joined.core is not None
    assert joined.core.raft.term == 0, "a node that belongs to no cluster starts no election"
    assert admin.add("n4")[0] == "ok"
    assert members(net) == ("n1", "n2", "n3", "n4")
    changes = [one.command.members for one in net.committed if isinstance(one.command, Configure)]
    assert [change.votes("n4") for change in changes] == [False, True]
    net.run_for(200)
    assert joined.core.table.holder("a") == 1


def test_rolling_replacement_of_every_node_keeps_locks_and_tokens() -> None:
    net = cluster()
    assert Script(net, 0, net.await_leader().id).acquire("kept", lease_ms=600_000) == ("ok", 1)
    for old, new in (("n1", "n4"), ("n2", "n5"), ("n3", "n6")):
        join(net, new)
        admin = Admin(net, 1, new)
        net.run_for(100)
        admin = Admin(net, 1, net.await_leader().id)
        assert admin.add(new)[0] == "ok"
        leader = net.await_leader()
        assert Admin(net, 2, leader.id).remove(old)[0] == "ok", (old, leader.id)
        net.run_for(1500)
        net.nodes[old].crash()
        net.await_leader()
    assert members(net) == ("n4", "n5", "n6")
    script = Script(net, 3, net.await_leader().id)
    assert script.inspect("kept") == ("ok", 1)
    assert script.acquire("next") == ("ok", 2)


def test_a_leader_can_remove_itself() -> None:
    net = cluster()
    old = net.await_leader()
    assert Admin(net, 0, old.id).remove(old.id)[0] == "ok"
    net.run_until(lambda: net.leader() not in (None, old), within_ms=5000)
    assert old.id not in members(net)
    term = net.await_leader().core.raft.term  # type: ignore[union-attr]
    net.run_for(5000)
    assert net.await_leader().core.raft.term == term, "the one that is gone disturbs nobody"  # type: ignore[union-attr]


def test_a_removal_that_is_asked_for_again_is_done_only_when_it_is_committed() -> None:
    """Whoever is told so may wipe that node, which is safe only then."""
    net = cluster()
    leader = net.await_leader()
    gone, other = followers(net)
    net.cuts |= {(leader.id, other), (other, leader.id), (leader.id, gone), (gone, leader.id)}
    first, again = Admin(net, 0, leader.id), Admin(net, 1, leader.id)
    for admin in (first, again):
        admin.begin(RemoveMember(next(admin.client._ids), gone))
    net.run_for(200)
    assert first.answer is again.answer is None, "nothing is committed without the other one"
    net.cuts.clear()
    assert first.wait() == again.wait() == ("ok", None)


def test_a_node_that_is_added_twice_votes_when_that_is_said() -> None:
    net = cluster()
    leader = net.await_leader().id
    join(net, "n4")
    net.cuts |= {(node, "n4") for node in net.nodes}
    first, again = Admin(net, 0, leader), Admin(net, 1, leader)
    for admin in (first, again):
        admin.begin(AddMember(next(admin.client._ids), Member("n4", "", False)))
        net.run_for(300)
    assert first.answer is again.answer is None, "nothing reaches it yet, so it can't vote"
    net.cuts.clear()
    assert first.wait() == again.wait() == ("ok", None)
    assert "n4" in members(net)


def test_the_last_voter_stays() -> None:
    net = cluster(1)
    assert Admin(net, 0, "n1").remove("n1")[0] == "fail"


def test_one_change_at_a_time_and_none_before_the_term_has_a_commit() -> None:
    raft = Raft("n1", VOTERS, lambda _: 0, 0, Persistent(HardState(1, None)), Timing())
    raft._become_leader()
    assert raft.propose_members(VOTERS.without("n3")) is None, "the no-op isn't committed"
    batch = raft.collect().persist
    assert batch is not None
    raft.persisted(0, batch)
    raft.receive(0, "n2", AppendReply(1, True, 1, 0, 0))
    assert raft.commit == 1
    assert raft.propose_members(VOTERS.without("n3")) is not None
    assert raft.propose_members(VOTERS.without("n2")) is None, "the first change isn't committed"
    assert set(raft.peers) == {"n2"}, "a configuration holds from the moment it is in the log"


def test_a_change_that_is_cut_from_the_log_never_was() -> None:
    raft = Raft("n1", VOTERS, lambda _: 0, 0, Persistent(HardState(1, None)), Timing())
    fewer = VOTERS.without("n3")
    raft.receive(0, "n2", Append(1, 0, 0, (Entry(1, 1, Configure(fewer)),), 0, 0))
    assert raft.members == fewer
    raft.receive(0, "n3", Append(2, 0, 0, (Entry(1, 2, Grant("a", 1000)),), 0, 0))
    assert raft.members == VOTERS


def test_leadership_moves_on_request_and_loses_nothing() -> None:
    net = cluster()
    old = net.await_leader()
    target = followers(net)[0]
    holder = Script(net, 0, target)
    assert holder.acquire() == ("ok", 1)
    started = net.now
    assert Admin(net, 1, old.id).move(target)[0] == "ok"
    net.run_until(lambda: (leader := net.leader()) is not None and leader.id == target, within_ms=2000)
    assert net.now - started < 100_000_000, "without waiting for an election timeout"
    assert holder.release(1) == ("ok", None)
    assert Admin(net, 2, target).move("n9")[0] == "fail"


def test_a_transfer_to_a_node_that_does_not_answer_is_given_up() -> None:
    net = cluster()
    leader = net.await_leader()
    dead = followers(net)[0]
    net.nodes[dead].crash()
    Script(net, 0, leader.id).acquire("before")
    assert Admin(net, 1, leader.id).move(dead)[0] == "ok"
    assert leader.core is not None
    net.run_for(50)
    assert leader.core.raft.transferring
    net.run_for(1000)
    assert Script(net, 2, leader.id).acquire("after")[0] == "ok"


def test_3_10_a_vote_that_the_leader_asked_for_is_not_refused_for_its_sake() -> None:
    raft = Raft("n1", VOTERS, lambda _: 0, 0, Persistent(HardState(1, None)), Timing())
    raft.receive(0, "n2", Append(1, 0, 0, (), 0, 0))
    raft.receive(0, "n3", VoteRequest(2, 0, 0, pre=False, transfer=True))
    assert raft.hard_state == HardState(2, "n3")
    raft.receive(0, "n3", TimeoutNow(1))
    assert raft.role is Role.FOLLOWER, "an order of an earlier term"
    raft.receive(0, "n3", TimeoutNow(2))
    assert (raft.role, raft.term) == (Role.CANDIDATE, 3)


def test_an_answer_says_why_a_change_can_not_begin() -> None:
    net = cluster()
    leader = net.await_leader()
    assert leader.core is not None
    net.isolate(leader.id)
    core = leader.core
    core.request(net.now, 70, RemoveMember(1, followers(net)[0]))
    core.request(net.now, 71, RemoveMember(1, followers(net)[1]))
    [(_, refused)] = core.collect(net.now).answers
    assert isinstance(refused, Refused)
    assert refused.error.startswith("busy: ")
