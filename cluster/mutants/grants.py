"""Mutants that grant too early, too often, or to nobody."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cluster.node.commands import Grant, Granted, Result
from cluster.node.core import Core
from cluster.node.leases import MS
from cluster.node.locks import Hold, LockTable
from cluster.node.members import Members
from cluster.node.protocol import Acquire, Answer, Confirmed, LockRequest, Refused, Session
from cluster.node.raftlog import Entry
from cluster.node.steward import Caller, Steward, Waiter

#: The deadline of a waiter who is gone.
NEVER = 1 << 62


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


class TwoGrantsInFlight(Core):
    """Requests are judged on the applied state, and a grant does not look at what it meets."""

    class table_type(LockTable):  # noqa: N801
        def grant(self, command: Grant) -> Result:
            self.last_token = self.next_token()
            self.held[command.key] = Hold(self.last_token, command.lease_ms)
            return Granted(self.last_token)

    class steward_type(Steward):  # noqa: N801
        def holder(self, key: str) -> int | None:
            return self.table.holder(key)


class BelievedUnconfirmed(Core):
    """A grant is confirmed together with its announcement, whatever becomes of the acknowledgement."""

    class steward_type(Steward):  # noqa: N801
        def _granted(self, now: int, caller: Caller | None, entry: Entry, result: Result) -> None:
            super()._granted(now, caller, entry, result)
            if caller is not None and isinstance(result, Granted):
                self._answer(caller, Confirmed(caller.id))


class DeadWaiterBlocks(Core):
    """A waiter whose client is gone stays where it is, and nobody behind it is served."""

    class steward_type(Steward):  # noqa: N801
        def _leave_queue(self, waiter: Waiter, answer: Answer | None) -> None:
            if answer is None:
                waiter.deadline = NEVER
            else:
                super()._leave_queue(waiter, answer)

        def _serve_queue(self, now: int, key: str) -> None:
            queue = self._queues.get(key)
            if not queue or next(iter(queue.values())).deadline != NEVER:
                super()._serve_queue(now, key)


class GrantAfterTimeout(Core):
    """A waiter that is over its time is told so though its grant is on its way, of which nobody knows then."""

    @dataclass(slots=True)
    class steward_type(Steward):  # noqa: N801
        _patience: dict[Caller, int] = field(default_factory=dict)

        def _acquire(self, now: int, caller: Caller, request: Acquire) -> None:
            if request.wait_ms:
                self._patience[caller] = now + request.wait_ms * MS
            Steward._acquire(self, now, caller, request)

        def tick(self, now: int) -> None:
            Steward.tick(self, now)
            for index, caller in list(self._grants.items()):
                if caller is not None and self._patience.get(caller, NEVER) <= now:
                    del self._grants[index]
                    self._answer(caller, Refused(caller.id, "timeout"))


class ForwardedTwice(Core):
    """A copy of a request is taken for another one."""

    class steward_type(Steward):  # noqa: N801
        def request(self, now: int, session: Session, request: LockRequest) -> None:
            self._last_request.pop(session, None)
            super().request(now, session, request)
