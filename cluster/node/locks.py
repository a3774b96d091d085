"""The lock state machine: the lock table and the token counter, built by applying commands in log order.

Pure and deterministic: the same commands in the same order give the same table and the same tokens on every node.
The leader runs a second table over its whole log, committed or not; log order is apply order, so what that one
answers is exactly what the first will answer later (see `steward`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from cluster.node.commands import (
    Command,
    Expire,
    Expired,
    Grant,
    Granted,
    GrantRejected,
    NotFound,
    NothingDone,
    Release,
    Released,
    Result,
)


class Hold(NamedTuple):
    token: int
    lease_ms: int


@dataclass(slots=True)
class LockTable:
    """`held` maps each key to the grant that holds it; `last_token` counts successful grants over all keys."""

    held: dict[str, Hold] = field(default_factory=dict)
    last_token: int = 0

    def apply(self, command: Command) -> Result:
        match command:
            case Grant():
                return self.grant(command)
            case Release():
                return self.release(command)
            case Expire():
                return self.expire(command)
            case _:
                return NothingDone()

    def grant(self, command: Grant) -> Result:
        if command.key in self.held:
            return GrantRejected()
        self.last_token = self.next_token()
        self.held[command.key] = Hold(self.last_token, command.lease_ms)
        return Granted(self.last_token)

    def release(self, command: Release) -> Result:
        return NotFound() if self.held.pop(command.key, None) is None else Released()

    def expire(self, command: Expire) -> Result:
        if self.holder(command.key) != command.token:
            return Expired(existed=False)
        del self.held[command.key]
        return Expired(existed=True)

    def next_token(self) -> int:
        return self.last_token + 1

    def holder(self, key: str) -> int | None:
        """The token that holds `key`, or None when it is free."""
        hold = self.held.get(key)
        return None if hold is None else hold.token

    def copy(self) -> LockTable:
        return type(self)(dict(self.held), self.last_token)
