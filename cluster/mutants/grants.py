"""Mutants that grant, or answer, too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cluster.node.commands import Granted
from cluster.node.core import Core
from cluster.node.members import Members
from cluster.node.protocol import Answer
from cluster.node.steward import Caller, Steward


class EveryNodeGrants(Core):
    """Nobody else is asked: each node is a cluster of its own."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**(parts | {"members": Members.of_voters({parts["id"]: ""})}))


class GrantBeforeCommit(Core):
    class steward_type(Steward):  # noqa: N801
        def _grant(self, now: int, key: str, lease_ms: int, caller: Caller) -> None:
            super()._grant(now, key, lease_ms, caller)
            del self._grants[self.raft.log.last_index]
            entry = self.raft.log.between(self.raft.log.last_index, self.raft.log.last_index)[0]
            self._granted(now, caller, entry, Granted(self.projected.last_token))


class ReadsWithoutQuorum(Core):
    class steward_type(Steward):  # noqa: N801
        def _read(self, caller: Caller, index: int, answer: Callable[[], Answer]) -> None:
            self._answer(caller, answer())
