"""Mutants that break what Raft rests on."""

from __future__ import annotations

from cluster.node.core import Core
from cluster.node.messages import HardState
from cluster.node.raft import Raft


class VoteNotPersisted(Core):
    class raft_type(Raft):  # noqa: N801
        def _state_to_save(self) -> HardState:
            return HardState(self.term, None)


class CommitWithMinority(Core):
    class raft_type(Raft):  # noqa: N801
        def _majority(self, reached: dict[str, int]) -> int:
            return max(reached.values())
