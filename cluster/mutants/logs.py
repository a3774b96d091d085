"""Mutants whose log, snapshot or disk is not what Raft takes it for."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from cluster.node.core import Core, Outputs
from cluster.node.messages import Append
from cluster.node.raft import Raft
from cluster.node.raftlog import Entry
from cluster.node.storage import Contents, Storage


class AnswersBeforeFsync(Core):
    def collect(self, now: int) -> Outputs:
        out = super().collect(now)
        return replace(out, now=[*out.now, *out.after_persist], after_persist=[])


class KeepsTornTail(Storage):
    @staticmethod
    def goes_on_at(data: bytes, end: int) -> int:
        """Behind what a crash left of the last records."""
        return max(end, len(data.rstrip(b"\0")))


class CutsAtDamage(Storage):
    @staticmethod
    def recover(data: bytes, path: Path) -> tuple[Contents, int]:
        return Contents.read(data, path)


class NoConsistencyCheck(Core):
    class raft_type(Raft):  # noqa: N801
        def _agrees_with(self, append: Append) -> bool:
            return append.prev_index <= self.log.last_index


class KeepsConflicts(Core):
    """An entry that is there already stays, whatever the leader's is."""

    class raft_type(Raft):  # noqa: N801
        def _take_entries(self, entries: Iterable[Entry]) -> None:
            super()._take_entries(entry for entry in entries if entry.index > self.log.last_index)


class MergesSnapshots(Core):
    """A snapshot is added to the state that the node has, instead of replacing it."""

    def _restore(self, now: int) -> None:
        held = dict(self.table.held)
        before = self.raft.snapshot.index if self.raft.snapshot else 0
        restored = self.applied
        super()._restore(now)
        if before and self.applied != restored:
            self.table.held = held | self.table.held


class AppliesTwice(Core):
    """A node that starts applies what its log has, whether or not its snapshot has it too."""

    def _restore(self, now: int) -> None:
        starts = self.applied == 0
        super()._restore(now)
        if starts and self.applied:
            self.raft._handed_out = self.raft.log.base_index
