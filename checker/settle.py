"""Settles operations of unknown outcome from the log that the nodes committed: which took effect, under which token,
and by when; and which never did.

Rules. What is taken for a fact must be one, for a guess would make a violation of what was none.

1. The recorded history stays as it is. Claims on what the lock went through look at a copy in which settled operations
   have an outcome; claims on what clients were told look at the recorded one.
2. Nothing is settled unless all nodes agree on every entry that they applied.
3. An operation *took effect* if the log has an entry that a leader made for this very operation, and that entry granted
   or released a lock. A release must have removed the operation's own token: who held the key is found by going through
   the log from its first entry, so that needs a log without a hole.
4. It *had no effect* if its entry did nothing, or if it has none in a log that lacks nothing that anybody was told of.
   It may still come to something after the last entry; but nothing in the history rests on that.
5. *By when*: entries take effect in the order of the log. So an operation took effect before the completion of any
   known operation with a later entry. And a node noted a time by which it had applied the entry; where its clock is
   the history's, the effect came before each event that was recorded later than that.
6. A settled grant promises nothing to its client, who was never told: it shows who held the key, and has no lease.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from checker.committed import EXPIRED, RELEASED, Applied, CommittedLog, Evidence
from checker.events import Event
from checker.history import OPEN, History
from checker.operations import Operation

#: The error of operations that are known to have had no effect; no observation of the lock.
NO_EFFECT = "no-effect"

#: The numbers of the claim `linearizable` that tell of it.
SETTLED_NUMBERS = ("settled_effect", "settled_no_effect", "unsettled")

#: What lies between a clock's reading and its place in the history is rounded; 1 us is a thousand times that.
ROUNDING_NS = 1_000


@dataclass(frozen=True, slots=True)
class Settled:
    """`history` has the events that were recorded, and operations of which some are settled. Counts, of the operations
    of unknown outcome that could have changed a lock: those that took effect, those that did not, and the rest."""

    history: History
    took_effect: int
    no_effect: int
    open: int

    def numbers(self) -> dict[str, int | float]:
        return dict(zip(SETTLED_NUMBERS, (self.took_effect, self.no_effect, self.open), strict=True))


def settle(history: History, evidence: Evidence) -> Settled:
    log = CommittedLog.of_evidence(evidence)
    usable = log.agreed and bool(evidence.proposals)
    settler = _Settler(history, log) if usable else None
    changed: dict[int, Operation] = {}
    took_effect = no_effect = still_open = 0
    for operation in history.operations:
        if operation.outcome != "info" or operation.f not in ("acquire", "release"):
            continue
        settled = None if settler is None else settler.settle(operation)
        if settled is None:
            still_open += 1
            continue
        changed[operation.index] = settled
        took_effect += settled.outcome == "ok"
        no_effect += settled.outcome == "fail"
    return Settled(_with(history, changed), took_effect, no_effect, still_open)


def _with(history: History, changed: Mapping[int, Operation]) -> History:
    if not changed:
        return history

    def of(operations: Sequence[Operation]) -> list[Operation]:
        return [changed.get(operation.index, operation) for operation in operations]

    by_key = {key: of(operations) for key, operations in history.by_key.items()}
    return replace(history, operations=of(history.operations), by_key=by_key)


class _Settler:
    def __init__(self, history: History, log: CommittedLog) -> None:
        self._log = log
        self._events = history.events
        self._times = [event.time for event in history.events]
        self._holders = _holders(log) if log.whole else {}
        self._ends = _ends(history, log)
        self._indices = sorted(self._ends)
        # The first completion among known operations whose entries come from this one on.
        self._first_end = [self._ends[index] for index in self._indices]
        for place in reversed(range(len(self._first_end) - 1)):
            self._first_end[place] = min(self._first_end[place], self._first_end[place + 1])

    def settle(self, operation: Operation) -> Operation | None:
        """The operation with an outcome; None where that is not known."""
        entries = self._log.of.get(operation.index, ())
        if len(entries) > 1:
            return None
        if not entries:
            return _without_effect(operation) if self._log.whole else None
        entry = entries[0]
        if entry.key != operation.key:
            return None
        if not entry.effective:
            return _without_effect(operation)
        if (operation.f == "acquire") != (entry.token is not None):
            return None
        if operation.f == "release" and self._holders.get(entry.index) != operation.token:
            return None
        end = self._end(entry)
        # An effect before its cause: then the record is not of this history.
        return _took_effect(operation, entry, end, self._event(end)) if end > operation.index else None

    def _end(self, entry: Applied) -> int:
        """The position of the first event that is known to come after the effect; behind the last where none is."""
        end = len(self._events)
        place = bisect_right(self._indices, entry.index)
        if place < len(self._first_end):
            end = min(end, self._first_end[place])
        known_by = self._log.known_by.get(entry.index)
        if known_by is not None:
            end = min(end, bisect_right(self._times, known_by + ROUNDING_NS))
        return end

    def _event(self, end: int) -> Event:
        return self._events[min(end, len(self._events) - 1)]


def _ends(history: History, log: CommittedLog) -> dict[int, int]:
    """The completions of the operations that clients saw succeed, by the entry that did what they asked for."""
    ends: dict[int, int] = {}
    for operation in history.operations:
        if operation.outcome == "ok":
            for entry in log.of.get(operation.index, ()):
                if entry.effective:
                    ends[entry.index] = operation.end
    return ends


def _holders(log: CommittedLog) -> dict[int, int | None]:
    """For each entry that removed a lock, the token that held it until then."""
    held: dict[str | None, int] = {}
    removed: dict[int, int | None] = {}
    for index, entry in log.entries.items():
        if entry.token is not None:
            held[entry.key] = entry.token
        elif entry.result in (RELEASED, EXPIRED):
            removed[index] = held.pop(entry.key, None)
    return removed


def _took_effect(operation: Operation, entry: Applied, end: int, event: Event) -> Operation:
    token = operation.token if operation.f == "release" else entry.token
    known = Event(end, event.time, operation.process, "ok", operation.f, operation.key, {"token": token})
    return msgspec.structs.replace(
        operation,
        completion=known,
        end=end,
        outcome="ok",
        token=token,
        error=None,
        lease_ns=None,
        settled=entry.index,
    )


def _without_effect(operation: Operation) -> Operation:
    end = OPEN if operation.completion is None else operation.completion.index
    return msgspec.structs.replace(operation, end=end, outcome="fail", error=NO_EFFECT)
