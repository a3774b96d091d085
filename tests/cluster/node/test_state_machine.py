"""Hypothesis drives a cluster of cores: it finds the order of steps, shrinks it, and the invariants hold after each.

Raft's (Ongaro 2014, figure 3.2) are asserted in `SimulatedCluster.observe`, with those of the locks: tokens are dense,
one expiry removes a lock once. Here, at each step besides: the logs match, and no lock went away without a cause.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import checker
from cluster.node.commands import Expire, Expired, Grant, Granted, Release, Released
from cluster.node.members import Member
from cluster.node.protocol import AddMember, RemoveMember
from tests.cluster.node.simulated import SimulatedClient, SimulatedCluster, SimulatedNode, check_log_matching

SAFETY = ("linearizable", "mutual-exclusion", "fencing")

nodes = st.integers(0, 4)
keys = st.sampled_from("ab")


class ClusterMachine(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**16), size=st.sampled_from((1, 3, 5)))
    def start(self, seed: int, size: int) -> None:
        self.net = SimulatedCluster(size, seed, snapshot_every=10)
        self.processes = 0
        self.grants: list[tuple[str, int]] = []
        self.asked_to_release: set[tuple[str, int]] = set()
        self.checked = 0
        self.held: dict[str, int] = {}
        self.admin: SimulatedClient | None = None

    def node(self, number: int) -> SimulatedNode:
        names = list(self.net.nodes)
        return self.net.nodes[names[number % len(names)]]

    def client(self, number: int) -> SimulatedClient:
        self.processes += 1
        return SimulatedClient(self.net, self.processes, self.node(number).id)

    @rule(ms=st.sampled_from((1, 5, 20, 100, 600, 1500)))
    def wait(self, ms: int) -> None:
        self.net.run_for(ms)

    @rule(at=nodes, key=keys, lease_ms=st.sampled_from((100, 1000, 30_000)), wait_ms=st.sampled_from((0, 500, 20_000)))
    def acquire(self, at: int, key: str, lease_ms: int, wait_ms: int) -> None:
        def done(type: str, token: int | None) -> None:
            if type == "ok" and token is not None:
                self.grants.append((key, token))

        self.client(at).acquire(key, lease_ms, wait_ms, done)

    @rule(at=nodes, key=keys, wait_ms=st.sampled_from((0, 20_000)), delay_ms=st.sampled_from((0, 2, 5, 20)))
    def acquire_and_vanish(self, at: int, key: str, wait_ms: int, delay_ms: int) -> None:
        client = self.client(at)
        client.acknowledges = delay_ms != 5
        client.acquire(key, 30_000, wait_ms, lambda *_: None)
        self.net.after(delay_ms * 1_000_000, client.close)

    @rule(at=nodes, which=st.integers(0, 3))
    def release(self, at: int, which: int) -> None:
        if self.grants:
            key, token = self.grants[-1 - which % len(self.grants)]
            self.asked_to_release.add((key, token))
            self.client(at).release(key, token, lambda *_: None)

    @rule(at=nodes, key=keys)
    def inspect(self, at: int, key: str) -> None:
        self.client(at).inspect(key, lambda *_: None)

    @rule(at=nodes)
    def crash(self, at: int) -> None:
        if self.node(at).core is not None:
            self.node(at).crash()

    @rule(at=nodes)
    def restart(self, at: int) -> None:
        if self.node(at).core is None:
            self.node(at).start()

    @rule(at=nodes)
    def pause(self, at: int) -> None:
        if self.node(at).core is not None:
            self.node(at).pause()

    @rule(at=nodes)
    def resume(self, at: int) -> None:
        self.node(at).resume()

    @rule(at=nodes)
    def isolate(self, at: int) -> None:
        self.net.isolate(self.node(at).id)

    @rule(source=nodes, towards=nodes)
    def cut(self, source: int, towards: int) -> None:
        if source % len(self.net.nodes) != towards % len(self.net.nodes):
            self.net.cuts.add((self.node(source).id, self.node(towards).id))

    @rule()
    def mend(self) -> None:
        self.net.cuts.clear()
        self.net.loss = self.net.copies = 0.0

    @rule()
    def disturb(self) -> None:
        self.net.loss = self.net.copies = 0.2

    @rule(to=nodes)
    def move_leadership(self, to: int) -> None:
        leader = self.net.leader()
        if leader is not None and leader.paused is None and leader.core is not None and leader.core.leads:
            target = self.node(to).id
            if target != leader.id and leader.core.raft.members.votes(target):
                leader.input(lambda core: core.leads and core.raft.transfer(target))

    @rule(at=nodes)
    def add_node(self, at: int) -> None:
        if len(self.net.nodes) < 6:
            joined = SimulatedNode(self.net, f"n{len(self.net.nodes) + 1}")
            self.net.nodes[joined.id] = joined
            joined.start()
            self.change(at, AddMember(1, Member(joined.id, "", False)))

    @rule(at=nodes, which=nodes)
    def remove_node(self, at: int, which: int) -> None:
        self.change(at, RemoveMember(1, self.node(which).id))

    def change(self, at: int, request: AddMember | RemoveMember) -> None:
        self.client(at)._transmit(request)

    @invariant()
    def logs_match(self) -> None:
        if hasattr(self, "net"):
            check_log_matching(self.net)

    @invariant()
    def no_lock_goes_without_a_cause(self) -> None:
        if not hasattr(self, "net"):
            return
        for one in self.net.committed[self.checked :]:
            match one.command, one.result:
                case Grant(key), Granted(token):
                    assert key not in self.held, "at most one holder"
                    self.held[key] = token
                case Release(key), Released():
                    token = self.held.pop(key)
                    believed = (key, token) in self.grants
                    assert not believed or (key, token) in self.asked_to_release, f"{token} was taken from its holder"
                case Expire(key, token), Expired(existed=True):
                    assert self.held.pop(key) == token
        self.checked = len(self.net.committed)

    def teardown(self) -> None:
        if not hasattr(self, "net"):
            return
        self.net.cuts.clear()
        self.net.loss = self.net.copies = 0.0
        for node in self.net.nodes.values():
            node.resume()
            if node.core is None:
                node.start()
        self.net.run_for(6000)
        if self.net.history:
            results = checker.check(self.net.history, SAFETY, checker.Options(tokens_span_keys=True))
            assert results.verdict == "valid", results.to_dict()["claims"]
        leader = self.net.leader()
        assert leader is not None, "healed, the cluster serves again"
        assert leader.core is not None
        assert leader.core.applied >= leader.core.raft.term_start


ClusterMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
TestCluster = ClusterMachine.TestCase
