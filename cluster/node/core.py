"""The whole of a lock node but its sockets, its disk and its clock: (now, input) -> outputs.

A `Core` is pure and deterministic, so the asyncio server and the simulator drive the very same code. It joins

- `Raft`, which makes the log,
- the applied `LockTable` and the `Leases` countdowns, on every node,
- the `Steward`, while this node leads,
- the clients' sessions at this node: requests are answered by the own steward or forwarded, once, to the leader.

Every input is a method that takes the time in nanoseconds; what is due by then happens first, so that a node that was
paused learns that it is late before it acts. After any number of inputs, `collect` gives what is to be done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from cluster.node.commands import Command, Configure, Expired, Grant, Granted, Noop, Released, Result
from cluster.node.leases import Leases
from cluster.node.locks import LockTable
from cluster.node.members import Members
from cluster.node.messages import Append, AppendReply, Batch
from cluster.node.protocol import (
    Ack,
    Answer,
    Cancel,
    Deliver,
    Forward,
    Gone,
    GrantedTo,
    Holder,
    Inspect,
    LockRequest,
    PeerMessage,
    Refused,
    Session,
    Unknown,
    problem,
)
from cluster.node.raft import Persistent, Raft, Role, Timing
from cluster.node.raftlog import Entry
from cluster.node.snapshots import pack_state, unpack_state
from cluster.node.steward import Proposed, Steward

#: Entries between two snapshots: a restart replays a second's work, and a snapshot costs far less than they do.
SNAPSHOT_EVERY = 10_000

COUNTERS_OF_THE_LOG = ("grants", "releases", "expiries")


class Applied(msgspec.Struct, frozen=True):
    """One log entry and what applying it did; the same on every node."""

    index: int
    term: int
    command: Command
    result: Result


class Outputs(msgspec.Struct, frozen=True):
    """What is to be done. `after_persist` goes out only when `persist`, and every batch before it, is on disk; the
    rest goes out at once. `answers` are for this node's own clients, by session number."""

    persist: Batch | None
    now: list[tuple[str, PeerMessage]]
    after_persist: list[tuple[str, PeerMessage]]
    answers: list[tuple[int, Answer]]
    applied: list[Applied]
    proposed: list[Proposed] = []  # msgspec copies it


@dataclass(slots=True)
class Client:
    """A session at this node. `asked` are the requests without a final answer, with the term of the leader asked."""

    session: Session
    asked: dict[int, int] = field(default_factory=dict)


