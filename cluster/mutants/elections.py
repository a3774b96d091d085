"""Mutants that break what Raft rests on."""

from __future__ import annotations

from collections.abc import Iterable

from cluster.node.core import Core
from cluster.node.raft import HardState, Raft


class VoteNotPersisted(Core):
    class raft_type(Raft):  # noqa: N801
        def _state_to_save(self) -> HardState:
            return HardState(self.term, None)


class CommitWithMinority(Core):
    class raft_type(Raft):  # noqa: N801
        def _majority(self, own: int, others: Iterable[int]) -> int:
            return max(own, *others, 0)
