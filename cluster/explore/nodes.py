"""One node of an exploration: its core, its disk, and every step that it can take, each computed once.

The same node, in the same state, is part of very many states of the cluster; what an input does to it depends on
nothing else. So states of a node are numbered, and a step (state, input) -> (state, outputs) is looked up when it was
computed before. Copying and comparing cores, which is slow, is done once per step of one node instead of once per state
of the cluster.

A node's own time stands still at 0. When a time-out is over is the explorer's choice, so what matters of a deadline is
only whether it lies ahead; a step that lets time pass moves what it is about into the past (`_silence` and those below
it), and everything else stays where it is: the very state that a node is in whose other times were renewed meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from cluster.explore.frozen import freeze, pack, unpack
from cluster.node.core import Applied, Core
from cluster.node.members import Members
from cluster.node.messages import Batch
from cluster.node.protocol import Answer, LockRequest, PeerMessage
from cluster.node.raft import Role, Timing
from cluster.node.raftlog import Entry
from cluster.node.storage import Contents, Record, log_anew

#: In nanoseconds, so that no lease and no patience ends by itself; heartbeats come once in an election time-out.
TIMING = Timing(heartbeat=1, election=2)

#: The value of a deadline that an event has moved to now.
NOW = 0
LONG_AGO = -TIMING.election


def _longest(below: int) -> int:
    """How long a node waits for an election is the explorer's choice: nothing comes by itself."""
    return below - 1


class Step(NamedTuple):
    """What one input did to a node. `led` is the term that it began to lead; `failure` says why it is no more."""

    after: int
    sends: tuple[tuple[str, int], ...]
    answers: tuple[tuple[int, Answer], ...]
    applied: tuple[Applied, ...]
    led: int | None = None
    failure: str | None = None


class Look(NamedTuple):
    """What the explorer asks of a node's state."""

    up: bool
    leads: bool
    term: int
    #: Whether a leader holds it back from elections.
    held_back: bool
    votes: bool
    counting: tuple[int, ...]  # tokens whose countdown isn't over
    patient: bool  # somebody waits in a queue, or for an acknowledgement
    writing: int
    log: int  # the number of its log


@dataclass(slots=True)
class Node:
    """`writing` is on its way to the disk, each batch with what may be sent when it is there."""

    core: Core | None
    disk: Contents
    life: int = 0
    writing: list[tuple[Batch | None, list[tuple[str, PeerMessage]]]] = field(default_factory=list)


