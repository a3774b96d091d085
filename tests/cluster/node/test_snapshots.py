"""Snapshots: the log stays bounded, and a snapshot replaces the state, whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.node import progress
from cluster.node.commands import Grant
from cluster.node.locks import Hold, LockTable
from cluster.node.members import Members
from cluster.node.messages import Batch, Compaction, HardState, Snapshot
from cluster.node.raftlog import Entry
from cluster.node.snapshots import pack_state, unpack_state
from cluster.node.storage import Storage
from tests.cluster.node.simulated import SimulatedCluster
from tests.cluster.node.test_core import Script, followers

MEMBERS = Members.of_voters({"n1": "", "n2": ""})


def cycles(script: Script, count: int) -> int:
    token = None
    for _ in range(count):
        type, token = script.acquire("busy")
        assert type == "ok"
        assert script.release(token or 0, "busy")[0] == "ok"
    return token or 0


def test_the_log_stays_bounded_and_a_restart_begins_from_the_snapshot() -> None:
    net = SimulatedCluster(3, seed=1, snapshot_every=50)
    leader = net.await_leader()
    script = Script(net, 0, leader.id)
    script.acquire("kept", lease_ms=600_000)
    last = cycles(script, 200)
    for node in net.nodes.values():
        assert node.core is not None
        assert node.core.raft.log.last_index - node.core.raft.log.base_index <= 50 + 25 + 10
        assert len(node.disk.entries) <= 50 + 25 + 10
    for node in net.nodes.values():
        node.crash()
    for node in net.nodes.values():
        node.start()
        assert node.core is not None
        assert node.core.applied >= 350
    script = Script(net, 1, net.await_leader().id)
    assert script.inspect("kept") == ("ok", 1)
    assert script.acquire("next") == ("ok", last + 1)
    assert net.leader().core.counters["grants"] == last + 1  # type: ignore[union-attr]


def test_snapshot_hole_a_wiped_follower_that_leads_issues_no_token_twice() -> None:
    """Everything is released, a follower is wiped, gets the snapshot, and leads (jgroups-raft 301, rqlite 2759)."""
    net = SimulatedCluster(3, seed=2, snapshot_every=40)
    last = cycles(Script(net, 0, net.await_leader().id), 60)
    wiped = net.nodes[followers(net)[0]]
    wiped.crash()
    wiped.disk = type(wiped.disk)(node=wiped.id)
    wiped.start()
    net.run_for(1000)
    assert wiped.core is not None
    assert wiped.core.applied == len(net.committed)
    assert wiped.core.table.last_token == last
    others = [node for node in net.nodes.values() if node is not wiped]
    net.await_leader().core.raft.transfer(wiped.id)  # type: ignore[union-attr]
    net.run_until(lambda: net.leader() is wiped)
    assert others
    assert Script(net, 1, wiped.id).acquire("a") == ("ok", last + 1)


def test_a_large_snapshot_travels_in_chunks_over_a_lossy_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "CHUNK_BYTES_MAX", 100)
    net = SimulatedCluster(3, seed=3, snapshot_every=60)
    leader = net.await_leader()
    behind = net.nodes[followers(net)[0]]
    net.isolate(behind.id)
    script = Script(net, 0, leader.id)
    for i in range(60):
        assert script.acquire(f"key-{i:050}", lease_ms=600_000)[0] == "ok"
    cycles(script, 50)
    net.cuts.clear()
    net.loss = net.copies = 0.1
    net.run_until(lambda: behind.core is not None and behind.core.applied >= 160, within_ms=120_000)
    assert behind.core is not None
    assert leader.core is not None
    assert len(behind.core.table.held) == 60
    assert behind.core.raft.snapshot is not None


def test_timer_lost_on_failover_a_leader_from_a_snapshot_ends_the_leases_in_it() -> None:
    """rabbitmq/ra 207, juju 13452: kill the leader inside a lease, then lead from the snapshot."""
    net = SimulatedCluster(3, seed=4, snapshot_every=20)
    leader = net.await_leader()
    script = Script(net, 0, leader.id)
    assert script.acquire("a", lease_ms=4000) == ("ok", 1)
    cycles(script, 30)
    for node in net.nodes.values():
        node.crash()
        node.start()
    restarted = net.now
    net.await_leader()
    asker = Script(net, 1, net.await_leader().id)
    asker.queue("a", wait_ms=20_000)
    assert asker.wait(20_000)[0] == "ok"
    assert 4000 <= (net.now - restarted) / 1e6 < 5500, "the full lease again, from the restart on, and no more"


def test_the_token_counter_is_part_of_the_state_and_counters_go_on() -> None:
    table = LockTable({"a": Hold(7, 1000)}, 12)
    restored, counters = unpack_state(pack_state(table, {"grants": 12, "releases": 5, "expiries": 6}), LockTable)
    assert restored == table
    assert counters == {"grants": 12, "releases": 5, "expiries": 6}


def entry(index: int, term: int = 1) -> Entry:
    return Entry(index, term, Grant(f"k{index}", 1000))


def test_a_compaction_on_disk_is_read_back(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "n1")
    storage.write([Batch(HardState(2, "n1"), tuple(map(entry, range(1, 8))))])
    snapshot = Snapshot(5, 1, MEMBERS, b"state")
    storage.write(
        [Batch(None, (entry(8),)), Batch(None, (), Compaction(snapshot, 4, 1, tuple(map(entry, range(5, 9)))))]
    )
    storage.write([Batch(None, (entry(9),))])
    storage.close()
    reopened = Storage(tmp_path, "n1")
    assert reopened.found.hard_state == HardState(2, "n1")
    assert reopened.found.snapshot == snapshot
    assert (reopened.found.base_index, reopened.found.base_term) == (4, 1)
    assert list(reopened.found.entries) == list(map(entry, range(5, 10)))
    reopened.close()
