"""Mutants that are wrong about who belongs to the cluster."""

from __future__ import annotations

from cluster.node.commands import Configure
from cluster.node.core import Core
from cluster.node.members import Members
from cluster.node.protocol import Done
from cluster.node.raft import Raft
from cluster.node.raftlog import Entry
from cluster.node.steward import Caller, Steward


class OverlappingChanges(Core):
    """Two nodes can be removed at once, and the majorities before and after have nobody in common."""

    class raft_type(Raft):  # noqa: N801
        def propose_members(self, members: Members) -> Entry | None:
            if self.commit < self.term_start:
                return None
            entry = self.propose(Configure(members))
            self._follow_members()
            return entry


class DoneBeforeCommit(Core):
    """Who is told that a node is no member any more may wipe it, while others still count on what it has."""

    class steward_type(Steward):  # noqa: N801
        def _change(self, caller: Caller, node: str, members: Members, *, gone: bool) -> None:
            super()._change(caller, node, members, gone=gone)
            if gone and any(change.caller == caller for change in self._changes):
                self._answer(caller, Done(caller.id))
