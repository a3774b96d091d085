"""A cluster of cores in virtual time: messages, fsyncs, crashes and pauses are events in one heap, drawn from one seed.

After every step the invariants of Raft (Ongaro 2014, figure 3.2) and of the locks are asserted over all nodes.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checker.history import Event
from cluster.node.commands import Command, Expired, Granted
from cluster.node.core import Applied, Core
from cluster.node.leases import MS
from cluster.node.members import Members
from cluster.node.messages import Batch
from cluster.node.protocol import (
    Ack,
    Acquire,
    Answer,
    Confirmed,
    Done,
    GrantedTo,
    Holder,
    Inspect,
    LockRequest,
    Refused,
    ReleaseToken,
    Unknown,
)
from cluster.node.raft import Role
from cluster.node.raftlog import Entry
from cluster.node.storage import Contents, Record, log_anew


class SimulatedNode:
    """One node: a core that comes and goes, and a disk that stays. Unsynced batches are lost in a crash."""

    def __init__(self, cluster: SimulatedCluster, id: str) -> None:
        self.cluster, self.id = cluster, id
        self.core: Core | None = None
        self.paused: deque[Callable[[], None]] | None = None
        self.disk = Contents(node=id)
        self.life = 0
        self._writing: deque[tuple[Batch | None, list[Any]]] = deque()
        self._timer = 0

    def start(self) -> None:
        cluster = self.cluster
        self.life += 1
        self._writing.clear()
        # Mutants may look at a wall clock. It is the simulation's, so that a seed says all, and a slow one, so that
        # more than one thing happens within what it can tell apart.
        wall = {"wall": lambda: cluster.now // 1000} if getattr(cluster.core_type, "needs_wall_clock", False) else {}
        self.core = cluster.core_type(
            id=self.id,
            members=cluster.members if self.id in cluster.members else Members(()),
            incarnation=self.life,
            draw=cluster.random.randrange,
            now=cluster.now,
            found=self.disk.persistent(),
            snapshot_every=cluster.snapshot_every,
            **wall,
        )
        self.flush()

    def crash(self) -> None:
        self.core, self.paused = None, None
        self.life += 1
        self.cluster.connections_of(self.id)

    def pause(self) -> None:
        if self.paused is None:
            self.paused = deque()

    def resume(self) -> None:
        waiting, self.paused = self.paused or (), None
        for step in waiting:
            step()

    def input(self, step: Callable[[Core], None]) -> None:
        """Give the core an input, now or once it is resumed; a dead node takes none."""

        def run() -> None:
            if self.core is not None:
                step(self.core)
                self.flush()

        if self.paused is not None:
            self.paused.append(run)
        else:
            run()

    def flush(self) -> None:
        assert self.core is not None
        cluster, out = self.cluster, self.core.collect(self.cluster.now)
        self._send(out.now)
        for number, answer in out.answers:
            cluster.to_client(self.id, number, answer)
        if out.persist is not None or (out.after_persist and self._writing):
            self._writing.append((out.persist, out.after_persist))
            if len(self._writing) == 1:
                self._fsync_later()
        else:
            self._send(out.after_persist)
        if cluster.watch:
            cluster.observe(self, out.applied)
        self._timer += 1
        timer, life = self._timer, self.life
        cluster.at(max(self.core.deadline(), cluster.now), lambda: self._tick(timer, life))

    def _tick(self, timer: int, life: int) -> None:
        if (timer, life) == (self._timer, self.life):
            self.input(lambda core: core.tick(self.cluster.now))

    def _fsync_later(self) -> None:
        life = self.life
        self.cluster.after(self.cluster.random.randrange(1, 6) * MS, lambda: self._synced(life))

    def _synced(self, life: int) -> None:
        if life != self.life:
            return

        def done(core: Core) -> None:
            items, self._writing = self._writing, deque()
            for batch, sends in items:
                if batch is not None:
                    self._save(batch)
                    core.persisted(self.cluster.now, batch)
                self._send(sends)

        self.input(done)

    def _save(self, batch: Batch) -> None:
        records: list[Record] = list(batch.entries)
        if batch.hard_state is not None:
            records.insert(0, batch.hard_state)
        if batch.compaction is not None:
            state = batch.hard_state or self.disk.hard_state
            self.disk, records = Contents(), log_anew(self.id, state, batch.compaction)
        for record in records:
            self.disk.take(record, Path("log"))

    def _send(self, messages: list[Any]) -> None:
        for target, message in messages:
            self.cluster.transmit(self.id, target, message)


class SimulatedClient:
    """A client pinned to one node, as the client library behaves; records a history."""

    def __init__(self, cluster: SimulatedCluster, process: int, node: str) -> None:
        self.cluster, self.process, self.node = cluster, process, node
        self.number = next(cluster.numbers)
        cluster.clients[self.number] = self
        self._ids = itertools.count(1)
        self._open: dict[int, tuple[str, str, Callable[[str, int | None], None]]] = {}
        self._tokens: dict[int, int] = {}
        self.acknowledges = True

    def acquire(self, key: str, lease_ms: int, wait_ms: int, then: Callable[[str, int | None], None]) -> int:
        id = next(self._ids)
        value = {"lease_ms": lease_ms, "wait_ms": wait_ms}
        self._ask("acquire", Acquire(id, key, lease_ms, wait_ms), value, then, 2_000 + wait_ms)
        return id

    def release(self, key: str, token: int, then: Callable[[str, int | None], None]) -> None:
        self._ask("release", ReleaseToken(next(self._ids), key, token), {"token": token}, then, 2_000)

    def inspect(self, key: str, then: Callable[[str, int | None], None]) -> None:
        self._ask("inspect", Inspect(next(self._ids), key), None, then, 2_000)

    def close(self) -> None:
        """Go away; the node learns it a little later."""
        self.cluster.clients.pop(self.number, None)
        for id in list(self._open):
            self._end(id, "info", error="closed")
        node, number = self.cluster.nodes[self.node], self.number
        self.cluster.after_latency(
            lambda: node.input(lambda core: core.gone(self.cluster.now, number)), ("to node", number)
        )

    def on_answer(self, answer: Answer) -> None:
        match answer:
            case GrantedTo(id, token):
                if id in self._open and self.acknowledges:
                    self._tokens[id] = token
                    self._transmit(Ack(id, token))
            case Confirmed(id):
                self._end(id, "ok", {"token": self._tokens.get(id)}, token=self._tokens.get(id))
            case Done(id):
                self._end(id, "ok")
            case Holder(id, token):
                self._end(id, "ok", {"token": token}, token=token)
            case Refused(id, error):
                self._end(id, "fail", error=error)
            case Unknown(id, error):
                self._end(id, "info", error=error)

    def _ask(self, f: str, request: Any, value: Any, then: Callable[[str, int | None], None], patience_ms: int) -> None:
        self._open[request.id] = (f, request.key, then)
        self.cluster.record(self.process, "invoke", f, request.key, value, None, self.node)
        self._transmit(request)
        self.cluster.after(patience_ms * MS, lambda: self._end(request.id, "info", error="timeout"))

    def _transmit(self, request: LockRequest) -> None:
        node, number = self.cluster.nodes[self.node], self.number

        def arrive() -> None:
            if number in self.cluster.clients:
                node.input(lambda core: core.request(self.cluster.now, number, request))

        self.cluster.after_latency(arrive, ("to node", number))

    def _end(
        self, id: int, type: Any, value: Any = None, *, error: str | None = None, token: int | None = None
    ) -> None:
        if id in self._open:
            f, key, then = self._open.pop(id)
            self.cluster.record(self.process, type, f, key, value, error, self.node)
            then(type, token)


class SimulatedCluster:
    """`loss` and `copies` are the shares of messages between nodes that vanish, or come twice; `cuts` are pairs
    (from, to) that let nothing through. Without `watch` the invariants are not asserted: a mutant breaks them."""

    def __init__(
        self, size: int, seed: int, core_type: type[Core] = Core, *, watch: bool = True, snapshot_every: int = 50
    ) -> None:
        self.random = random.Random(f"cluster/{seed}")
        self.core_type, self.watch = core_type, watch
        self.now = 0
        self.cuts: set[tuple[str, str]] = set()
        self.clients: dict[int, SimulatedClient] = {}
        self.numbers = itertools.count(1)
        self.history: list[Event] = []
        self.committed: list[Applied] = []
        self.leaders: dict[int, str] = {}
        self.last_token = 0
        self.expired: set[Command] = set()
        self.loss = self.copies = 0.0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._arrivals: dict[Any, int] = {}
        self._held: dict[Any, deque[Any]] = {}
        self.snapshot_every = snapshot_every
        self.nodes = {f"n{i}": SimulatedNode(self, f"n{i}") for i in range(1, size + 1)}
        self.members = Members.of_voters(dict.fromkeys(self.nodes, ""))
        for node in self.nodes.values():
            node.start()

    # ---- time

    def at(self, time: int, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), action))

    def after(self, delay: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def after_latency(self, action: Callable[[], Any], connection: Any) -> None:
        """A connection keeps the order of what is sent on it."""
        arrival = self.now + self.random.randrange(MS // 10, 2 * MS)
        arrival = self._arrivals[connection] = max(arrival, self._arrivals.get(connection, 0))
        self.at(arrival, action)

    def run_for(self, duration_ms: int) -> None:
        end = self.now + duration_ms * MS
        while self._events and self._events[0][0] <= end:
            self.now, _, action = heapq.heappop(self._events)
            action()
        self.now = end

    def run_until(self, condition: Callable[[], bool], within_ms: int = 10_000) -> None:
        end = self.now + within_ms * MS
        while not condition():
            assert self._events, "nothing is left to happen"
            assert self._events[0][0] <= end, f"did not come true within {within_ms} ms"
            self.now, _, action = heapq.heappop(self._events)
            action()

    # ---- network

    def transmit(self, source: str, target: str, message: Any) -> None:
        """One connection each way: in order, unless `loss` drops something. What meets a cut waits, as TCP makes it
        wait, and arrives ahead of what is sent after the cut is mended."""
        held = self._held.setdefault((source, target), deque())
        if (source, target) in self.cuts:
            held.append(message)
            return
        while held:
            self._deliver(source, target, held.popleft())
        self._deliver(source, target, message)

    def _deliver(self, source: str, target: str, message: Any) -> None:
        if self.random.random() < self.loss:
            return
        node = self.nodes[target]
        for _ in range(1 + (self.random.random() < self.copies)):
            arrival = self.now + self.random.randrange(MS // 5, 3 * MS)
            arrival = self._arrivals[source, target] = max(arrival, self._arrivals.get((source, target), 0))
            self.at(arrival, lambda: node.input(lambda core: core.receive(self.now, source, message)))

    def isolate(self, node: str) -> None:
        self.cuts |= {pair for other in self.nodes for pair in ((node, other), (other, node)) if other != node}

    def to_client(self, node: str, number: int, answer: Answer) -> None:
        client = self.clients.get(number)
        if client is not None and client.node == node:
            self.after_latency(lambda: number in self.clients and client.on_answer(answer), ("to client", number))

    def connections_of(self, node: str) -> None:
        """The node is dead: its clients notice."""
        for client in [client for client in self.clients.values() if client.node == node]:
            self.after_latency(client.close, ("to client", client.number))

    # ---- looking at it

    def leader(self) -> SimulatedNode | None:
        """The leader of the highest term, among the nodes that live."""
        leaders = [n for n in self.nodes.values() if n.core is not None and n.core.raft.role is Role.LEADER]
        return max(leaders, key=lambda n: n.core.raft.term if n.core else 0, default=None)

    def await_leader(self) -> SimulatedNode:
        def serves() -> bool:
            leader = self.leader()
            return leader is not None and leader.core is not None and (
                leader.core.applied >= leader.core.raft.term_start
            )  # fmt: skip

        self.run_until(serves)
        leader = self.leader()
        assert leader is not None
        return leader

    def record(self, process: Any, type: Any, f: str, key: str, value: Any, error: str | None, node: str) -> None:
        self.history.append(Event(len(self.history), self.now, process, type, f, key, value, error, node))

    def observe(self, node: SimulatedNode, applied: list[Applied]) -> None:
        """The invariants, after each step of `node`."""
        core = node.core
        assert core is not None
        for one in applied:
            if one.index <= len(self.committed):
                assert self.committed[one.index - 1] == one, f"state machine safety: {node.id} applied {one}"
            else:
                assert one.index == len(self.committed) + 1
                self._check_new(one)
                self.committed.append(one)
        raft = core.raft
        if raft.role is Role.LEADER:
            assert self.leaders.setdefault(raft.term, node.id) == node.id, f"two leaders in term {raft.term}"
            assert raft.log.last_index >= len(self.committed) or raft.term < max(self.leaders), "leader completeness"
        assert raft.commit <= raft.log.last_index

    def _check_new(self, one: Applied) -> None:
        if isinstance(one.result, Granted):
            self.last_token += 1
            assert one.result.token == self.last_token, "tokens are dense and strictly increase"
        if isinstance(one.result, Expired) and one.result.existed:
            assert one.command not in self.expired, f"{one.command} removed a lock twice"
            self.expired.add(one.command)


def check_log_matching(cluster: SimulatedCluster) -> None:
    """Two logs with an entry of the same index and term agree up to there."""
    logs: list[dict[int, Entry]] = []
    for core in [node.core for node in cluster.nodes.values() if node.core is not None]:
        log = core.raft.log
        logs.append({entry.index: entry for entry in log.between(log.base_index + 1, log.last_index)})
    for one, other in itertools.combinations(logs, 2):
        shared = sorted(one.keys() & other.keys())
        last = max((index for index in shared if one[index].term == other[index].term), default=0)
        assert all(one[index] == other[index] for index in shared if index <= last)
