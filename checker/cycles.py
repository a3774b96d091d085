"""Verifies, edge by edge, that operations of a key contradict each other: a part of `checker.verifier`.

A cycle says of moments and events, each, that it comes before the next, and the last before the first. Moments are
those at which a token's interval is entered and left; events are the ends of operations. There is nothing to believe in
an edge: it names the rule that makes it true, and the operations that the rule asks for are looked up in the history.

- `lasts`, `order`: an operation begins before it ends; it had ended when another one began
- `tokens`: tokens are held in their order, each entered before it is left
- `effect`: an operation that was granted, released or saw a token bounds its moments
- `once`: two operations that can't both have happened: each would have to end before the other
- `nobody`: a token was shown by an operation before anybody had asked who can have been granted it
- `leave`: an observation contradicts a state. Once that is entered before it began (`since`: the edges that say so) the
  state must be left before it ends
- `lease`: an operation completed before the lease of a grant, or of its last renewal, can have been over, as long as it
  was not released. The lease began when the acquire was invoked at the earliest, or after an event that came before the
  grant (`since`: the edges that say so); clocks err by a declared share
- `last`: nothing was shown after the last token, so what ends the last free interval comes after everything
- `counted`: in whichever way acquires of unknown outcome are used, a moment comes before an event, or after it. That is
  found by `verifier.reaches`: by counting them, from the beginning of the history
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import msgspec

from checker.history import OPEN, Operation

#: A moment ("enter", "exit", with a token; "never") or an event ("invoke", "end", with the operation's invoke).
Point = tuple[str, int]

NEVER: Point = ("never", 0)

#: Edges of a cycle, and of what each rests on, that anybody would want to read.
EDGES_MAX = 100


class Wrong(Exception):
    """An edge does not hold; the message says which, and why."""


class Step(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, frozen=True):
    before: Point
    after: Point
    rule: str
    since: tuple[Step, ...] = ()


class Reach(msgspec.Struct, frozen=True):
    """Where a moment can lie, by the number of unknown acquires used: from the invoke of the last one of these, and
    from `earliest`, to `latest`."""

    moment: Point
    earliest: int
    latest: dict[int, int]


def verify(
    operations: Sequence[Operation],
    cycle: Sequence[Step],
    reaches: Sequence[Reach],
    *,
    clock_error: float | None = None,
) -> None:
    """Raises Wrong unless the cycle is closed and each edge of it holds. `operations` are all of the key. Without a
    `clock_error` leases may end at any time."""
    closed(cycle)
    key = Key(operations, reaches, clock_error=clock_error)
    for step in cycle:
        key.check(step)


def closed(cycle: Sequence[Step]) -> None:
    """Raises Wrong unless each edge goes on where the one before it ends, and the first where the last does."""
    if not cycle or len(cycle) > EDGES_MAX:
        raise Wrong(f"a cycle has 1 to {EDGES_MAX} edges, this one has {len(cycle)}")
    _follow(cycle, cycle[0].before)


def _follow(path: Sequence[Step], end: Point) -> None:
    for one, other in pairwise(path):
        if one.after != other.before:
            raise Wrong(f"after {words(one.after)} it goes on with {words(other.before)}")
    if path[-1].after != end:
        raise Wrong(f"it ends at {words(path[-1].after)}, not at {words(end)}")


def words(point: Point) -> str:
    return f"{point[0]} {point[1]}"


class Key:
    """The edges between moments of one key, and events: of its own, or of all that are `known`. Those that an edge
    rests on are left to `check`, if they may be of other keys."""

    def __init__(
        self,
        operations: Sequence[Operation],
        reaches: Sequence[Reach],
        *,
        known: Mapping[int, Operation] | None = None,
        check: Callable[[Step], None] | None = None,
        clock_error: float | None = None,
    ) -> None:
        self._clock_error = clock_error
        self._operations = operations
        self._check = check or self.check
        self._by_index = known or {operation.index: operation for operation in operations}
        self._reaches = {reach.moment: reach for reach in reaches}
        self._owner: dict[int | None, Operation] = {}
        tokens: set[int] = set()
        unknown: list[int] = []
        for operation in operations:
            if _shows(operation):
                tokens.add(operation.token or 0)
            if operation.f == "acquire" and operation.outcome == "ok":
                self._owner.setdefault(operation.token, operation)
            elif operation.f == "acquire" and operation.outcome == "info":
                unknown.append(operation.index)
        self._unknown = sorted(unknown)
        self._moments = [(what, token) for token in sorted(tokens) for what in ("enter", "exit")] + [NEVER]
        self._place = {moment: place for place, moment in enumerate(self._moments)}

    def check(self, step: Step) -> None:
        holds = {
            "lasts": self._lasts,
            "order": self._order,
            "tokens": self._tokens,
            "effect": self._effect,
            "once": self._once,
            "nobody": self._nobody,
            "leave": self._leave,
            "lease": self._lease,
            "last": self._last,
            "counted": self._counted,
        }.get(step.rule)
        if holds is None:
            raise Wrong(f"there is no rule {step.rule!r}")
        if step.since and step.rule not in ("leave", "lease"):
            raise Wrong(f"an edge by the rule {step.rule!r} rests on no others")
        if not holds(step):
            raise Wrong(f"{words(step.before)} need not come before {words(step.after)} by the rule {step.rule!r}")

    def _operation(self, point: Point, what: str) -> Operation:
        operation = self._by_index.get(point[1])
        if operation is None or point[0] != what:
            raise Wrong(f"{words(point)} is not the {what} of an operation of the key")
        if what == "end" and operation.end == OPEN:
            raise Wrong(f"the operation that begins at {point[1]} has no end that is known")
        return operation

    def _lasts(self, step: Step) -> bool:
        return self._operation(step.before, "invoke") is self._operation(step.after, "end")

    def _order(self, step: Step) -> bool:
        return self._operation(step.before, "end").end < self._operation(step.after, "invoke").index

    def _tokens(self, step: Step) -> bool:
        places = self._place.get(step.before), self._place.get(step.after)
        return places[0] is not None and places[1] is not None and places[0] < places[1]

    def _effect(self, step: Step) -> bool:
        """The operation is on the one side, the moment that it bounds on the other."""
        before = step.before[0] == "invoke"
        operation = self._operation(step.before, "invoke") if before else self._operation(step.after, "end")
        what, token = step.after if before else step.before
        if not _shows(operation) or operation.token != token or what not in ("enter", "exit"):
            return False
        # Whoever shows a token began before that was left, and ended after it was entered.
        return what == ("exit" if before else "enter") or operation.f == ("acquire" if before else "release")

    def _once(self, step: Step) -> bool:
        one, other = self._operation(step.before, "end"), self._operation(step.after, "end")
        twins = (one.f, one.token, one.outcome) == (other.f, other.token, other.outcome)
        return twins and one is not other and one.outcome == "ok" and one.f in ("acquire", "release")

    def _nobody(self, step: Step) -> bool:
        operation, token = self._operation(step.before, "end"), step.after[1]
        owner = self._owner.get(token)
        asked = owner is not None and owner.index < operation.end
        shown = _shows(operation) and operation.token == token and step.after[0] == "enter"
        return shown and not asked and not self._available(operation.end)

    def _leave(self, step: Step) -> bool:
        operation = self._operation(step.after, "end")
        begin: Point = ("invoke", operation.index)
        entered = None
        if step.since:
            entered = step.since[0].before
            _follow(step.since, begin)
            for one in step.since:
                self._check(one)
        place = self._place.get(step.before)
        before = None if entered is None else self._place.get(entered)
        if place is None or (entered is not None and before is None) or place != (0 if before is None else before + 1):
            return False
        return _contradicts(operation, entered) and not (operation.f == "acquire" and self._available(operation.end))

    def _lease(self, step: Step) -> bool:
        operation, (what, token) = self._operation(step.before, "end"), step.after
        if self._clock_error is None or what != "exit" or operation.completion is None:
            return False
        of_token = [one for one in self._operations if one.token == token and one.outcome != "fail"]
        if any(one.f == "release" and one.index < operation.end for one in of_token):
            return False
        not_before = 0
        if step.since:
            not_before = self._operation(step.since[0].before, "invoke").invoke.time
            _follow(step.since, ("enter", token))
            for one in step.since:
                self._check(one)
        # Had it ended by then, a renewal that was invoked only later had not happened.
        renewals = [one for one in of_token if one.f == "renew" and one.index < operation.end]
        last = max((renewal.index for renewal in renewals if renewal.outcome == "ok"), default=-1)

        completed, share = operation.completion.time, 1 - self._clock_error

        def lasts(lease: Operation, start: int) -> bool:
            return lease.lease_ns is not None and completed < start + int(lease.lease_ns * share)

        grants = [one for one in of_token if one.f == "acquire" and one.outcome == "ok"]
        return any(grant.end < last or lasts(grant, max(not_before, grant.invoke.time)) for grant in grants) and all(
            renewal.end < last or lasts(renewal, renewal.invoke.time) for renewal in renewals
        )

    def _last(self, step: Step) -> bool:
        self._operation(step.before, "end")
        return step.after == NEVER

    def _counted(self, step: Step) -> bool:
        first = step.before in self._place
        moment, event = (step.before, step.after) if first else (step.after, step.before)
        reach = self._reaches.get(moment)
        if reach is None:
            raise Wrong(f"nothing is known of {words(moment)}")
        what = "end" if event[0] == "end" else "invoke"
        operation = self._operation(event, what)
        at = operation.end if what == "end" else operation.index
        for used, latest in reach.latest.items():
            if used > len(self._unknown):
                continue
            earliest = self._unknown[used - 1] if used else -1
            if first and max(earliest, at) <= latest:
                return False
            if not first and max(earliest, reach.earliest) <= min(latest, at - 1):
                return False
        return True

    def _available(self, end: int) -> bool:
        """Whether an acquire of unknown outcome had been invoked by then."""
        return bool(self._unknown) and self._unknown[0] < end


def _shows(operation: Operation) -> bool:
    named = operation.f in ("acquire", "release", "renew", "inspect")
    return named and operation.outcome == "ok" and operation.token is not None


def _contradicts(operation: Operation, entered: Point | None) -> bool:
    """Whether it can't have happened wholly in the state that was entered then: free at the beginning (None) and after
    an exit, else held."""
    held = entered is not None and entered[0] == "enter"
    if operation.f == "inspect":
        return held and operation.outcome == "ok" and operation.token is None
    if operation.outcome != "fail":
        return False
    if operation.f == "acquire":
        return not held and operation.error == "held"
    named = held and entered is not None and entered[1] == operation.token
    return named and operation.f in ("release", "renew") and operation.error == "not-held"
