"""Raft, as a pure state machine: elections, replication, commitment, leadership checks.

Problem. A handful of nodes have to agree on one log though any of them may crash, pause or be cut off, and messages
may be lost, delayed, duplicated or reordered.

Source. D. Ongaro, "Consensus: Bridging Theory and Practice" (2014); sections are cited at the line.

How it is driven. Every input (`tick`, `receive`, `propose`, `persisted`) takes the time in nanoseconds and changes the
state; `collect` gives what has to be done about it:

- `persist` has to be on disk before any message in `after_persist` is sent, in the order of the batches. When it is,
  the driver says so with `persisted`, which is also how a node counts itself in a quorum. A leader's own appends may
  leave before its own disk is done (section 10.2.1), since it counts itself only afterwards.
- `take_committed` gives the entries to apply.

Rules on top of the basic algorithm, and why:

1. Pre-vote (9.6): a node asks whether it could win before it raises its term, so that one that was cut off doesn't
   depose a healthy leader when it comes back.
2. A node that hears from a leader refuses to vote (4.2.3), for the same reason.
3. Check-quorum (6.2): a leader that has not heard from a majority for an election timeout steps down, so that its
   clients learn it. This is also what a leader does first after it was paused.
4. A leader commits by counting only entries of its own term (3.6.2); its first is a no-op (6.4).
5. Read rounds (6.4): every append carries a round number and every answer returns it. When a majority has answered
   round r, this node was still the leader at some time after r began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cluster.node.commands import Command, Message, Noop
from cluster.node.leases import MS
from cluster.node.raftlog import Entry, RaftLog


class Role(StrEnum):
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Timing:
    """An election starts after `election` to twice `election` ns of silence; a leader speaks every `heartbeat` ns.

    The defaults leave room for a node that is not scheduled for some hundred milliseconds on a busy machine.
    """

    heartbeat: int = 75 * MS
    election: int = 500 * MS


#: Entries in one append: with keys of the largest size a full append stays far below the frame limit.
APPEND_ENTRIES_MAX = 512

#: Appends on their way to one follower before the leader waits for an answer; enough to fill the path, and a bound on
#: what a follower that is paused finds in its socket.
APPENDS_IN_FLIGHT_MAX = 64


class HardState(Message, frozen=True):
    """What must survive a crash besides the log."""

    term: int
    vote: str | None


class VoteRequest(Message, frozen=True):
    """RequestVote; with `pre` the question whether a vote would be granted in `term`, which changes nothing."""

    term: int
    last_index: int
    last_term: int
    pre: bool


class VoteReply(Message, frozen=True):
    term: int
    granted: bool
    pre: bool


class Append(Message, frozen=True):
    """AppendEntries, heartbeats included. `round` is the leader's newest read round."""

    term: int
    prev_index: int
    prev_term: int
    entries: tuple[Entry, ...]
    commit: int
    round: int


class AppendReply(Message, frozen=True):
    """`ok`: the log agrees with the leader's up to `index`. Otherwise the append after `rejected` was refused, and the
    leader may try again after `index`."""

    term: int
    ok: bool
    index: int
    rejected: int
    round: int


RaftMessage = VoteRequest | VoteReply | Append | AppendReply


@dataclass(frozen=True, slots=True)
class Batch:
    """What has to be on disk together. Entries replace whatever the log has from the first one's index on."""

    hard_state: HardState | None
    entries: tuple[Entry, ...]


@dataclass(slots=True)
class Peer:
    """What a leader knows of a follower (3.5, 10.2.1). While `probing`, it sends one append at a time until it knows
    where the logs agree; afterwards it sends ahead of the answers."""

    next: int
    match: int = 0
    probing: bool = True
    in_flight: int = 0
    round: int = 0
    heard: int = 0


@dataclass(slots=True)
class RaftOutput:
    persist: Batch | None
    now: list[tuple[str, RaftMessage]]
    after_persist: list[tuple[str, RaftMessage]]


