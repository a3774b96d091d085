"""Checks a run while it lasts: every event as it is recorded, and a word as soon as a safety claim is violated.

    monitor = Monitor(clock_error=0.01)
    for event in events:
        alarm = monitor.observe(event)

An alarm is never false: what is known so far contradicts itself, whatever comes later. It may come a few hundred events
late, and it may not come: the check of the whole history, afterwards, has the last word and gives the explanation.

`fencing`, `resource` and `mutual-exclusion` look at each completion as it comes. `linearizable` sweeps each key now and
then, from where it is settled. (Of keys that share one order of tokens, it notices alone that two show one token, or
that one is granted after a larger one was shown.) A moment is settled once it surely lies before the invoke of every
operation that is still open: no completion to come can bound it (its window would begin later), force it (it would end
later) or put another token before it. So the sweep can go on from there, and what only concerns settled moments can be
forgotten: memory and time depend on how much is open at a time, not on how long the run has been. Until they complete,
open operations count as ones of unknown outcome, since whoever knows less refuses less.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from heapq import heappop, heappush

from checker import mutual_exclusion
from checker.events import Event
from checker.facts import Facts
from checker.operations import OPEN, Operation, operation_of
from checker.sweep import Front, Reach, Sweep

#: A key is swept when so many of its operations have completed since the last time, or a quarter as many as are kept.
NEWS_MIN = 50

_PROOFS = frozenset(mutual_exclusion.PROOFS)


@dataclass(frozen=True, slots=True)
class Alarm:
    """`claim` is violated, as of the event at `index`."""

    claim: str
    index: int
    key: str

    def words(self) -> str:
        return f"{self.claim} of key {self.key!r} is violated, as of event {self.index}"


class Monitor:
    """`observe` every event of a well-formed history, in its order."""

    def __init__(self, *, clock_error: float = 0.0, tokens_span_keys: bool = False) -> None:
        self._clock_error = clock_error
        self._spans = tokens_span_keys
        self._open: dict[int, Event] = {}
        self._locks: dict[str, Lock] = {}
        self._fencing: dict[str, _Growing] = {}
        # Of all keys: what showed a token, and the key of each.
        self._shown = _Growing()
        self._key_of: dict[int, str] = {}
        self._resources: dict[str, _Growing] = {}
        self._leases: dict[str, _Leases] = {}
        # From the first fault on that breaks it, nothing can be said that rests on the clocks.
        self._clocks_hold = True

    def observe(self, event: Event) -> Alarm | None:
        process = event.process
        if isinstance(process, str):
            if event.value is not None and mutual_exclusion.CLOCK_ERROR in (event.value.get("breaks") or ()):
                self._clocks_hold = False
            return None
        if event.type == "invoke":
            self._open[process] = event
            self._lock(event.key).opened(event)
            if event.f in ("release", "renew") and event.key is not None:
                self._leases_of(event.key).moves(event, self._clock_error)
            return None
        invoke = self._open.pop(process, None)
        if invoke is None or event.key is None:
            return None
        operation = operation_of(process, invoke, event)
        claim = self._violated(operation, event)
        return None if claim is None else Alarm(claim, event.index, operation.key)

    def finish(self) -> Alarm | None:
        """What the operations say that came after the last sweep of their keys."""
        for key, lock in self._locks.items():
            if not lock.sweep():
                return Alarm("linearizable", lock.last, key)
        return None

    def _violated(self, operation: Operation, event: Event) -> str | None:
        f, ok = operation.f, operation.outcome == "ok"
        if f in ("write", "read"):
            if ok and operation.token is not None and operation.value.get("guarded") is not False:
                accepted = self._resources.setdefault(operation.key, _Growing())
                if accepted.behind(operation):
                    return "resource"
                accepted.add(operation)
            self._locks[operation.key].closed(operation)
            return None
        if ok and f == "acquire":
            grants = self._fencing.setdefault("" if self._spans else operation.key, _Growing())
            if operation.token in grants.seen or grants.behind(operation):
                return "fencing"
            grants.add(operation)
        if self._spans and ok and f in _PROOFS and operation.token is not None and self._out_of_order(operation):
            return "linearizable"
        if f in _PROOFS:
            leases = self._leases_of(operation.key)
            if f in ("release", "renew"):
                leases.moved(operation)
            shows = ok and operation.token is not None
            if shows and leases.violated(operation, event.time, self._clock_error) and self._clocks_hold:
                return "mutual-exclusion"
        return None if self._locks[operation.key].completed(operation) else "linearizable"

    def _out_of_order(self, proof: Operation) -> bool:
        """Whether a token is another key's as well, or was granted after a larger one was shown."""
        assert proof.token is not None
        if self._key_of.setdefault(proof.token, proof.key) != proof.key:
            return True
        behind = proof.f == "acquire" and self._shown.behind(proof)
        self._shown.add(proof)
        return behind

    def _lock(self, key: str | None) -> Lock:
        assert key is not None
        return self._locks.setdefault(key, Lock())

    def _leases_of(self, key: str) -> _Leases:
        return self._leases.setdefault(key, _Leases())