class Core:
    """`members` is the configuration that the cluster began with, empty for a node that will be added to it;
    `incarnation` is drawn anew at every start; `draw(n)` gives a random integer from 0 to n-1; `found` is what the disk
    has kept. A snapshot is taken after every `snapshot_every` entries."""

    raft_type: ClassVar[type[Raft]] = Raft
    table_type: ClassVar[type[LockTable]] = LockTable
    leases_type: ClassVar[type[Leases]] = Leases
    steward_type: ClassVar[type[Steward]] = Steward

    def __init__(
        self,
        *,
        id: str,
        members: Members,
        incarnation: int,
        draw: Callable[[int], int],
        now: int,
        found: Persistent | None = None,
        timing: Timing | None = None,
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        self.id = id
        self.incarnation = incarnation
        self.raft = self.raft_type(id, members, draw, now, found or Persistent(), timing or Timing())
        self.table = self.table_type()
        self.leases = self.leases_type()
        self.steward: Steward | None = None
        self.applied = 0
        self.counters = {"grants": 0, "releases": 0, "expiries": 0, "ghosts": 0, "elections": 0}
        self._steward_term = 0
        self._term_seen = 0
        self._clients: dict[int, Client] = {}
        self._sends: list[tuple[str, PeerMessage]] = []
        self._answers: list[tuple[int, Answer]] = []
        self._applied: list[Applied] = []
        self._proposed: list[Proposed] = []
        self._snapshot_every = snapshot_every
        self._restore(now)

    # ---- inputs

    def tick(self, now: int) -> None:
        if now >= self.raft.deadline():
            self.raft.tick(now)
            self._follow_role()
            if self.steward is not None:
                self.steward.give_up_silent_nodes(now)
        if self.steward is not None:
            self.steward.tick(now)

    def receive(self, now: int, sender: str, message: PeerMessage) -> None:
        """A message of another node."""
        self.tick(now)
        match message:
            case Append() | AppendReply():  # most by far
                self.raft.receive(now, sender, message)
                self._follow_role()
            case Forward():
                self._on_forward(now, sender, message)
            case Gone():
                if self.steward is not None and message.session.node == sender:
                    self.steward.gone(now, message.session)
            case Deliver():
                self._on_deliver(message)
                if isinstance(message.answer, GrantedTo) and not self._knows(message.session):
                    self._sends.append((sender, Gone(message.session)))
            case _:
                self.raft.receive(now, sender, message)
                self._follow_role()

    def persisted(self, now: int, batch: Batch) -> None:
        """`batch`, and every batch before it, is on disk."""
        self.raft.persisted(now, batch)
        self._follow_role()

    def request(self, now: int, number: int, request: LockRequest) -> None:
        """A request of this node's own client `number`; unknown numbers begin a session."""
        self.tick(now)
        client = self._clients.setdefault(number, Client(Session(self.id, self.incarnation, number)))
        trouble = problem(request)
        if trouble is not None:
            self._answers.append((number, Refused(request.id, f"bad-request: {trouble}")))
        elif isinstance(request, Inspect) and request.local:
            self._answers.append((number, Holder(request.id, self.table.holder(request.key), local=True)))
        elif isinstance(request, Ack) and request.id not in client.asked:
            self._answers.append((number, Unknown(request.id, "the acquire has been answered otherwise")))
        elif isinstance(request, Cancel) and request.id not in client.asked:
            pass  # its final answer is on the way
        elif self.steward is not None:
            self._note_asked(client, request)
            self.steward.request(now, client.session, request)
        elif not getattr(request, "forward", True):
            self._answers.append((number, Refused(request.id, "not-leader", self.raft.leader)))
        elif self.raft.leader is None and isinstance(request, Ack | Cancel):
            # The acquire that it is about was sent to a leader, and may still reach it.
            del client.asked[request.id]
            self._answers.append((number, Unknown(request.id, "leader-lost")))
        elif self.raft.leader is None:
            self._answers.append((number, Refused(request.id, "no-leader")))
        else:
            self._note_asked(client, request)
            self._sends.append((self.raft.leader, Forward(client.session, request)))

    def gone(self, now: int, number: int) -> None:
        """The client's connection has ended."""
        self.tick(now)
        client = self._clients.pop(number, None)
        if client is None:
            return
        if self.steward is not None:
            self.steward.gone(now, client.session)
        elif self.raft.leader is not None:
            self._sends.append((self.raft.leader, Gone(client.session)))

    def leave(self, now: int) -> bool:
        """This node will stop: let somebody else lead, the one that is closest behind. False when that is no matter,
        because it doesn't lead or there is nobody else; otherwise it may stop as soon as it no longer `leads`."""
        self.tick(now)
        others = [(peer.match, name) for name, peer in self.raft.peers.items() if self.raft.members.votes(name)]
        if not self.leads or not others:
            return False
        self.raft.transfer(max(others)[1])
        return True

    @property
    def leads(self) -> bool:
        return self.raft.role is Role.LEADER

    # ---- outputs

    def collect(self, now: int) -> Outputs:
        self._catch_up(now)
        if self.steward is not None:
            self._route(self.steward.take_answers())
            self._proposed += self.steward.take_proposed()
        raft = self.raft.collect()
        outputs = Outputs(
            raft.persist,
            [*raft.now, *self._sends],
            [*raft.after_persist],
            self._answers,
            self._applied,
            self._proposed,
        )
        self._sends, self._answers, self._applied, self._proposed = [], [], [], []
        return outputs

    def deadline(self) -> int:
        """When `tick` is due next, in ns."""
        deadline = self.raft.deadline()
        waiting = self.steward.deadline() if self.steward is not None else None
        return deadline if waiting is None else min(deadline, waiting)

    def status(self) -> Mapping[str, Any]:
        """What this node knows of itself; nothing here is agreed upon."""
        return {
            "id": self.id,
            "incarnation": self.incarnation,
            "term": self.raft.term,
            "role": self.raft.role.value,
            "leader": self.raft.leader,
            "commit": self.raft.commit,
            "applied": self.applied,
            "last": self.raft.log.last_index,
            "snapshot": self.raft.snapshot.index if self.raft.snapshot else 0,
            "members": [
                {"id": member.id, "address": member.address, "voter": member.voter} for member in self.raft.members.all
            ],
            "held": len(self.table.held),
            "waiters": self.steward.waiting() if self.steward is not None else 0,
            "counters": dict(self.counters),
        }

    # ---- applying

    def _catch_up(self, now: int) -> None:
        """Apply what is committed by now; and begin the log anew behind a snapshot, now and then."""
        raft = self.raft
        if raft.restored is not None:
            self._restore(now)
        for entry in raft.take_committed():
            self._applied.append(self._apply(entry, now))
        behind = raft.snapshot.index if raft.snapshot else 0
        if self.applied - behind >= self._snapshot_every:
            state = pack_state(self.table, {name: self.counters[name] for name in COUNTERS_OF_THE_LOG})
            self.raft.compact(self.applied, state, keep=self._snapshot_every // 2)

    def _restore(self, now: int) -> None:
        """A snapshot replaces the state, and never merges with it; every lease in it starts again in full."""
        snapshot = self.raft.take_restored()
        if snapshot is None:
            return
        self.table, counters = unpack_state(snapshot.data, self.table_type)
        self.counters |= counters
        self.applied = snapshot.index
        self.leases = self.leases_type()
        for key, hold in self.table.held.items():
            self.leases.start(key, hold.token, hold.lease_ms, now)

    def _apply(self, entry: Entry, now: int) -> Applied:
        held_before = None if isinstance(entry.command, Noop | Configure) else self.table.holder(entry.command.key)
        result = self.table.apply(entry.command)
        self.applied = entry.index
        self._count_down(entry.command, held_before, result, now)
        if self.steward is not None:
            self.steward.applied(now, entry, result)
        return Applied(entry.index, entry.term, entry.command, result)

    def _count_down(self, command: Command, held_before: int | None, result: Result, now: int) -> None:
        match command, result:
            case Grant(key, lease_ms), Granted(token):
                self.counters["grants"] += 1
                self.leases.start(key, token, lease_ms, now)
                return
            case _, Released():
                self.counters["releases"] += 1
            case _, Expired(existed=True):
                self.counters["expiries"] += 1
            case _:
                return
        if held_before is not None:
            self.leases.end(held_before)

    # ---- leadership

    def _follow_role(self) -> None:
        """Take the steward's desk, or leave it, as Raft decided; and give up on a leader that was replaced."""
        leads = self.raft.role is Role.LEADER
        if self.steward is not None and (not leads or self._steward_term != self.raft.term):
            self._route(self.steward.resign())
            self._proposed += self.steward.take_proposed()
            self.steward = None
        if leads and self.steward is None:
            self.counters["elections"] += 1
            self._steward_term = self.raft.term
            self.steward = self.steward_type.take_over(self.raft, self.table, self.leases, self.counters, self.applied)
        if self._term_seen != self.raft.term:
            self._give_up_on_old_leaders()

    # ---- sessions

    def _note_asked(self, client: Client, request: LockRequest) -> None:
        client.asked.setdefault(request.id, self.raft.term)

    def _on_forward(self, now: int, sender: str, forward: Forward) -> None:
        session, request = forward.session, forward.request
        if session.node != sender:
            return
        if self.steward is not None:
            self.steward.request(now, session, request)
        else:
            answer = (
                Unknown(request.id, "leader-changed")
                if isinstance(request, Ack | Cancel)
                else Refused(request.id, "not-leader", self.raft.leader)
            )
            self._sends.append((sender, Deliver(session, answer)))

    def _route(self, answers: Iterable[tuple[Session, Answer]]) -> None:
        for session, answer in answers:
            if session.node == self.id:
                self._on_deliver(Deliver(session, answer))
            else:
                self._sends.append((session.node, Deliver(session, answer)))

    def _knows(self, session: Session) -> bool:
        client = self._clients.get(session.number)
        return client is not None and client.session == session

    def _on_deliver(self, deliver: Deliver) -> None:
        """Pass an answer on to the client, if it is still there and still waits for one."""
        answer = deliver.answer
        if not self._knows(deliver.session):
            return
        client = self._clients[deliver.session.number]
        if answer.id not in client.asked:
            return
        if not isinstance(answer, GrantedTo):
            del client.asked[answer.id]
        self._answers.append((deliver.session.number, answer))

    def _give_up_on_old_leaders(self) -> None:
        """A request that went to a leader of an earlier term may or may not have come into the log."""
        self._term_seen = self.raft.term
        for number, client in self._clients.items():
            for id in [id for id, term in client.asked.items() if term != self.raft.term]:
                del client.asked[id]
                self._answers.append((number, Unknown(id, "leader-changed")))
