"""Raft, as a pure state machine: elections, replication, commitment, snapshots, membership, leadership transfer.

Problem. A handful of nodes have to agree on one log though any of them may crash, pause or be cut off, and messages
may be lost, delayed, duplicated or reordered.

Source. D. Ongaro, "Consensus: Bridging Theory and Practice" (2014); sections are cited at the line.

How it is driven. Every input (`tick`, `receive`, `propose`, `persisted`, ...) takes the time in nanoseconds and changes
the state; then

- `take_restored` gives a snapshot that has replaced the state machine's state, and `take_committed` the entries to
  apply after it,
- `collect` gives what has to be done: `persist` has to be on disk before any message in `after_persist` is sent, in the
  order of the batches. When it is, the driver says so with `persisted`, which is also how a node counts itself in a
  quorum. A leader's own appends may leave before its own disk is done (10.2.1), since it counts itself only afterwards.

Rules on top of the basic algorithm, and why:

1. Pre-vote (9.6): a node asks whether it could win before it raises its term, so that one that was cut off doesn't
   depose a healthy leader when it comes back.
2. A node that hears from a leader refuses to vote (4.2.3), for the same reason; unless that leader asked for it (3.10).
3. Check-quorum (6.2): a leader that has not heard from a majority for an election timeout steps down, so that its
   clients learn it. This is also what a leader does first after it was paused.
4. A leader commits by counting only entries of its own term (3.6.2); its first is a no-op (6.4).
5. Read rounds (6.4): every append carries a round number and every answer returns it. When a majority has answered
   round r, this node was still the leader at some time after r began.
6. Membership changes one server at a time, each committed before the next is proposed, and none before the leader has
   committed an entry of its own term: without that, two leaders could each change a different base (the flaw of 2015).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from cluster.node.commands import Command, Configure, Noop
from cluster.node.configurations import Configurations
from cluster.node.leases import MS
from cluster.node.members import Members
from cluster.node.messages import (
    Append,
    AppendReply,
    Batch,
    HardState,
    RaftMessage,
    Snapshot,
    SnapshotChunk,
    SnapshotReply,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from cluster.node.progress import Progress
from cluster.node.raftlog import Entry, RaftLog
from cluster.node.snapshots import Assembly
from cluster.node.unsaved import Unsaved


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


@dataclass(frozen=True, slots=True)
class Persistent:
    """What a node finds on its disk when it starts, or nothing."""

    hard_state: HardState = field(default_factory=lambda: HardState(0, None))
    snapshot: Snapshot | None = None
    base_index: int = 0
    base_term: int = 0
    entries: Sequence[Entry] = ()


class RaftOutput(msgspec.Struct):
    persist: Batch | None
    now: list[tuple[str, RaftMessage]]
    after_persist: list[tuple[str, RaftMessage]]


@dataclass(frozen=True, slots=True)
class Transfer:
    target: str
    deadline: int


class Raft:
    """One node's part. `members` is the configuration before the first entry, empty for a node that will be added.
    `draw(n)` gives a random integer from 0 to n-1."""

    def __init__(
        self,
        id: str,
        members: Members,
        draw: Callable[[int], int],
        now: int,
        found: Persistent,
        timing: Timing,
    ) -> None:
        self.id = id
        self.draw, self.now, self.timing = draw, now, timing
        self.hard_state = found.hard_state
        self.snapshot = found.snapshot
        self.log = RaftLog(found.entries, found.base_index, found.base_term)
        self.role = Role.FOLLOWER
        self.leader: str | None = None
        self.commit = found.snapshot.index if found.snapshot else 0
        #: The index of this leader's no-op; entries before it may not be known to be committed.
        self.term_start = 0
        self.peers: dict[str, Progress] = {}
        self.round = 0
        self._configurations = Configurations(self.commit, found.snapshot.members if found.snapshot else members)
        for entry in found.entries:
            if entry.index > self.commit:
                self._configurations.note(entry)
        self._heartbeat_deadline = 0
        self._heard_leader: int | None = None
        self._votes: set[str] = set()
        self._pre = False
        self._transfer: Transfer | None = None
        self._own_match = self.log.last_index
        self._handed_out = self.commit
        self._assembly: Assembly | None = None
        #: The snapshot that replaces the state machine's state, until it is taken.
        self.restored: Snapshot | None = found.snapshot
        self._unsaved = Unsaved()
        self._now_box: list[tuple[str, RaftMessage]] = []
        self._after_box: list[tuple[str, RaftMessage]] = []
        self._await_election()

    # ---- what the driver and the lock service ask

    @property
    def term(self) -> int:
        return self.hard_state.term

    @property
    def members(self) -> Members:
        """The configuration that holds: the last in the log, committed or not (4.1)."""
        return self._configurations.newest.members

    def deadline(self) -> int:
        """When `tick` is due next."""
        return self._heartbeat_deadline if self.role is Role.LEADER else self._election_deadline

    def tick(self, now: int) -> None:
        self.now = now
        if self.role is Role.LEADER:
            if not self._quorum_heard() or self._removed():
                self._become_follower(self.term, None)
                return
            if self._transfer is not None and now >= self._transfer.deadline:
                self._transfer = None
            self._promote_learners()
            if now >= self._heartbeat_deadline:
                self._broadcast()
        elif now >= self._election_deadline:
            if self.members.votes(self.id):
                self._campaign(pre=True)
            else:
                self._await_election()

    def propose(self, command: Command) -> Entry:
        """Append a command to the leader's log; it is sent with the next `collect`."""
        assert self.role is Role.LEADER
        entry = Entry(self.log.last_index + 1, self.term, command)
        self._append(entry)
        return entry

    @property
    def changing(self) -> bool:
        """While the configuration that holds is not known to be committed."""
        return self._configurations.newest.index > self.commit

    def propose_members(self, members: Members) -> Entry | None:
        """Begin a change of membership; None while another one, or this leader's first entry, isn't committed."""
        if self.commit < self.term_start or self.changing:
            return None
        entry = self.propose(Configure(members))
        self._follow_members()
        return entry

    def transfer(self, target: str) -> None:
        """Hand leadership to `target` as soon as it has the whole log (3.10); given up after an election timeout."""
        self._transfer = Transfer(target, self.now + self.timing.election)
        self._try_transfer()

    @property
    def transferring(self) -> bool:
        """While leadership is handed over nothing new should be proposed, or the target never catches up."""
        return self._transfer is not None

    def next_round(self) -> int:
        """The read round that has not begun yet: when it is confirmed, the leader led after this call."""
        return self.round + 1

    def begin_round(self) -> None:
        """Begin the next read round and ask everybody; at most one is on its way at a time."""
        if self.confirmed_round() == self.round:
            self.round += 1
            self._broadcast()

    def confirmed_round(self) -> int:
        """The newest round that a majority has answered; this leader itself always has."""
        return self._majority({self.id: self.round} | {name: peer.round for name, peer in self.peers.items()})

    def persisted(self, now: int, batch: Batch) -> None:
        """`batch`, and all before it, is on disk."""
        self.now = now
        candidate = self.role is Role.CANDIDATE and not self._pre
        if candidate and self.hard_state.vote == self.id and batch.hard_state == self._state_to_save():
            self._count_vote(self.id)
        entries = batch.entries or (batch.compaction.entries if batch.compaction else ())
        if entries and self.log.term_at(entries[-1].index) == entries[-1].term:
            self._own_match = max(self._own_match, entries[-1].index)
            self._advance_commit()

    def take_restored(self) -> Snapshot | None:
        """The snapshot that replaces the state machine's state, if there is a new one; before `take_committed`."""
        restored, self.restored = self.restored, None
        return restored

    def take_committed(self) -> Sequence[Entry]:
        """The entries to apply, in order, each exactly once."""
        if self.commit == self._handed_out:
            return ()
        committed = self.log.between(self._handed_out + 1, self.commit)
        self._handed_out = self.commit
        return committed

    def compact(self, snapshot_index: int, data: bytes, keep: int) -> None:
        """Take `data`, the state after `snapshot_index`, as the newest snapshot; keep `keep` entries before it for
        followers that are a little behind."""
        term = self.log.term_at(snapshot_index)
        assert term is not None, snapshot_index
        self.snapshot = Snapshot(snapshot_index, term, self._configurations.at(snapshot_index), data)
        self.log.compact(max(self.log.base_index, snapshot_index - keep))
        self._configurations.forget_before(self.log.base_index)
        self._unsaved.whole_log()

    def collect(self) -> RaftOutput:
        """Everything that the inputs since the last call ask to be done."""
        if self.role is Role.LEADER:
            last = self.log.last_index
            for name, peer in self.peers.items():
                if peer.next <= last or peer.install is not None:
                    self._send_entries(name, peer)
        batch = self._unsaved.take(self._state_to_save(), self.snapshot, self.log) if self._unsaved.any else None
        output = RaftOutput(batch, self._now_box, self._after_box)
        self._now_box, self._after_box = [], []
        return output

    def receive(self, now: int, sender: str, message: RaftMessage) -> None:
        self.now = now
        match message:
            case Append():
                self._on_append(sender, message)
            case AppendReply():
                self._on_append_reply(sender, message)
            case VoteRequest():
                self._on_vote_request(sender, message)
            case VoteReply():
                self._on_vote_reply(sender, message)
            case SnapshotChunk():
                self._on_snapshot_chunk(sender, message)
            case SnapshotReply():
                self._on_snapshot_reply(sender, message)
            case TimeoutNow():
                if message.term == self.term and self.role is Role.FOLLOWER and self.members.votes(self.id):
                    self._campaign(pre=False, transfer=True)

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
        self._transfer = None

    def _campaign(self, *, pre: bool, transfer: bool = False) -> None:
        self.role, self.leader = Role.CANDIDATE, None
        self._pre, self._votes = pre, set()
        self._await_election()
        if not pre:
            self._set_hard_state(HardState(self.term + 1, self.id))
        request = VoteRequest(self.term + pre, self.log.last_index, self.log.last_term, pre, transfer)
        self._after_box.extend((voter, request) for voter in self.members.voters if voter != self.id)
        if pre:
            self._count_vote(self.id)

    def _count_vote(self, voter: str) -> None:
        self._votes.add(voter)
        if len(self._votes.intersection(self.members.voters)) >= self.members.quorum:
            if self._pre:
                self._campaign(pre=False)
            else:
                self._become_leader()

    def _become_leader(self) -> None:
        self.role, self.leader = Role.LEADER, self.id
        self.round = 0
        self.term_start = self.log.last_index + 1
        self._follow_members()
        self._open_term()
        self._broadcast()

    def _open_term(self) -> None:
        """Have an entry of the own term to commit: what lies before it commits with it (6.4)."""
        self.propose(Noop())

    def _on_vote_request(self, sender: str, request: VoteRequest) -> None:
        if self._hears_leader() and not request.transfer:
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
        heard = {self.id: self.now} | {name: peer.heard for name, peer in self.peers.items()}
        return self.members.majority(heard) > self.now - self.timing.election

    # ---- replication, the follower's side (3.5)

    def _on_append(self, sender: str, append: Append) -> None:
        if append.term < self.term:
            # The answer carries the newer term, which makes a leader that was left behind step down.
            self._answer_append(sender, append, ok=False, index=self.log.last_index)
            return
        self._follow(sender, append.term)
        if not self._agrees_with(append):
            self._answer_append(sender, append, ok=False, index=self._where_to_retry(append.prev_index))
            return
        self._take_entries(append.entries)
        known = append.prev_index + len(append.entries)
        self.commit = max(self.commit, min(append.commit, known))
        self._answer_append(sender, append, ok=True, index=known)

    def _follow(self, leader: str, term: int) -> None:
        self._become_follower(term, leader)
        self._heard_leader = self.now

    def _answer_append(self, leader: str, append: Append, *, ok: bool, index: int) -> None:
        self._after_box.append((leader, AppendReply(self.term, ok, index, append.prev_index, append.round)))

    def _agrees_with(self, append: Append) -> bool:
        """What lies before the base is in a snapshot, so it was committed, so every leader has it."""
        return append.prev_index < self.log.base_index or self.log.term_at(append.prev_index) == append.prev_term

    def _where_to_retry(self, prev_index: int) -> int:
        """The last index at which the logs may agree: a whole conflicting term is skipped at once (3.5)."""
        if prev_index > self.log.last_index:
            return self.log.last_index
        return max(self.log.first_of_term_at(prev_index) - 1, self.commit)

    def _take_entries(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            known = self.log.term_at(entry.index)
            if known == entry.term or entry.index <= self.log.base_index:
                continue
            if known is not None:
                self._cut_conflict(entry.index)
            self._append(entry)

    def _cut_conflict(self, index: int) -> None:
        assert index > self.commit, f"entry {index} is committed and would be overwritten"
        self.log.cut_from(index)
        self._own_match = min(self._own_match, index - 1)
        self._configurations.cut_from(index)

    def _append(self, entry: Entry) -> None:
        self.log.append(entry)
        self._configurations.note(entry)
        self._unsaved.entry(entry.index)

    # ---- replication, the leader's side (3.5, 3.6.2, 10.2.1)

    def _broadcast(self) -> None:
        """Speak to everybody, entries or not, and be heard as the leader."""
        self._heartbeat_deadline = self.now + self.timing.heartbeat
        for name, peer in self.peers.items():
            if not self._send_entries(name, peer):
                self._now_box.append((name, peer.heartbeat(self.term, self.log, self.commit, self.round)))

    def _send_entries(self, name: str, peer: Progress) -> bool:
        """Send what the follower lacks, as far as its window allows; says whether any append was sent."""
        if peer.lacks(self.log):
            assert self.snapshot is not None
            peer.begin_install(self.snapshot)
        chunk = peer.chunk(self.term, self.round, self.now, again_after=self.timing.election)
        if chunk is not None:
            self._now_box.append((name, chunk))
        appends = peer.appends(self.term, self.log, self.commit, self.round)
        self._now_box.extend((name, append) for append in appends)
        return bool(appends)

    def _on_append_reply(self, sender: str, reply: AppendReply) -> None:
        peer = self._heard_from(sender, reply.term, reply.round)
        if peer is not None and peer.on_append_reply(reply):
            if peer.match > self.commit:
                self._advance_commit()
            self._try_transfer()

    def _heard_from(self, sender: str, term: int, round: int) -> Progress | None:
        """The follower that answered this leader, in this term; None when this is no such answer."""
        if term > self.term:
            self._become_follower(term, None)
        peer = self.peers.get(sender)
        if self.role is not Role.LEADER or term < self.term or peer is None:
            return None
        peer.heard = self.now
        peer.round = max(peer.round, round)
        return peer

    def _on_progress(self) -> None:
        self._advance_commit()
        self._try_transfer()

    def _advance_commit(self) -> None:
        if self.role is not Role.LEADER:
            return
        index = self._majority({self.id: self._own_match} | {name: peer.match for name, peer in self.peers.items()})
        if index > self.commit and self._may_commit(index):
            self.commit = index

    def _may_commit(self, index: int) -> bool:
        """Only an entry of the own term commits by counting; earlier ones with it (3.6.2)."""
        return self.log.term_at(index) == self.term

    def _majority(self, reached: dict[str, int]) -> int:
        return self.members.majority(reached)

    # ---- snapshots (5.1, 5.3)

    def _on_snapshot_chunk(self, sender: str, chunk: SnapshotChunk) -> None:
        if chunk.term < self.term:
            self._after_box.append((sender, SnapshotReply(self.term, chunk.index, 0, chunk.round)))
            return
        self._follow(sender, chunk.term)
        if chunk.index <= self.commit:
            self._answer_chunk(sender, chunk, chunk.size)
            return
        if self._assembly is None or not self._assembly.continues(sender, chunk):
            self._assembly = Assembly(sender, chunk.term, chunk.index, chunk.size)
        assembly = self._assembly
        received = assembly.take(chunk)
        if assembly.complete:
            self._assembly = None
            self._install(assembly.snapshot())
        self._answer_chunk(sender, chunk, received)

    def _answer_chunk(self, leader: str, chunk: SnapshotChunk, received: int) -> None:
        self._after_box.append((leader, SnapshotReply(self.term, chunk.index, received, chunk.round)))

    def _install(self, snapshot: Snapshot) -> None:
        """Replace the state by `snapshot`; keep of the log only what is known to follow it (5.3)."""
        follows = self.log.term_at(snapshot.index) == snapshot.term
        if follows:
            self.log.compact(snapshot.index)
        else:
            self.log.start_at(snapshot.index, snapshot.term)
            self._own_match = snapshot.index
        self._configurations.replace(snapshot.index, snapshot.members, keep_later=follows)
        self.snapshot = self.restored = snapshot
        self.commit = self._handed_out = snapshot.index
        self._unsaved.whole_log()

    def _on_snapshot_reply(self, sender: str, reply: SnapshotReply) -> None:
        peer = self._heard_from(sender, reply.term, reply.round)
        if peer is not None and peer.on_snapshot_reply(reply):
            self._on_progress()

    # ---- membership and transfer (3.10, 4.1, 4.2)

    def _follow_members(self) -> None:
        """Follow exactly the members of the configuration that holds."""
        self.peers = {
            member.id: self.peers.get(member.id) or Progress(self.log.last_index + 1, heard=self.now)
            for member in self.members.all
            if member.id != self.id
        }

    def _removed(self) -> bool:
        """A leader may remove itself, and leads until that is committed (4.2.2)."""
        return self.id not in self.members and not self.changing

    def _promote_learners(self) -> None:
        for member in self.members.all:
            peer = self.peers.get(member.id)
            if not member.voter and peer is not None and peer.match >= max(self.commit, self.term_start):
                self.propose_members(self.members.with_member(type(member)(member.id, member.address, True)))
                return

    def _try_transfer(self) -> None:
        if self._transfer is None:
            return
        peer = self.peers.get(self._transfer.target)
        if peer is not None and peer.match == self.log.last_index:
            self._now_box.append((self._transfer.target, TimeoutNow(self.term)))

    # ---- what goes to disk

    def _state_to_save(self) -> HardState:
        return self.hard_state

    def _set_hard_state(self, state: HardState) -> None:
        if state != self.hard_state:
            self.hard_state = state
            self._unsaved.hard_state()
