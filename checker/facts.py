"""What the operations of one key say about its lock, sorted by what the sweep asks for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from checker.operations import OPEN, Operation


class Exit(NamedTuple):
    """The last gap at which an interval may be left, and the observation that it would otherwise contradict."""

    gap: int
    by: Operation | None


NEVER_LEFT = Exit(OPEN, None)


class Observations:
    """Observations that contradict one state, asked for the first completion among those invoked after a gap."""

    __slots__ = ("_exits", "_invokes")

    def __init__(self, operations: Sequence[Operation]) -> None:
        """`operations` must be in the order of their invokes."""
        self._invokes = [operation.index for operation in operations]
        exits: list[Exit] = []
        best = NEVER_LEFT
        for operation in reversed(operations):
            if operation.end <= best.gap:
                best = Exit(operation.end - 1, operation)
            exits.append(best)
        exits.reverse()
        self._exits = exits

    def leave(self, entered: int) -> Exit:
        """When a state that is entered in gap `entered` must be left at the latest."""
        first = bisect_right(self._invokes, entered)
        return self._exits[first] if first < len(self._exits) else NEVER_LEFT


@dataclass(slots=True)
class Tenure:
    """What the history says about one token.

    `first_shown` is the proof of its grant that completed first, `last_held` the proof that it still held the key that
    was invoked last; `refusals` are the operations that found it not holding the key.
    """

    token: int
    grant: Operation | None = None
    release: Operation | None = None
    first_shown: Operation | None = None
    last_held: Operation | None = None
    refusals: list[Operation] | None = None

    def show(self, operation: Operation) -> Duplicate | None:
        """Take in a proof that the token was granted; they must come in the order of their invokes."""
        if self.first_shown is None or operation.end < self.first_shown.end:
            self.first_shown = operation
        if operation.f == "acquire":
            if self.grant is not None:
                return Duplicate(self.token, self.grant, operation)
            self.grant = operation
            return None
        self.last_held = operation
        if operation.f == "release":
            if self.release is not None:
                return Duplicate(self.token, self.release, operation)
            self.release = operation
        return None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Two operations of which only one can have happened: both were granted, or both released, the same token."""

    token: int
    first: Operation
    second: Operation


@dataclass(frozen=True, slots=True)
class Facts:
    """The operations of one key.

    `tenures` are those of the shown tokens, in their order. `saw_held` were refused since somebody held the lock,
    `saw_free` found it free, `unknown` are the acquires of unknown outcome: each in the order of their invokes.
    `refused` are those that found a token not holding the key which nothing shows to have held it ever.
    """

    tenures: list[Tenure]
    saw_held: list[Operation]
    saw_free: list[Operation]
    unknown: list[Operation]
    duplicate: Duplicate | None
    refused: dict[int, list[Operation]]

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> Facts:
        """`operations`: those of one key, in the order of their invokes; the guarded resource's are passed over."""
        tenures: dict[int, Tenure] = {}
        saw_held: list[Operation] = []
        saw_free: list[Operation] = []
        unknown: list[Operation] = []
        duplicate: Duplicate | None = None
        for operation in operations:
            f, outcome = operation.f, operation.outcome
            if f not in _LOCK_OPERATIONS:
                continue
            if outcome == "ok":
                token = operation.token
                if token is None:
                    saw_free.append(operation)
                    continue
                tenure = tenures.get(token)
                if tenure is None:
                    tenure = tenures[token] = Tenure(token)
                twice = tenure.show(operation)
                duplicate = duplicate or twice
            elif f == "acquire":
                if outcome == "info":
                    unknown.append(operation)
                elif operation.error == "held":
                    saw_held.append(operation)
            elif f != "inspect" and outcome == "fail" and operation.error == "not-held":
                assert operation.token is not None
                tenure = tenures.setdefault(operation.token, Tenure(operation.token))
                if tenure.refusals is None:
                    tenure.refusals = []
                tenure.refusals.append(operation)
        shown = [tenures[token] for token in sorted(tenures) if tenures[token].first_shown is not None]
        refused = {
            token: tenure.refusals
            for token, tenure in tenures.items()
            if tenure.first_shown is None and tenure.refusals is not None
        }
        return cls(shown, saw_held, saw_free, unknown, duplicate, refused)


_LOCK_OPERATIONS = frozenset(("acquire", "release", "renew", "inspect"))
