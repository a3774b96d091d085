"""What a leader knows of one follower, and what it should send next (Ongaro 2014, sections 3.5, 5.3 and 10.2.1).

A follower is in one of three states. *Probing*: one append at a time, until it is known where the logs agree.
*Replicating*: appends are sent ahead of the answers, as far as the window allows; whatever is lost on the way shows up
as a refusal, and sends the follower back to probing. *Installing*: what it needs is no longer in the log, so it gets
the snapshot, one chunk at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cluster.node.messages import Append, AppendReply, Snapshot, SnapshotChunk, SnapshotReply
from cluster.node.raftlog import RaftLog

#: Entries in one append: with keys of the largest size a full append stays far below the frame limit.
APPEND_ENTRIES_MAX = 512

#: Appends on their way to one follower before the leader waits for an answer; enough to fill the path, and a bound on
#: what a follower that is paused finds in its socket.
APPENDS_IN_FLIGHT_MAX = 64

#: Bytes of a snapshot in one message; far below the frame limit.
CHUNK_BYTES_MAX = 256 * 1024

_encode = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class Install:
    """A snapshot on its way. `sent_at` is when the chunk at `offset` left (ns)."""

    snapshot: Snapshot
    data: bytes
    offset: int = 0
    sent_at: int | None = None


@dataclass(slots=True)
class Progress:
    """`next` is the first entry to send; `match` the last that is known to agree; `round` the newest read round that
    was answered; `heard` when the follower last answered (ns)."""

    next: int
    heard: int
    match: int = 0
    probing: bool = True
    in_flight: int = 0
    round: int = 0
    install: Install | None = None

    # ---- sending

    def appends(self, term: int, log: RaftLog, commit: int, round: int) -> list[Append]:
        """The appends with what the follower lacks, as far as its window allows; none while it gets a snapshot."""
        appends = []
        window = 1 if self.probing else APPENDS_IN_FLIGHT_MAX
        while self.install is None and self.next <= log.last_index and self.in_flight < window:
            last = min(log.last_index, self.next + APPEND_ENTRIES_MAX - 1)
            appends.append(self._append(term, log, commit, round, last))
            self.in_flight += 1
            if self.probing:
                break
            self.next = last + 1
        return appends

    def heartbeat(self, term: int, log: RaftLog, commit: int, round: int) -> Append:
        """An append without entries. While a snapshot is on its way it asks nothing of the follower's log."""
        if self.install is not None:
            return Append(term, 0, 0, (), 0, round)
        return self._append(term, log, commit, round, self.next - 1)

    def _append(self, term: int, log: RaftLog, commit: int, round: int, last: int) -> Append:
        prev_term = log.term_at(self.next - 1)
        assert prev_term is not None
        return Append(term, self.next - 1, prev_term, tuple(log.between(self.next, last)), commit, round)

    def lacks(self, log: RaftLog) -> bool:
        """Whether the follower needs entries that are no longer in the log."""
        return self.install is None and self.next <= log.base_index

    def begin_install(self, snapshot: Snapshot) -> None:
        self.install = Install(snapshot, _encode(snapshot))

    def chunk(self, term: int, round: int, now: int, again_after: int) -> SnapshotChunk | None:
        """The chunk to send now: the next one, or the same again when no answer came for `again_after` ns."""
        install = self.install
        if install is None or (install.sent_at is not None and now - install.sent_at < again_after):
            return None
        install.sent_at = now
        data = install.data[install.offset : install.offset + CHUNK_BYTES_MAX]
        return SnapshotChunk(term, install.snapshot.index, install.offset, len(install.data), data, round)

    # ---- answers

    def on_append_reply(self, reply: AppendReply) -> bool:
        """Says whether `match` has grown."""
        self.in_flight = max(0, self.in_flight - 1)
        if not reply.ok:
            self._on_reject(reply)
            return False
        return self._on_match(reply.index)

    def on_snapshot_reply(self, reply: SnapshotReply) -> bool:
        """Says whether `match` has grown."""
        install = self.install
        if install is None or reply.index != install.snapshot.index:
            return False
        if reply.received < len(install.data):
            install.offset, install.sent_at = reply.received, None
            return False
        self.install = None
        self.next = max(self.next, reply.index + 1)
        return self._on_match(reply.index)

    def _on_match(self, index: int) -> bool:
        if self.probing and index >= self.next - 1:
            self.probing, self.in_flight = False, 0
        grown = index > self.match
        self.match = max(self.match, index)
        self.next = max(self.next, self.match + 1)
        if self.match == self.next - 1:
            self.in_flight = 0
        return grown

    def _on_reject(self, reply: AppendReply) -> None:
        """Step back to where the logs may agree. A follower that refuses what it once confirmed has lost its disk; what
        it confirmed counts no longer."""
        lost = reply.index < self.match
        if lost:
            self.match = reply.index
        elif reply.rejected <= self.match or (self.probing and reply.rejected != self.next - 1):
            return  # an old one, about a place that is known to agree or is no longer asked
        self.next = max(self.match, min(reply.index, reply.rejected - 1)) + 1
        self.probing, self.in_flight = True, 0
