"""Whether keys fit under one order of tokens, over columns: the greatest moments of `checker.together`.

The upper bounds of all tokens' grants are cut to those of all larger tokens, at once. Then each key is swept; where its
grants turn out to be earlier than their bounds, these are cut again, and the keys swept that this concerns. If in the
end the moments of all grants are in the order of their tokens, these are the solution. If that does not come about,
somebody else has to find out why: `checker.together` knows all ways to use acquires of unknown outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from checker import column_sweep
from checker.column_sweep import NOBODY, Fits, Lock
from checker.columns import Ints
from checker.operations import OPEN, Operation

T = TypeVar("T")

#: How often bounds are cut before the plain way is left to find out.
ROUNDS_MAX = 100


class Locks:
    """All keys of a history. While they are decided, the bounds of their moments are those of all keys together."""

    def __init__(self, locks: Sequence[Lock]) -> None:
        self._locks = locks
        tokens = np.concatenate([lock.tokens for lock in locks])
        self._order = np.argsort(tokens, kind="stable")
        ordered = tokens[self._order]
        self.unique = not bool((ordered[1:] == ordered[:-1]).any()) and all(lock.duplicate is None for lock in locks)
        self._bounds = np.cumsum([0, *(lock.count for lock in locks)])
        self._limits = [lock.limits for lock in locks]
        self._lowest = [lock.lowest for lock in locks]

    def fit(self) -> bool:
        """Whether a solution was found. False says nothing."""
        return self._found(lambda _: True) is not None

    def witness(self) -> list[list[column_sweep.Interval]] | None:
        """Of each key the intervals in which it can have been held, if a solution was found."""
        return self._found(lambda verdicts: [column_sweep.intervals(verdict) for verdict in verdicts])

    def _found(self, made: Callable[[list[Fits]], T]) -> T | None:
        """What is made of the solution while its bounds are in place."""
        if not self.unique:
            return None
        try:
            verdicts = self._search()
            return None if verdicts is None else made(verdicts)
        finally:
            for lock, limits, lowest in zip(self._locks, self._limits, self._lowest, strict=True):
                lock.limits, lock.lowest = limits, lowest

    def _search(self) -> list[Fits] | None:
        enters = self._joined([lock.limits[0:-1:2] for lock in self._locks])
        for lock, of_lock in zip(self._locks, self._split(self._floors()), strict=True):
            lowest = lock.lowest.copy()
            lowest[0::2] = of_lock
            lock.lowest = np.maximum.accumulate(lowest) if lock.count else lowest
        ways = [lock.limits[:-1] for lock in self._locks]
        verdicts: list[Fits] = []
        fresh = True
        for _ in range(ROUNDS_MAX):
            least = np.minimum.accumulate(enters[::-1])[::-1]
            if not fresh and np.array_equal(least, enters):
                return verdicts
            for place, (lock, of_lock) in enumerate(zip(self._locks, self._split(least), strict=True)):
                if not fresh and not (of_lock < ways[place][0::2]).any():
                    continue
                lock.limits = _limits(lock.limits, of_lock)
                verdict = column_sweep.decide(lock)
                if not isinstance(verdict, Fits):
                    return None
                verdicts[place : place + 1] = [verdict]
                ways[place] = column_sweep.moments(verdict)
            fresh = False
            enters = self._joined([way[0::2] for way in ways])
        return None

    def impossible(self) -> list[Operation]:
        """A few operations that contradict each other already by the bounds that they set, if there are any: those that
        `checker.together` finds first."""
        if not self.unique:
            return self._granted_twice()
        limits = self._joined([lock.limits[0:-1:2] for lock in self._locks])
        floors = self._floors()
        least = np.minimum.accumulate(limits[::-1])[::-1]
        crossed = np.flatnonzero(floors > least)
        if not len(crossed):
            return []
        low = int(crossed[0])
        high = low + int(np.argmax(limits[low:] == least[low]))
        lock, number = self._at(low)
        found = _with_owners(lock, number, lock.lower_row(2 * number))
        lock, number = self._at(high)
        return found + _with_owners(lock, number, lock.limit_row(2 * number))

    def _granted_twice(self) -> list[Operation]:
        """The first proofs of a token that two keys show."""
        tokens = self._joined([lock.tokens for lock in self._locks])
        twice = np.flatnonzero(tokens[1:] == tokens[:-1])
        if not len(twice):
            return []
        keys = np.searchsorted(self._bounds, self._order[twice + 1], side="right")
        at = int(twice[np.lexsort((tokens[twice], keys))[0]])
        found: list[Operation] = []
        for place in (at, at + 1):
            lock, number = self._at(place)
            found += _with_owners(lock, number, int(lock.first_shown[number]))
        return found

    def _at(self, place: int) -> tuple[Lock, int]:
        """The key of the token at this place in the order of tokens, and its place among those of the key."""
        whole = int(self._order[place])
        key = int(np.searchsorted(self._bounds, whole, side="right")) - 1
        return self._locks[key], whole - int(self._bounds[key])

    def _joined(self, parts: Sequence[Ints]) -> Ints:
        """What each token has, in the order of the tokens."""
        return np.concatenate(parts)[self._order]

    def _split(self, ordered: Ints) -> list[Ints]:
        parts = np.empty_like(ordered)
        parts[self._order] = ordered
        return [parts[one:other] for one, other in zip(self._bounds[:-1], self._bounds[1:], strict=True)]

    def _floors(self) -> Ints:
        """For each token the lower bound of its grant, those of all smaller ones included."""
        return np.maximum.accumulate(self._joined([lock.lowest[0::2] for lock in self._locks]))


def _with_owners(lock: Lock, number: int, row: int) -> list[Operation]:
    """The operation in this row, and what shows and owns its token and the token `number`."""
    numbers = {number, int(np.searchsorted(lock.tokens, lock.columns.token[lock.rows[row]]))}
    rows = {row, *(int(lock.first_shown[one]) for one in numbers), *(int(lock.grant[one]) for one in numbers)}
    return lock.operations(sorted({*rows, *lock.unknown[: len(numbers)].tolist()} - {NOBODY}))


def _limits(limits: Ints, enters: Ints) -> Ints:
    """The bounds of a key's moments, those of its grants cut to `enters`: no exit is after the next grant."""
    cut = limits.copy()
    cut[0:-1:2] = np.minimum(cut[0:-1:2], enters)
    cut[1:-1:2] = np.minimum(cut[1:-1:2], np.append(cut[2:-1:2], OPEN) if len(enters) else cut[1:-1:2])
    return cut