class Nodes:
    """All states that nodes were found in. With `slow_disks` a write is done when the explorer says so, otherwise at
    once."""

    def __init__(self, names: tuple[str, ...], core_type: type[Core], *, slow_disks: bool, snapshot_every: int) -> None:
        self._members = Members.of_voters(dict.fromkeys(names, ""))
        self._core_type, self._slow_disks, self._snapshot_every = core_type, slow_disks, snapshot_every
        self._numbers: dict[Hashable, int] = {}
        self._packed: list[bytes] = []
        self.looks: list[Look] = []
        self._steps: dict[tuple[int, Hashable], Step] = {}
        self._logs: dict[tuple[tuple[int, int], tuple[Entry, ...]], int] = {}
        self.logs: list[tuple[int, tuple[Entry, ...]]] = []  # the index before, and the entries
        self._message_numbers: dict[PeerMessage, int] = {}
        self.messages: list[PeerMessage] = []

    def first(self, name: str) -> int:
        """The state of a node that never ran."""
        return self._number(Node(None, Contents(node=name)))

    # ---- steps

    def start(self, state: int, name: str) -> Step:
        def run(node: Node) -> None:
            node.life += 1
            node.core = self._core_type(
                id=name,
                members=self._members,
                incarnation=node.life,
                draw=_longest,
                now=NOW,
                found=node.disk.persistent(),
                timing=TIMING,
                snapshot_every=self._snapshot_every,
            )

        return self._step(state, "start", run)

    def crash(self, state: int, kept: int) -> Step:
        """All is lost but the disk, and of the writes on their way the first `kept` have come through."""

        def run(node: Node) -> None:
            for batch, _ in node.writing[:kept]:
                if batch is not None:
                    _save(node, batch)
            node.core, node.writing = None, []

        return self._step(state, ("crash", kept), run)

    def deliver(self, state: int, sender: str, message: int) -> Step:
        return self._input(state, (sender, message), lambda core: core.receive(NOW, sender, self.messages[message]))

    def request(self, state: int, number: int, request: LockRequest) -> Step:
        return self._input(state, (number, request), lambda core: core.request(NOW, number, request))

    def gone(self, state: int, number: int) -> Step:
        return self._input(state, ("gone", number), lambda core: core.gone(NOW, number))

    def silence(self, state: int) -> Step:
        """Nothing was heard of the leader for as long as that keeps a node from voting."""
        return self._input(state, "silence", _silence)

    def timeout(self, state: int) -> Step:
        """An election time-out is over."""
        return self._input(state, "timeout", _timeout)

    def beat(self, state: int) -> Step:
        """A leader's next heartbeat is due."""
        return self._input(state, "beat", _beat)

    def lease_over(self, state: int, token: int) -> Step:
        """This node's countdown of `token` is over."""
        return self._input(state, ("lease over", token), lambda core: _lease_over(core, token))

    def patience_over(self, state: int) -> Step:
        """Waiters, and grants that wait for their acknowledgement, are over their time."""
        return self._input(state, "patience over", _patience_over)

    def sync(self, state: int) -> Step:
        """The disk has done the oldest write."""

        def run(node: Node) -> None:
            batch, sends = node.writing.pop(0)
            self._written(node, batch, sends)

        return self._step(state, "sync", run)

    # ---- how a step is computed

    def _input(self, state: int, name: Hashable, act: Callable[[Core], object]) -> Step:
        def run(node: Node) -> None:
            assert node.core is not None
            act(node.core)

        return self._step(state, name, run)

    def _step(self, state: int, name: Hashable, run: Callable[[Node], None]) -> Step:
        step = self._steps.get((state, name))
        if step is None:
            step = self._steps[state, name] = self._compute(state, run)
        return step

    def _compute(self, state: int, run: Callable[[Node], None]) -> Step:
        node: Node = unpack(self._packed[state])
        self._outbox: list[tuple[str, PeerMessage]] = []
        self._answers: list[tuple[int, Answer]] = []
        self._applied: list[Applied] = []
        before = self.looks[state]
        try:
            run(node)
            self._flush(node)
        except Exception as problem:  # a mutant's core may raise anything; a true one nothing
            return Step(state, (), (), (), failure=f"{type(problem).__name__}: {problem}")
        after = self._number(node)
        look = self.looks[after]
        led = look.term if look.leads and not (before.leads and before.term == look.term) else None
        sends = tuple((target, self._message(message)) for target, message in self._outbox)
        return Step(after, sends, tuple(self._answers), tuple(self._applied), led)

    def _flush(self, node: Node) -> None:
        while node.core is not None:
            out = node.core.collect(NOW)
            self._outbox += out.now
            self._answers += out.answers
            self._applied += out.applied
            if out.persist is None and (not node.writing or not out.after_persist):
                self._outbox += out.after_persist
                return
            if self._slow_disks:
                node.writing.append((out.persist, out.after_persist))
                return
            self._written(node, out.persist, out.after_persist)

    def _written(self, node: Node, batch: Batch | None, sends: list[tuple[str, PeerMessage]]) -> None:
        assert node.core is not None
        if batch is not None:
            _save(node, batch)
            node.core.persisted(NOW, batch)
        self._outbox += sends

    def _number(self, node: Node) -> int:
        if node.core is not None:
            _settle(node.core)
        key = freeze(node)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._packed)
            self._packed.append(pack(node))
            self.looks.append(self._look(node))
        return number

    def _message(self, message: PeerMessage) -> int:
        number = self._message_numbers.get(message)
        if number is None:
            number = self._message_numbers[message] = len(self.messages)
            self.messages.append(message)
        return number

    def _look(self, node: Node) -> Look:
        core = node.core
        if core is None:
            return Look(False, False, 0, False, False, (), False, 0, self._log_number(0, 0, ()))
        raft, steward = core.raft, core.steward
        log = raft.log
        return Look(
            up=True,
            leads=raft.role is Role.LEADER,
            term=raft.term,
            held_back=raft.role is not Role.LEADER and raft._hears_leader(),
            votes=raft.members.votes(raft.id),
            counting=tuple(due.token for due in core.leases._running.values() if due.deadline > NOW),
            patient=steward is not None and bool(steward._queues or steward._unacknowledged),
            writing=len(node.writing),
            log=self._log_number(log.base_index, log.base_term, log.between(log.base_index + 1, log.last_index)),
        )

    def _log_number(self, base: int, term: int, entries: Any) -> int:
        key = ((base, term), tuple(entries))
        number = self._logs.get(key)
        if number is None:
            number = self._logs[key] = len(self.logs)
            self.logs.append((base, key[1]))
        return number

    @property
    def counts(self) -> Mapping[str, int]:
        return {"node_states": len(self._packed), "node_steps": len(self._steps), "messages": len(self.messages)}


