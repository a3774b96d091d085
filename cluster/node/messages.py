"""What Raft nodes say to each other and keep on disk."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.node.members import Members
from cluster.node.message import Message
from cluster.node.raftlog import Entry


class HardState(Message, frozen=True):
    """What must survive a crash besides the log."""

    term: int
    vote: str | None


class Snapshot(Message, frozen=True):
    """The state after applying every entry up to `index`: the state machine's `data`, and the `members`."""

    index: int
    term: int
    members: Members
    data: bytes


class VoteRequest(Message, frozen=True):
    """RequestVote; with `pre` the question whether a vote would be granted in `term`, which changes nothing. With
    `transfer` the leader itself asked for this election, so it is no reason to refuse that one leads."""

    term: int
    last_index: int
    last_term: int
    pre: bool
    transfer: bool = False


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


class SnapshotChunk(Message, frozen=True):
    """InstallSnapshot: a piece of the encoded snapshot of `index`, from `offset`; `size` is that of the whole."""

    term: int
    index: int
    offset: int
    size: int
    data: bytes
    round: int


class SnapshotReply(Message, frozen=True):
    """How many bytes of the snapshot of `index` the follower has; all of them: it is installed, and on disk."""

    term: int
    index: int
    received: int
    round: int


class TimeoutNow(Message, frozen=True):
    """Leadership transfer (3.10): the target shall begin an election at once."""

    term: int


RaftMessage = VoteRequest | VoteReply | Append | AppendReply | SnapshotChunk | SnapshotReply | TimeoutNow


@dataclass(frozen=True, slots=True)
class Compaction:
    """The log begins anew: `snapshot`, then the entries that are kept behind `base_index` (of term `base_term`)."""

    snapshot: Snapshot
    base_index: int
    base_term: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """What has to be on disk together, in this order. Entries replace whatever the log has from the first one's index
    on; a compaction replaces the whole log."""

    hard_state: HardState | None
    entries: tuple[Entry, ...]
    compaction: Compaction | None = None
