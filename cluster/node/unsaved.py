"""What of a node's state is not on its way to disk yet."""

from __future__ import annotations

from cluster.node.messages import Batch, Compaction, HardState, Snapshot
from cluster.node.raftlog import Entry, RaftLog


class Unsaved:
    """Collects changes until `take` makes one batch of them."""

    def __init__(self) -> None:
        self._from: int | None = None
        self._state = False
        self._whole_log = False
        #: Whether there is something to take.
        self.any = False

    def entry(self, index: int) -> None:
        """The entry at `index` is new, and everything behind it."""
        self._from = min(self._from or index, index)
        self.any = True

    def hard_state(self) -> None:
        self._state = self.any = True

    def whole_log(self) -> None:
        """The log begins anew, behind a snapshot."""
        self._whole_log = self.any = True

    def take(self, state: HardState, snapshot: Snapshot | None, log: RaftLog) -> Batch | None:
        """Everything that changed since the last call; None when nothing did."""
        if not self.any:
            return None
        compaction: Compaction | None = None
        entries: tuple[Entry, ...] = ()
        if self._whole_log:
            assert snapshot is not None
            kept = tuple(log.between(log.base_index + 1, log.last_index))
            compaction = Compaction(snapshot, log.base_index, log.base_term, kept)
        elif self._from is not None:
            entries = tuple(log.between(self._from, log.last_index))
        batch = Batch(state if self._state else None, entries, compaction)
        self._from, self._state, self._whole_log, self.any = None, False, False, False
        return batch