def _save(node: Node, batch: Batch) -> None:
    records: list[Record] = list(batch.entries)
    if batch.hard_state is not None:
        records.insert(0, batch.hard_state)
    if batch.compaction is not None:
        assert node.disk.node is not None
        state = batch.hard_state or node.disk.hard_state
        records = log_anew(node.disk.node, state, batch.compaction)
        node.disk = Contents()
    else:
        node.disk = copy(node.disk)
        node.disk.entries = list(node.disk.entries)
    for record in records:
        node.disk.take(record, Path("log"))


# ---- time


def _silence(core: Core) -> None:
    core.raft._heard_leader = LONG_AGO


def _timeout(core: Core) -> None:
    core.raft._heard_leader = None if core.raft._heard_leader is None else LONG_AGO
    core.raft._election_deadline = NOW
    core.tick(NOW)


def _beat(core: Core) -> None:
    raft = core.raft
    for peer in raft.peers.values():
        peer.heard = max(LONG_AGO, peer.heard - TIMING.heartbeat)
        if peer.install is not None and peer.install.sent_at is not None:
            peer.install.sent_at = max(LONG_AGO, peer.install.sent_at - TIMING.heartbeat)
    raft._heartbeat_deadline = NOW
    core.tick(NOW)


def _lease_over(core: Core, token: int) -> None:
    leases = core.leases
    leases._running[token] = over = leases._running[token]._replace(deadline=NOW)
    leases._heap = sorted(over if due.token == token else due for due in leases._heap)
    core.tick(NOW)


def _patience_over(core: Core) -> None:
    steward = core.steward
    assert steward is not None
    for waiter in steward._waiters():
        waiter.deadline = NOW
    for grant in steward._unacknowledged.values():
        grant.deadline = NOW
    steward._alarm = NOW
    core.tick(NOW)


def _settle(core: Core) -> None:
    """Give one value to what no input of this state looks at any more."""
    raft = core.raft
    if raft.role is Role.LEADER:
        raft._election_deadline = NOW
    else:
        raft._heartbeat_deadline = NOW
        raft.round = raft.term_start = 0
    if raft.role is not Role.CANDIDATE:
        raft._votes, raft._pre = set(), False
    if raft.role is Role.LEADER or raft.leader is None:
        raft._heard_leader = None
    if core.steward is None:
        core._steward_term = 0
    core.leases._heap = sorted(due for due in core.leases._heap if core.leases._running.get(due.token) == due)
