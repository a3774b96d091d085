"""The lock service of the pure core, in virtual time: DESIGN's decisions, one test each."""

from __future__ import annotations

from cluster.node.commands import Expired, Grant, Granted, Release, Released
from cluster.node.core import Core
from cluster.node.protocol import Acquire, Cancel, Forward, GrantedTo, Inspect, Session
from cluster.node.steward import ACK_WITHIN
from tests.cluster.node.simulated import SimulatedClient, SimulatedCluster


class Script:
    """Runs calls of one client, one after another, and keeps what they answered."""

    def __init__(self, cluster: SimulatedCluster, process: int, node: str) -> None:
        self.cluster = cluster
        self.client = SimulatedClient(cluster, process, node)
        self.answer: tuple[str, int | None] | None = None

    def _then(self, type: str, token: int | None) -> None:
        self.answer = (type, token)

    def wait(self, within_ms: int = 10_000) -> tuple[str, int | None]:
        self.cluster.run_until(lambda: self.answer is not None, within_ms)
        assert self.answer is not None
        answer, self.answer = self.answer, None
        return answer

    def acquire(self, key: str = "a", lease_ms: int = 5000, wait_ms: int = 0) -> tuple[str, int | None]:
        self.client.acquire(key, lease_ms, wait_ms, self._then)
        return self.wait()

    def queue(self, key: str = "a", lease_ms: int = 5000, wait_ms: int = 5000) -> int:
        return self.client.acquire(key, lease_ms, wait_ms, self._then)

    def release(self, token: int, key: str = "a") -> tuple[str, int | None]:
        self.client.release(key, token, self._then)
        return self.wait()

    def inspect(self, key: str = "a") -> tuple[str, int | None]:
        self.client.inspect(key, self._then)
        return self.wait()

    def error(self) -> str | None:
        return self.cluster.history[-1].error


def cluster(size: int = 3, seed: int = 1, core_type: type[Core] = Core) -> SimulatedCluster:
    made = SimulatedCluster(size, seed, core_type)
    made.await_leader()
    made.run_for(200)
    return made


def followers(of: SimulatedCluster) -> list[str]:
    leader = of.await_leader()
    return [node for node in of.nodes if node != leader.id]


def commands(of: SimulatedCluster) -> list[object]:
    return [one.command for one in of.committed]


def test_3_7_every_node_serves_every_client() -> None:
    net = cluster()
    for process, node in enumerate(net.nodes):
        script = Script(net, process, node)
        type, token = script.acquire(f"k{process}")
        assert (type, token) == ("ok", process + 1)
        assert script.inspect(f"k{process}") == ("ok", token)
        assert script.release(process + 1, f"k{process}") == ("ok", None)
        assert script.inspect(f"k{process}") == ("ok", None)


def test_refusals_are_held_and_not_held() -> None:
    net = cluster()
    one, other = (Script(net, i, node) for i, node in enumerate(followers(net)))
    assert one.acquire() == ("ok", 1)
    assert other.acquire() == ("fail", None)
    assert other.error() == "held"
    assert other.release(7) == ("fail", None)
    assert other.error() == "not-held"
    assert one.release(1) == ("ok", None)
    assert one.release(1) == ("fail", None)
    assert one.error() == "not-held"


def test_3_4_waiters_are_served_in_order_and_their_lease_starts_at_the_grant() -> None:
    net = cluster()
    holder = Script(net, 0, "n1")
    assert holder.acquire() == ("ok", 1)
    waiters = [Script(net, 1 + i, "n2") for i in range(3)]
    for waiter in waiters:
        waiter.queue(lease_ms=1000, wait_ms=60_000)
        net.run_for(50)
    net.run_for(3000)
    holder.release(1)
    granted_at = net.now
    assert waiters[0].wait() == ("ok", 2)
    assert waiters[1].wait() == ("ok", 3), "when the lease of the first is over"
    assert 990 <= (net.now - granted_at) / 1e6 <= 1100
    waiters[1].client.release("a", 3, waiters[1]._then)
    assert waiters[2].wait() == ("ok", 4)


