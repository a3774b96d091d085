"""Mutants that take a lock from the wrong holder, or leave it to nobody."""

from __future__ import annotations

from cluster.node.commands import Expire, Expired, Release, Result
from cluster.node.core import Core
from cluster.node.leases import Due, Leases
from cluster.node.locks import LockTable
from cluster.node.steward import Steward


class ReleaseOnAppliedState(Core):
    class steward_type(Steward):  # noqa: N801
        def _may_release(self, key: str, token: int) -> bool:
            return self.table.holder(key) == token


class ReleaseIgnoresToken(Core):
    class steward_type(Steward):  # noqa: N801
        def _may_release(self, key: str, token: int) -> bool:
            return self.holder(key) is not None


class ExpireIgnoresToken(Core):
    class leases_type(Leases):  # noqa: N801
        def end(self, token: int) -> None:
            pass

    class table_type(LockTable):  # noqa: N801
        def expire(self, command: Expire) -> Result:
            return Expired(existed=self.held.pop(command.key, None) is not None)

    class steward_type(Steward):  # noqa: N801
        def _expire(self, now: int, due: Due) -> None:
            self._propose(Expire(due.key, due.token))
            self._serve_queue(now, due.key)


class NoGhostCleanUp(Core):
    class steward_type(Steward):  # noqa: N801
        def _clean_up(self, key: str, token: int, now: int) -> None:
            pass


class CleansUpAnyHolder(Core):
    """A grant that nobody believes in is released without a look at who holds the key by now."""

    class steward_type(Steward):  # noqa: N801
        def _clean_up(self, key: str, token: int, now: int) -> None:
            self.counters["ghosts"] += 1
            self._propose(Release(key))
            self._serve_queue(now, key)
