"""Bugs that other lock services had, as stories in virtual time that must end well here."""

from __future__ import annotations

import pytest

import checker
from cluster.node.commands import Expired, Grant
from tests.cluster.node.simulated import SimulatedClient, SimulatedCluster
from tests.cluster.node.test_core import Script, cluster, commands, followers

SAFETY = ("linearizable", "mutual-exclusion", "fencing")


def assert_safe(net: SimulatedCluster) -> None:
    results = checker.check(net.history, SAFETY, checker.Options(tokens_span_keys=True))
    assert results.verdict == "valid", results.to_dict()["claims"]


def test_lease_reset_on_failover() -> None:
    """Leaders die every half lease, six times (etcd 9395, 17132): the lock must end in time all the same."""
    net = cluster(5)
    assert Script(net, 0, "n1").acquire(lease_ms=4000) == ("ok", 1)
    granted = net.now
    net.run_for(200)
    for _ in range(6):
        leader = net.await_leader()
        leader.crash()
        net.run_for(1800)
        leader.start()
    net.run_for(200)
    ended = [one for one in net.committed if one.result == Expired(existed=True)]
    assert ended
    assert Script(net, 1, net.await_leader().id).inspect() == ("ok", None)
    assert net.now - granted > 10_000_000_000
    assert_safe(net)


def test_waiter_outlives_lease() -> None:
    """B queues with a 2 s lease behind a holder of 6 s (etcd 11456): its lease starts when it gets the lock."""
    net = cluster()
    a, b, c = (Script(net, i, "n2") for i in range(3))
    a.acquire(lease_ms=60_000)
    b.queue(lease_ms=2000, wait_ms=10_000)
    net.run_for(6000)
    a.release(1)
    assert b.wait() == ("ok", 2)
    net.run_for(50)
    assert c.acquire() == ("fail", None)
    assert_safe(net)


def test_release_retry_steals_nothing() -> None:
    """A's release commits, its answer is lost, B acquires, A tries again (etcd 22082, ShedLock 74)."""
    net = cluster()
    leader, (one, other) = net.await_leader(), followers(net)
    a, again, b, c = Script(net, 0, one), Script(net, 1, other), Script(net, 2, leader.id), Script(net, 3, leader.id)
    a.acquire(lease_ms=60_000)
    net.run_for(50)
    net.cuts |= {(leader.id, one)}
    a.client.release("a", 1, a._then)
    net.run_for(50)
    net.cuts.clear()
    assert b.acquire(lease_ms=60_000) == ("ok", 2)
    assert again.release(1) == ("fail", None)
    assert c.acquire() == ("fail", None)
    assert_safe(net)


@pytest.mark.parametrize("lose_unsynced", [False, True])
@pytest.mark.parametrize("starts_ms", [(0, 0, 0), (0, 100, 800)])
def test_cold_restart(starts_ms: tuple[int, ...], lose_unsynced: bool) -> None:
    """All nodes die at once and start apart (PySyncObj 202, 84, etcd 14370): no token twice, no grant lost."""
    net = cluster()
    script = Script(net, 0, "n1")
    tokens = [script.acquire(f"k{i}", lease_ms=600_000)[1] for i in range(10)]
    for node in net.nodes.values():
        if not lose_unsynced:
            node._synced(node.life)
        node.crash()
    for node, start_ms in zip(net.nodes.values(), starts_ms, strict=True):
        net.after(start_ms * 1_000_000, node.start)
    net.run_for(3000)
    asker = Script(net, 1, net.await_leader().id)
    assert [asker.inspect(f"k{i}")[1] for i in range(10)] == tokens
    assert asker.acquire("next") == ("ok", 11)
    assert_safe(net)


@pytest.mark.parametrize("offset_ms", range(-20, 21, 4))
def test_waiter_timeout_race(offset_ms: int) -> None:
    """The wait ends around the very moment of the release (atomix 500): held by nobody must not happen."""
    net = cluster(seed=offset_ms + 100)
    holder, waiter, last = Script(net, 0, "n1"), Script(net, 1, "n2"), Script(net, 2, "n3")
    holder.acquire(lease_ms=60_000)
    waiter.queue(lease_ms=60_000, wait_ms=500)
    net.run_for(500 + offset_ms)
    holder.client.release("a", 1, holder._then)
    outcome, token = waiter.wait()
    assert outcome in ("ok", "fail")
    if outcome == "ok":
        assert waiter.release(token or 0) == ("ok", None)
    net.run_for(100)
    assert last.acquire()[0] == "ok"
    assert_safe(net)


def test_mixed_leases() -> None:
    """Short leases beside long ones end when they should (atlasdb 743, kubernetes 47671)."""
    net = cluster()
    script = Script(net, 0, "n2")
    for i in range(20):
        script.acquire(f"short-{i}", lease_ms=1000)
        script.acquire(f"long-{i}", lease_ms=120_000)
    net.run_for(1200)
    assert {script.inspect(f"short-{i}")[1] for i in range(20)} == {None}
    assert None not in {script.inspect(f"long-{i}")[1] for i in range(20)}
    assert_safe(net)


def test_mass_expiry_of_5000_leases() -> None:
    """All of them end together (etcd 10686), and the service goes on."""
    net = SimulatedCluster(3, seed=1, snapshot_every=1000)
    leader = net.await_leader()
    net.run_for(200)
    clients = [SimulatedClient(net, i, leader.id) for i in range(100)]
    granted = 0

    def count(type: str, _: int | None) -> None:
        nonlocal granted
        granted += type == "ok"

    for i in range(5000):
        clients[i % 100].acquire(f"key-{i}", 20_000, 0, count)
    net.run_until(lambda: granted == 5000, within_ms=15_000)
    last_grant = net.now
    assert leader.core is not None
    net.run_until(lambda: leader.core is not None and not leader.core.table.held, within_ms=30_000)
    assert 19_990 <= (net.now - last_grant) / 1e6 <= 21_000
    assert len(net.expired) == 5000
    assert Script(net, 999, leader.id).acquire("after")[0] == "ok"


def test_late_ghost_release() -> None:
    """Ghosts, short leases, a slow leader, leadership moved all the time: no clean-up may hit a later holder."""
    net = cluster(5)
    nodes = list(net.nodes)
    for i in range(150):
        ghost = Script(net, 10 + i, nodes[i % 5])
        ghost.client.acknowledges = i % 3 == 0
        ghost.queue(lease_ms=200, wait_ms=300)
        net.run_for(net.random.randrange(1, 30))
        ghost.client.close()
        leader = net.leader()
        if i % 25 == 24 and leader is not None:
            leader.pause()
            net.after(net.random.randrange(150, 400) * 1_000_000, leader.resume)
        if i % 40 == 39 and leader is not None and leader.core is not None and leader.core.leads:
            leader.core.raft.transfer(nodes[(nodes.index(leader.id) + 1) % 5])
    net.run_for(3000)
    assert commands(net).count(Grant("a", 200)) > 10
    assert Script(net, 999, net.await_leader().id).acquire()[0] == "ok"
    assert_safe(net)


def test_rejoin_without_disturbance() -> None:
    """A node that was cut off for long comes back, again and again (etcd 9241), and nobody loses the lead."""
    net = cluster(5)
    leader = net.await_leader()
    term = leader.core.raft.term if leader.core else 0
    outcast = followers(net)[0]
    for _ in range(5):
        net.isolate(outcast)
        net.run_for(6000)
        net.cuts.clear()
        net.run_for(1000)
    assert net.await_leader() is leader
    assert leader.core is not None
    assert leader.core.raft.term == term