class _Growing:
    """Completed operations with tokens: asked whether a larger token had completed before an operation began."""

    __slots__ = ("_ends", "_largest", "seen")

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._largest: list[int] = []
        self.seen: set[int | None] = set()

    def behind(self, operation: Operation) -> bool:
        place = bisect_left(self._ends, operation.index)
        assert operation.token is not None
        return place > 0 and self._largest[place - 1] > operation.token

    def add(self, operation: Operation) -> None:
        assert operation.token is not None
        self.seen.add(operation.token)
        if not self._largest or operation.token > self._largest[-1]:
            self._ends.append(operation.end)
            self._largest.append(operation.token)


class _Leases:
    """As `mutual_exclusion.overlaps`, one proof after the other."""

    def __init__(self) -> None:
        self._in_force: list[tuple[int, int, int]] = []
        self._moves: dict[int, dict[int, mutual_exclusion.Move]] = {}

    def moves(self, invoke: Event, clock_error: float) -> None:
        operation = operation_of(0, invoke, None)
        if operation.token is not None:
            move = mutual_exclusion.move(operation, clock_error)
            self._moves.setdefault(operation.token, {})[operation.index] = move

    def moved(self, operation: Operation) -> None:
        of_token = self._moves.get(operation.token or 0)
        if of_token is None or operation.index not in of_token:
            return
        if operation.outcome == "fail":
            del of_token[operation.index]
        elif operation.outcome == "ok":
            move = of_token[operation.index]
            of_token[operation.index] = mutual_exclusion.Move(move.index, operation.end, move.release, move.lease_end)

    def violated(self, proof: Operation, time: int, clock_error: float) -> bool:
        assert proof.token is not None
        found = False
        while self._in_force and self._in_force[0][0] < proof.token:
            token, end, until = heappop(self._in_force)
            moves = self._moves.pop(token, {})
            left = mutual_exclusion.in_force_until(end, until, proof.end, [moves[at] for at in sorted(moves)])
            found = found or time < left
        if proof.f == "acquire" and proof.lease_ns is not None:
            until = mutual_exclusion.lease_end(proof, clock_error)
            heappush(self._in_force, (proof.token, proof.end, until))
        return found


@dataclass(slots=True)
class Lock:
    """One key's sweep, from where it is settled: `floor` is the last settled token, `front` the ways to its end."""

    front: Front | None = None
    floor: int | None = None
    kept: list[Operation] = field(default_factory=list)
    unknown: list[int] = field(default_factory=list)
    open: dict[int, Event] = field(default_factory=dict)
    news: int = 0
    last: int = 0

    def opened(self, invoke: Event) -> None:
        self.open[invoke.index] = invoke

    def closed(self, operation: Operation) -> None:
        """An operation that says nothing about the lock."""
        del self.open[operation.index]

    def completed(self, operation: Operation) -> bool:
        """Whether the key can still fit."""
        del self.open[operation.index]
        self.last = operation.end if operation.end < OPEN else self.last
        if operation.outcome == "info":
            if operation.f == "acquire":
                insort(self.unknown, operation.index)
            return True
        if self._says_nothing(operation):
            return True
        self.kept.append(operation)
        self.news += 1
        return self.news < max(NEWS_MIN, len(self.kept) // 4) or self.sweep()

    def sweep(self) -> bool:
        """Decide what is kept, and settle what can be. Whether the key still fits."""
        self.news = 0
        kept = sorted(self.kept, key=_index)
        if self.floor is not None and any(
            o.outcome == "ok" and o.token is not None and o.token <= self.floor for o in kept
        ):
            # It began after the end of the floor was settled to lie before.
            return False
        facts = Facts.of(kept)
        if facts.duplicate is not None:
            return False
        open_acquires = [index for index, invoke in self.open.items() if invoke.f == "acquire"]
        sweep = Sweep(facts, self.front, sorted([*self.unknown, *open_acquires]))
        if sweep.run() is not None:
            return False
        self._settle(sweep, facts, kept)
        return True

    def _says_nothing(self, operation: Operation) -> bool:
        if operation.outcome == "ok":
            return False
        observed = {"acquire": "held", "release": "not-held", "renew": "not-held"}.get(operation.f)
        return operation.error != observed or observed is None

    def _settle(self, sweep: Sweep, facts: Facts, kept: list[Operation]) -> None:
        open_since = min(self.open, default=OPEN)
        settled = 0
        while settled < len(sweep.fronts) and _latest(sweep.fronts[settled]) < open_since:
            settled += 1
        self.kept = kept
        if not settled:
            return
        front = sweep.fronts[settled - 1]
        self.floor = facts.tenures[settled - 1].token
        earliest = min(reach.latest for reach in front.reaches)
        used = min(reach.used for reach in front.reaches)
        self.front = Front(
            tuple(Reach(reach.used - used, reach.latest, -1, False, None, None) for reach in front.reaches),
            front.not_before._replace(by=None),
        )
        # The first ones are used up on every way; those that are open are none of them, since they began later.
        del self.unknown[:used]
        self.kept = [
            operation
            for operation in kept
            if (operation.token > self.floor if operation.token is not None else operation.index > earliest)
        ]


def _latest(front: Front) -> int:
    return max(reach.latest for reach in front.reaches)


def _index(operation: Operation) -> int:
    return operation.index