@dataclass(slots=True)
class Raft:
    """One node's part. `draw(n)` gives a random integer from 0 to n-1."""

    id: str
    others: tuple[str, ...]
    draw: Callable[[int], int]
    now: int
    timing: Timing = field(default_factory=Timing)
    hard_state: HardState = field(default_factory=lambda: HardState(0, None))
    log: RaftLog = field(default_factory=RaftLog)

    role: Role = Role.FOLLOWER
    leader: str | None = None
    commit: int = 0
    #: The index of this leader's no-op; entries before it may not be known to be committed.
    term_start: int = 0
    peers: dict[str, Peer] = field(default_factory=dict)
    round: int = 0

    _election_deadline: int = 0
    _heartbeat_deadline: int = 0
    _heard_leader: int | None = None
    _votes: set[str] = field(default_factory=set)
    _pre: bool = False
    _own_match: int = 0
    _handed_out: int = 0
    _unsaved_from: int | None = None
    _state_unsaved: bool = False
    _now_box: list[tuple[str, RaftMessage]] = field(default_factory=list)
    _after_box: list[tuple[str, RaftMessage]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._own_match = self.log.last_index
        self._await_election()

    # ---- what the driver and the lock service ask

    @property
    def term(self) -> int:
        return self.hard_state.term

    @property
    def quorum(self) -> int:
        return (len(self.others) + 1) // 2 + 1

    def deadline(self) -> int:
        """When `tick` is due next."""
        return self._heartbeat_deadline if self.role is Role.LEADER else self._election_deadline

    def tick(self, now: int) -> None:
        self.now = now
        if self.role is Role.LEADER:
            if not self._quorum_heard():
                self._become_follower(self.term, None)
            elif now >= self._heartbeat_deadline:
                self._broadcast()
        elif now >= self._election_deadline:
            self._campaign(pre=True)

    def propose(self, command: Command) -> Entry:
        """Append a command to the leader's log; it is sent with the next `collect`."""
        assert self.role is Role.LEADER
        entry = Entry(self.log.last_index + 1, self.term, command)
        self._append(entry)
        return entry

    def next_round(self) -> int:
        """The read round that has not begun yet: when it is confirmed, the leader led after this call."""
        return self.round + 1

    def begin_round(self) -> None:
        """Begin the next read round and ask everybody; at most one is on its way at a time."""
        if self.confirmed_round() == self.round:
            self.round += 1
            self._broadcast()

    def confirmed_round(self) -> int:
        """The newest round that a majority, this leader among it, has answered."""
        return self._majority(self.round, (peer.round for peer in self.peers.values()))

    def persisted(self, now: int, batch: Batch) -> None:
        """`batch`, and all before it, is on disk."""
        self.now = now
        candidate = self.role is Role.CANDIDATE and not self._pre
        if candidate and self.hard_state.vote == self.id and batch.hard_state == self._state_to_save():
            self._count_vote(self.id)
        if batch.entries and self.log.term_at(batch.entries[-1].index) == batch.entries[-1].term:
            self._own_match = max(self._own_match, batch.entries[-1].index)
            self._advance_commit()

    def take_committed(self) -> Sequence[Entry]:
        """The entries to apply, in order, each exactly once."""
        committed = self.log.between(self._handed_out + 1, self.commit)
        self._handed_out = self.commit
        return committed

    def collect(self) -> RaftOutput:
        """Everything that the inputs since the last call ask to be done."""
        if self.role is Role.LEADER:
            for name, peer in self.peers.items():
                self._send_entries(name, peer)
        persist = None
        if self._unsaved_from is not None or self._state_unsaved:
            entries = self.log.between(self._unsaved_from, self.log.last_index) if self._unsaved_from else ()
            persist = Batch(self._state_to_save() if self._state_unsaved else None, tuple(entries))
            self._unsaved_from, self._state_unsaved = None, False
        output = RaftOutput(persist, self._now_box, self._after_box)
        self._now_box, self._after_box = [], []
        return output

    def receive(self, now: int, sender: str, message: RaftMessage) -> None:
        self.now = now
        if sender not in self.others:
            return
        match message:
            case VoteRequest():
                self._on_vote_request(sender, message)
            case VoteReply():
                self._on_vote_reply(sender, message)
            case Append():
                self._on_append(sender, message)
            case AppendReply():
                self._on_append_reply(sender, message)

    # ---- elections (3.4, 9.6)

    def _await_election(self) -> None:
        self._election_deadline = self.now + self.timing.election + self.draw(self.timing.election)

    def _become_follower(self, term: int, leader: str | None) -> None:
        if term > self.term:
            self._set_hard_state(HardState(term, None))
        if self.role is not Role.FOLLOWER or leader is not None:
            self._await_election()
        self.role = Role.FOLLOWER
        self.leader = leader
        self.peers = {}

    def _campaign(self, *, pre: bool) -> None:
        self.role, self.leader = Role.CANDIDATE, None
        self._pre, self._votes = pre, set()
        self._await_election()
        if not pre:
            self._set_hard_state(HardState(self.term + 1, self.id))
        request = VoteRequest(self.term + pre, self.log.last_index, self.log.last_term, pre)
        self._after_box.extend((other, request) for other in self.others)
        if pre:
            self._count_vote(self.id)

    def _count_vote(self, voter: str) -> None:
        self._votes.add(voter)
        if len(self._votes) >= self.quorum:
            if self._pre:
                self._campaign(pre=False)
            else:
                self._become_leader()

    def _become_leader(self) -> None:
        self.role, self.leader = Role.LEADER, self.id
        self.round = 0
        self.peers = {other: Peer(self.log.last_index + 1, heard=self.now) for other in self.others}
        self.term_start = self.log.last_index + 1
        self.propose(Noop())
        self._broadcast()

    def _on_vote_request(self, sender: str, request: VoteRequest) -> None:
        if self._hears_leader():
            return
        if not request.pre and request.term > self.term:
            self._become_follower(request.term, None)
        granted = self._may_vote_for(sender, request)
        if granted and not request.pre:
            self._set_hard_state(HardState(self.term, sender))
            self._await_election()
        self._after_box.append(
            (sender, VoteReply(request.term if granted else self.term, granted, request.pre)),
        )

    def _may_vote_for(self, sender: str, request: VoteRequest) -> bool:
        """One vote a term, and only for a log that is at least as up to date (3.6.1)."""
        if request.pre:
            free = request.term > self.term
        else:
            free = request.term == self.term and self.hard_state.vote in (None, sender)
        return free and (request.last_term, request.last_index) >= (self.log.last_term, self.log.last_index)

    def _on_vote_reply(self, sender: str, reply: VoteReply) -> None:
        if not reply.granted and reply.term > self.term:
            self._become_follower(reply.term, None)
            return
        expected = self.term + self._pre
        if self.role is Role.CANDIDATE and reply.granted and reply.pre == self._pre and reply.term == expected:
            self._count_vote(sender)

    def _hears_leader(self) -> bool:
        """Whether a leader is alive as far as this node knows (4.2.3)."""
        if self.role is Role.LEADER:
            return self._quorum_heard()
        return (
            self.leader is not None
            and self._heard_leader is not None
            and self.now - self._heard_leader < self.timing.election
        )

    def _quorum_heard(self) -> bool:
        limit = self.now - self.timing.election
        return 1 + sum(peer.heard > limit for peer in self.peers.values()) >= self.quorum

    # ---- replication, the follower's side (3.5)

    def _on_append(self, sender: str, append: Append) -> None:
        if append.term < self.term:
            # The answer carries the newer term, which makes a leader that was left behind step down.
            self._answer_append(sender, append, ok=False, index=self.log.last_index)
            return
        self._become_follower(append.term, sender)
        self._heard_leader = self.now
        if not self._agrees_with(append):
            self._answer_append(sender, append, ok=False, index=self._where_to_retry(append.prev_index))
            return
        self._take_entries(append.entries)
        known = append.prev_index + len(append.entries)
        self.commit = max(self.commit, min(append.commit, known))
        self._answer_append(sender, append, ok=True, index=known)

    def _answer_append(self, leader: str, append: Append, *, ok: bool, index: int) -> None:
        self._after_box.append((leader, AppendReply(self.term, ok, index, append.prev_index, append.round)))

    def _agrees_with(self, append: Append) -> bool:
        return self.log.term_at(append.prev_index) == append.prev_term

    def _where_to_retry(self, prev_index: int) -> int:
        """The last index at which the logs may agree: a whole conflicting term is skipped at once (3.5)."""
        if prev_index > self.log.last_index:
            return self.log.last_index
        return max(self.log.first_of_term_at(prev_index) - 1, self.commit)

    def _take_entries(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            known = self.log.term_at(entry.index)
            if known == entry.term:
                continue
            if known is not None:
                self._cut_conflict(entry.index)
            self._append(entry)

    def _cut_conflict(self, index: int) -> None:
        assert index > self.commit, f"entry {index} is committed and would be overwritten"
        self.log.cut_from(index)
        self._own_match = min(self._own_match, index - 1)

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self._unsaved_from = min(self._unsaved_from or entry.index, entry.index)

    # ---- replication, the leader's side (3.5, 3.6.2, 10.2.1)

    def _broadcast(self) -> None:
        """Speak to everybody, entries or not, and be heard as the leader."""
        self._heartbeat_deadline = self.now + self.timing.heartbeat
        for name, peer in self.peers.items():
            if not self._send_entries(name, peer):
                self._send_append(name, peer, ())

    def _send_entries(self, name: str, peer: Peer) -> bool:
        """Send what the follower lacks, as far as its window allows; says whether anything was sent."""
        sent = False
        while peer.next <= self.log.last_index and peer.in_flight < (1 if peer.probing else APPENDS_IN_FLIGHT_MAX):
            last = min(self.log.last_index, peer.next + APPEND_ENTRIES_MAX - 1)
            self._send_append(name, peer, tuple(self.log.between(peer.next, last)))
            peer.in_flight += 1
            if peer.probing:
                return True
            peer.next = last + 1
            sent = True
        return sent

    def _send_append(self, name: str, peer: Peer, entries: tuple[Entry, ...]) -> None:
        prev = peer.next - 1
        prev_term = self.log.term_at(prev)
        assert prev_term is not None
        self._now_box.append((name, Append(self.term, prev, prev_term, entries, self.commit, self.round)))

    def _on_append_reply(self, sender: str, reply: AppendReply) -> None:
        if reply.term > self.term:
            self._become_follower(reply.term, None)
        if self.role is not Role.LEADER or reply.term < self.term:
            return
        peer = self.peers[sender]
        peer.heard = self.now
        peer.round = max(peer.round, reply.round)
        peer.in_flight = max(0, peer.in_flight - 1)
        if reply.ok:
            self._on_match(peer, reply.index)
        else:
            self._on_reject(peer, reply)

    def _on_match(self, peer: Peer, index: int) -> None:
        if peer.probing and index >= peer.next - 1:
            peer.probing, peer.in_flight = False, 0
        if index > peer.match:
            peer.match = index
            self._advance_commit()
        peer.next = max(peer.next, peer.match + 1)
        if peer.match == peer.next - 1:
            peer.in_flight = 0

    def _on_reject(self, peer: Peer, reply: AppendReply) -> None:
        """Step back; unless the reject is an old one, about a place that is known to agree or is no longer asked."""
        if reply.rejected <= peer.match or (peer.probing and reply.rejected != peer.next - 1):
            return
        peer.next = max(peer.match, min(reply.index, reply.rejected - 1)) + 1
        peer.probing, peer.in_flight = True, 0

    def _advance_commit(self) -> None:
        if self.role is not Role.LEADER:
            return
        index = self._majority(self._own_match, (peer.match for peer in self.peers.values()))
        if index > self.commit and self.log.term_at(index) == self.term:
            self.commit = index

    def _majority(self, own: int, others: Iterable[int]) -> int:
        """The largest number that a majority has reached."""
        return sorted((own, *others), reverse=True)[self.quorum - 1]

    def _state_to_save(self) -> HardState:
        return self.hard_state

    def _set_hard_state(self, state: HardState) -> None:
        if state != self.hard_state:
            self.hard_state = state
            self._state_unsaved = True