def test_3_4_a_waiter_whose_time_is_over_leaves_the_queue() -> None:
    net = cluster()
    holder, patient, hasty = (Script(net, i, "n2") for i in range(3))
    holder.acquire()
    hasty.queue(wait_ms=300)
    net.run_for(20)
    patient.queue(wait_ms=60_000)
    assert hasty.wait() == ("fail", None)
    assert hasty.error() == "timeout"
    holder.release(1)
    assert patient.wait() == ("ok", 2)


def test_3_4_giving_up_is_a_question_with_a_definite_answer() -> None:
    net = cluster()
    node = followers(net)[0]
    holder, waiter = Script(net, 0, node), Script(net, 1, node)
    holder.acquire()
    id = waiter.queue(wait_ms=60_000)
    net.run_for(50)
    waiter.client._transmit(Cancel(id))
    assert waiter.wait() == ("fail", None)
    assert waiter.error() == "cancelled"
    id = waiter.queue(wait_ms=60_000)
    net.run_for(50)
    holder.release(1)
    waiter.client._transmit(Cancel(id))
    assert waiter.wait() == ("ok", 2), "it had been granted after all"


def test_3_4_giving_up_without_a_leader_to_ask_has_no_definite_answer() -> None:
    """The acquire is on its way to a leader behind the cut, and takes effect when the link is mended."""
    net = cluster()
    node = followers(net)[0]
    waiter = Script(net, 1, node)
    id = waiter.queue(wait_ms=60_000)
    net.run_for(10)
    net.isolate(node)
    core = net.nodes[node].core
    assert core is not None
    net.run_until(lambda: core.raft.leader is None)
    waiter.client._transmit(Cancel(id))
    assert waiter.wait() == ("info", None)
    assert waiter.error() == "leader-lost"


def test_3_4_a_dead_waiter_at_the_head_blocks_nobody() -> None:
    net = cluster()
    holder, dead, patient = (Script(net, i, "n2") for i in range(3))
    holder.acquire()
    dead.queue()
    net.run_for(20)
    patient.queue()
    net.run_for(20)
    dead.client.close()
    net.run_for(20)
    holder.release(1)
    assert patient.wait(200) == ("ok", 2)


def test_3_5_a_grant_whose_client_went_away_is_released_at_once() -> None:
    for node in ("n1", "n2", "n3"):
        for delay in (0, 1, 3, 20):
            net = cluster(seed=delay)
            ghost = Script(net, 0, node)
            ghost.client.acknowledges = False
            ghost.queue(lease_ms=60_000, wait_ms=0)
            net.run_for(delay)
            ghost.client.close()
            net.run_for(100)
            assert Script(net, 1, "n1").inspect() == ("ok", None), (node, delay)
            assert commands(net)[1:] in ([], [Grant("a", 60_000), Release("a")])


