"""Mutants that say what they do not know."""

from __future__ import annotations

from collections.abc import Callable

from cluster.node.core import Core
from cluster.node.protocol import Answer, Refused
from cluster.node.steward import Caller, Steward


class ReadsWithoutQuorum(Core):
    class steward_type(Steward):  # noqa: N801
        def _read(self, caller: Caller, index: int, answer: Callable[[], Answer]) -> None:
            self._answer(caller, answer())


class ReadsBeforeTermStart(Core):
    """A new leader reads what it knows to be committed, before it knows all that is."""

    class steward_type(Steward):  # noqa: N801
        def _read(self, caller: Caller, index: int, answer: Callable[[], Answer]) -> None:
            early = index == self.raft.term_start and self.raft.commit < index
            super()._read(caller, self.raft.commit if early else index, answer)


class HeldFromMemory(Core):
    class steward_type(Steward):  # noqa: N801
        def _refuse(self, caller: Caller, error: str) -> None:
            if error == "held":
                self._answer(caller, Refused(caller.id, error))
            else:
                super()._refuse(caller, error)


class NotHeldFromProjection(Core):
    """That a key is not held under a token may rest on an expiry that is not committed yet."""

    class steward_type(Steward):  # noqa: N801
        def _refuse(self, caller: Caller, error: str) -> None:
            if error == "not-held":
                self._read(caller, self.raft.commit, lambda: Refused(caller.id, error))
            else:
                super()._refuse(caller, error)