def test_3_5_a_silent_client_loses_the_grant_and_can_not_acknowledge_it_later() -> None:
    net = cluster()
    silent = Script(net, 0, "n2")
    silent.client.acknowledges = False
    silent.queue(lease_ms=60_000, wait_ms=0)
    net.run_for(ACK_WITHIN // 1_000_000 + 100)
    assert silent.answer == ("info", None)
    assert Script(net, 1, "n1").acquire() == ("ok", 2)


def test_3_5_an_acknowledged_lock_is_not_tied_to_the_connection() -> None:
    net = cluster()
    holder = Script(net, 0, "n2")
    assert holder.acquire(lease_ms=3000) == ("ok", 1)
    holder.client.close()
    net.run_for(2500)
    assert Script(net, 1, "n1").inspect() == ("ok", 1)
    net.run_for(600)
    assert Script(net, 1, "n1").inspect() == ("ok", None)


def test_3_5_a_node_that_falls_silent_takes_its_waiters_with_it() -> None:
    net = cluster()
    one, other = followers(net)
    holder, lost, patient = Script(net, 0, one), Script(net, 1, other), Script(net, 2, one)
    holder.acquire(lease_ms=60_000)
    lost.queue(wait_ms=60_000)
    net.run_for(20)
    patient.queue(wait_ms=60_000)
    net.run_for(20)
    net.isolate(other)
    net.run_for(2000)
    holder.release(1)
    assert patient.wait(500) == ("ok", 2)


def test_3_6_a_lease_is_never_shorter_than_asked_and_ends_soon_after() -> None:
    net = cluster()
    holder, other = Script(net, 0, "n1"), Script(net, 1, "n2")
    net.run_for(10)
    asked = net.now
    assert holder.acquire(lease_ms=700) == ("ok", 1)
    other.queue(wait_ms=10_000)
    assert other.wait() == ("ok", 2)
    assert 700 <= (net.now - asked) / 1e6 <= 760
    assert [one.result for one in net.committed if isinstance(one.result, Expired)] == [Expired(existed=True)]


def test_3_6_a_change_of_leader_does_not_restart_the_lease() -> None:
    net = cluster(5)
    assert Script(net, 0, "n1").acquire(lease_ms=4000) == ("ok", 1)
    granted = net.now
    net.run_for(200)
    for _ in range(2):
        net.await_leader().crash()
        net.run_for(1600)
    other = Script(net, 1, net.await_leader().id)
    while other.acquire()[0] != "ok":
        net.run_for(10)
    assert 3990 <= (net.now - granted) / 1e6 < 4300


def test_3_6_a_deposed_leader_does_not_say_held_from_memory() -> None:
    net = cluster()
    old = net.await_leader()
    holder, asker = Script(net, 0, old.id), Script(net, 1, old.id)
    assert holder.acquire() == ("ok", 1)
    net.isolate(old.id)
    asker.queue(wait_ms=0)
    assert asker.wait() == ("fail", None)
    assert asker.error() == "leader-changed"


def test_3_3_a_new_leader_answers_nothing_before_its_noop_is_applied() -> None:
    net = cluster()
    node = followers(net)[0]
    assert Script(net, 0, node).acquire(lease_ms=60_000) == ("ok", 1)
    net.await_leader().crash()
    asker = Script(net, 1, node)
    for _ in range(1000):
        if (answer := asker.inspect())[0] == "ok":
            break
    assert answer == ("ok", 1)


def test_3_3_the_projection_is_the_state_after_the_whole_log() -> None:
    """A release and the next grant are proposed before either is applied; a second release meets the new holder."""
    net = cluster()
    leader = net.await_leader()
    scripts = [Script(net, i, leader.id) for i in range(3)]
    assert scripts[0].acquire() == ("ok", 1)
    scripts[1].queue()
    net.run_for(20)
    net.cuts |= {(follower, leader.id) for follower in followers(net)}
    scripts[0].client.release("a", 1, scripts[0]._then)
    scripts[2].client.release("a", 1, scripts[2]._then)
    net.run_for(50)
    assert leader.core is not None
    last = leader.core.raft.log.last_index
    assert [entry.command for entry in leader.core.raft.log.between(last - 1, last)] == [Release("a"), Grant("a", 5000)]
    net.cuts.clear()
    assert scripts[1].wait() == ("ok", 2)
    assert {scripts[0].wait(), scripts[2].wait()} == {("ok", None), ("fail", None)}
    assert [one.result for one in net.committed[-3:]] == [Granted(1), Released(), Granted(2)]


def test_3_7_a_client_may_ask_for_no_forwarding_and_learns_who_leads() -> None:
    net = cluster()
    core = net.nodes[followers(net)[0]].core
    assert core is not None
    core.request(net.now, 77, Inspect(1, "a", forward=False))
    [(number, refused)] = core.collect(net.now).answers
    assert (number, refused.error, refused.leader) == (77, "not-leader", net.await_leader().id)  # type: ignore[union-attr]


def test_3_7_a_forwarded_request_is_never_proposed_twice() -> None:
    net = cluster()
    leader = net.await_leader()
    assert leader.core is not None
    session = Session(followers(net)[0], 1, 50)
    for _ in range(3):
        leader.input(lambda core: core.receive(net.now, session.node, Forward(session, Acquire(1, "a", 5000, 0))))
    net.run_for(100)
    assert commands(net).count(Grant("a", 5000)) == 1


def test_a_node_does_not_speak_for_the_clients_of_another() -> None:
    net = cluster()
    leader = net.await_leader()
    one, other = followers(net)
    forged = Forward(Session(one, 1, 50), Acquire(1, "a", 5000, 0))
    leader.input(lambda core: core.receive(net.now, other, forged))
    net.run_for(100)
    assert Grant("a", 5000) not in commands(net)


def test_a_grant_for_a_client_that_its_node_does_not_know_is_taken_back() -> None:
    """The node restarted, or the word that the client left was lost."""
    net = cluster()
    leader = net.await_leader()
    session = Session(followers(net)[0], 1, 50)
    leader.input(lambda core: core.receive(net.now, session.node, Forward(session, Acquire(1, "a", 60_000, 0))))
    net.run_for(100)
    assert commands(net)[-2:] == [Grant("a", 60_000), Release("a")]


def test_3_9_bad_requests_are_refused_and_change_nothing() -> None:
    net = cluster()
    core = net.await_leader().core
    assert core is not None
    for request in (
        Acquire(1, "", 1000, 0),
        Acquire(2, "k" * 513, 1000, 0),
        Acquire(3, "a", 0, 0),
        Acquire(4, "a", 10**9, 0),
        Acquire(5, "a", 1000, -1),
        Acquire(6, "a", 1000, 10**9),
    ):
        core.request(net.now, 77, request)
        [(_, refused)] = core.collect(net.now).answers
        assert not isinstance(refused, GrantedTo)
        assert refused.error.startswith("bad-request: ")  # type: ignore[union-attr]
    assert core.raft.log.last_index == 1


def test_a_leader_that_was_paused_steps_down_before_it_answers() -> None:
    net = cluster()
    old = net.await_leader()
    asker = Script(net, 0, old.id)
    old.pause()
    asker.client.inspect("a", asker._then)
    net.run_for(1500)
    assert net.await_leader().id != old.id
    old.resume()
    assert asker.wait()[0] != "ok"


def test_a_leader_that_lost_its_grant_says_unknown_and_one_never_proposed_says_no() -> None:
    net = cluster()
    old = net.await_leader()
    holder, queued, proposed = (Script(net, i, old.id) for i in range(3))
    assert holder.acquire("a") == ("ok", 1)
    queued.queue("a")
    net.run_for(20)
    net.isolate(old.id)
    proposed.queue("b", wait_ms=0)
    assert queued.wait() == ("fail", None)
    assert proposed.wait() == ("info", None)


def test_a_single_node_is_a_cluster() -> None:
    net = cluster(1)
    script = Script(net, 0, "n1")
    assert script.acquire() == ("ok", 1)
    assert script.acquire() == ("fail", None)
    assert script.inspect() == ("ok", 1)
    net.nodes["n1"].crash()
    net.nodes["n1"].start()
    net.await_leader()
    assert Script(net, 1, "n1").inspect() == ("ok", 1)


def test_a_copy_that_comes_when_its_node_was_given_up_is_still_a_copy() -> None:
    """A waiter is refused because its node fell silent; a second copy of its request must not be granted later."""
    net = cluster()
    leader = net.await_leader()
    one, other = followers(net)
    holder = Script(net, 0, one)
    assert holder.acquire(lease_ms=60_000) == ("ok", 1)
    forward = Forward(Session(other, net.nodes[other].life, 50), Acquire(1, "a", 60_000, 60_000))
    leader.input(lambda core: core.receive(net.now, other, forward))
    net.isolate(other)
    net.run_for(2000)
    assert holder.release(1) == ("ok", None)
    net.cuts.clear()
    leader.input(lambda core: core.receive(net.now, other, forward))
    net.run_for(200)
    assert commands(net)[-1] == Release("a")
