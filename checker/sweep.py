"""Decides, exactly and in O(n log n), whether the history of one key fits a fenced lease lock.

The problem
===========

A lock is `free` or `held t`; tokens grow from grant to grant. A client sees it through operations, each of which takes
effect at one moment between its invoke and its completion:

* `acquire ok t` finds it free and makes it `held t`; `acquire fail held` finds it held, by anyone.
* `release t ok` finds `held t` and makes it free; `release t fail not-held` and `renew t fail not-held` find anything
  but `held t`.
* `inspect ok t` and `renew t ok` find `held t`; `inspect ok null` finds it free.
* an operation whose outcome is unknown takes effect at any later moment, or never. So an unknown acquire may have been
  one grant, under any token that no other acquire owns. An unknown release frees what could have expired as well.
* every other failure, every unknown inspect and every unknown renew says nothing.
* a lease may end at any moment, unseen: `held t` becomes free. (How early it may end is the business of other claims.)

The history fits when one moment can be chosen for each operation such that all of this holds. A search for it doubles
with every operation of unknown outcome; but tokens give the order of the grants, and that makes it easy.

Moments
=======

A moment lies between two events. Only the gap matters: gap g is the one that follows event g, and gap -1 comes before
the history. An operation with its invoke at i and its completion at c takes effect in a gap from i to c - 1. Within a
gap moments can be ordered at will, so "not after" between moments is `<=` between gaps.

The shape
=========

A token is *shown* when something proves that it was granted: an ok acquire, release, renew or inspect. (A release that
is open or unknown, and a not-held, name a token but prove no grant.) Since tokens grow, the shown ones t1 < t2 < ...
were held in this order, so the history of the key is: free, held t1, free, held t2, ..., and all that is left to choose
are the moments `enter t1 <= exit t1 <= enter t2 <= ...`. What the operations say about them is of three kinds.

1. *Bounds.* `acquire ok t` puts `enter t` into its window, `release t ok` puts `exit t` into its own; `inspect t` and
   `renew t ok` say that `enter t` is not after their window and `exit t` not before it. (Two ok acquires, or two ok
   releases, of one token can't both be.)
2. *Must leave.* An observation is refuted only if the lock stayed in one state, which it contradicts, during its whole
   window: if anything changes in its window it may be on either side of that, and the two sides differ. `inspect null`
   must not lie inside a held interval, `acquire fail held` not inside a free one, `not-held t` not inside t's own.
   So whoever enters an interval at gap m must leave it before the completion of each observation that contradicts it
   and was invoked after gap m.
3. *Who was granted.* A shown token without an ok acquire took one of the unknown acquires.

The sweep
=========

Go through the moments in order. For each keep the set of gaps at which it can lie such that everything before is
satisfied. That set is always a range `lo..hi`:

* `leave(m)`, the last gap at which an interval entered at m may be left, grows with m: entering later leaves fewer
  observations inside. It is later than m itself, since an observation invoked after m completes even later. So with
  entries `lo..hi` the exits are `max(lo, lower bound) .. min(leave(hi), upper bound)`, all of them: exit x is reached
  from the entry min(hi, x).
* hence `lo` is simply the largest lower bound so far, and `hi` is found with one look into a suffix minimum of the
  completions of the contradicting observations, sorted by their invokes.

The history is refused when a range is empty, or when the last free interval would have to be left as nothing follows.

Unknown acquires
================

They never run out of time, so they may be used in the order of their invokes: the g-th one that is used needs its grant
not before the g-th invoke among them, and (by Hall's theorem) no more than that. There are two uses: a shown token that
nothing else explains must take one; and a free interval that would have to be left too early may be interrupted by a
*ghost*: held under a token that nobody saw, left by the same rule (only `inspect null` contradicts it). Tokens are only
compared here, never counted: between any two there may be one that nobody saw.

So keep a range for each number g of unknown acquires used so far. All ways to use g of them up to the same moment have
the same `lo`, namely the larger of the largest lower bound and the g-th invoke, so their union is again a range and one
number, `hi`, describes it. Using fewer leaves more for later, so a g whose `hi` is not beyond that of a smaller one is
dropped. And no moment can lie beyond the upper bounds of *later* moments: with `hi` cut to the smallest of these, no
ghost is tried that would only postpone what cannot be postponed further, and few numbers g are alive at a time.

Why this refuses nothing that fits and accepts nothing that doesn't: the ranges stand for every choice of moments and
uses, by the arguments above, and a range is non-empty only if some choice leads there. The tests compare it with a
search that knows nothing of all this.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from checker.operations import OPEN, Operation

#: Before the first event: every key starts free.
START = -1


class Bound(NamedTuple):
    """A limit for a moment, and the operation that sets it."""

    gap: int
    by: Operation | None


NOT_BEFORE_START = Bound(START, None)
NO_LIMIT = Bound(OPEN, None)


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
    """What the history says about one token: who was granted it, and the limits for its two moments."""

    token: int
    grants: list[Operation] = field(default_factory=list)
    releases: list[Operation] = field(default_factory=list)
    refusals: list[Operation] = field(default_factory=list)
    shown_by: Operation | None = None
    enter_from: Bound = NOT_BEFORE_START
    enter_until: Bound = NO_LIMIT
    exit_from: Bound = NOT_BEFORE_START
    exit_until: Bound = NO_LIMIT

    def granted(self, operation: Operation) -> None:
        self.grants.append(operation)
        self.shown_by = self.shown_by or operation
        self.enter_from = _later(self.enter_from, operation)
        self.enter_until = _earlier(self.enter_until, operation)

    def released(self, operation: Operation) -> None:
        self.releases.append(operation)
        self.shown_by = self.shown_by or operation
        self.exit_from = _later(self.exit_from, operation)
        self.exit_until = _earlier(self.exit_until, operation)

    def seen(self, operation: Operation) -> None:
        self.shown_by = self.shown_by or operation
        self.enter_until = _earlier(self.enter_until, operation)
        self.exit_from = _later(self.exit_from, operation)


def _later(bound: Bound, operation: Operation) -> Bound:
    return bound if bound.gap >= operation.index else Bound(operation.index, operation)


def _earlier(bound: Bound, operation: Operation) -> Bound:
    return bound if bound.gap < operation.end else Bound(operation.end - 1, operation)


@dataclass(slots=True)
class Facts:
    """What the operations of one key say, sorted by what it bears on."""

    tenures: list[Tenure]
    saw_held: list[Operation]
    saw_free: list[Operation]
    unknown: list[Operation]

    @classmethod
    def of(cls, operations: Sequence[Operation]) -> Facts:
        """`operations`: those of one key, in the order of their invokes; the guarded resource's are passed over."""
        tenures: dict[int, Tenure] = {}
        saw_held: list[Operation] = []
        saw_free: list[Operation] = []
        unknown: list[Operation] = []

        def tenure(operation: Operation) -> Tenure:
            assert operation.token is not None
            found = tenures.get(operation.token)
            if found is None:
                found = tenures[operation.token] = Tenure(operation.token)
            return found

        for operation in operations:
            f, outcome = operation.f, operation.outcome
            if f == "acquire":
                if outcome == "ok":
                    tenure(operation).granted(operation)
                elif outcome == "info":
                    unknown.append(operation)
                elif operation.error == "held":
                    saw_held.append(operation)
            elif f == "release" or f == "renew":
                if outcome == "ok":
                    of_token = tenure(operation)
                    of_token.released(operation) if f == "release" else of_token.seen(operation)
                elif outcome == "fail" and operation.error == "not-held":
                    tenure(operation).refusals.append(operation)
            elif f == "inspect" and outcome == "ok":
                if operation.token is None:
                    saw_free.append(operation)
                else:
                    tenure(operation).seen(operation)
        shown = [tenures[token] for token in sorted(tenures) if tenures[token].shown_by is not None]
        return cls(shown, saw_held, saw_free, unknown)


class Reach(NamedTuple):
    """A moment as the sweep reached it: the latest gap at which it can lie, and how that came about.

    `used` unknown acquires are used up to it. `moment` is the position in enter t1, exit t1, enter t2, ...; a ghost's
    two moments come before the moment of the same number. `forced_by` is the observation that forced it, None where the
    upper bound of this or a later moment was the limit.
    """

    used: int
    latest: int
    moment: int
    ghost: bool
    forced_by: Operation | None
    before: Reach | None


@dataclass(frozen=True, slots=True)
class Duplicate:
    """Two operations of which only one can have happened: both granted, or both released, the same token."""

    token: int
    first: Operation
    second: Operation


@dataclass(frozen=True, slots=True)
class Refusal:
    """No gap is left for a moment.

    `moment` as in `Reach`, and beyond the last one when the final free interval must be left and nothing follows.
    `not_before` is the lower limit; `candidates` are the ways to get there, none of which is late enough.
    """

    facts: Facts
    moment: int
    not_before: Bound
    candidates: tuple[Reach, ...]
    limits: tuple[Bound, ...]


def decide(operations: Sequence[Operation]) -> Duplicate | Refusal | None:
    """None when the history of the key (operations in the order of their invokes) fits; else the reason why not."""
    facts = Facts.of(operations)
    for tenure in facts.tenures:
        for twins in (tenure.grants, tenure.releases):
            if len(twins) > 1:
                return Duplicate(tenure.token, twins[0], twins[1])
    return _Sweep(facts).run()


class _Sweep:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._saw_held = Observations(facts.saw_held)
        self._saw_free = Observations(facts.saw_free)
        # The g-th used comes not before the g-th invoke; none used: no limit.
        self._unknown = [START, *(operation.index for operation in facts.unknown)]
        self._limits = _limits(facts.tenures)
        self._not_before = NOT_BEFORE_START

    def run(self) -> Refusal | None:
        reaches = [Reach(0, START, -1, False, None, None)]
        for number, tenure in enumerate(self._facts.tenures):
            for moment, advance in ((2 * number, self._enter), (2 * number + 1, self._exit)):
                candidates = advance(reaches, tenure, moment)
                reaches = [reach for reach in candidates if self._possible(reach)]
                if not reaches:
                    return self._refusal(moment, candidates)
        moment = 2 * len(self._facts.tenures)
        candidates = self._stay_free(reaches, moment)
        if candidates[-1].latest == OPEN:
            return None
        return self._refusal(moment, candidates)

    def _possible(self, reach: Reach) -> bool:
        return max(self._not_before.gap, self._unknown[reach.used]) <= reach.latest

    def _enter(self, reaches: list[Reach], tenure: Tenure, moment: int) -> list[Reach]:
        candidates = self._stay_free(reaches, moment)
        if tenure.enter_from.gap > self._not_before.gap:
            self._not_before = tenure.enter_from
        if tenure.grants:
            return candidates
        return [
            Reach(reach.used + 1, reach.latest, moment, False, reach.forced_by, reach.before)
            for reach in candidates
            if reach.used + 1 < len(self._unknown)
        ]

    def _exit(self, reaches: list[Reach], tenure: Tenure, moment: int) -> list[Reach]:
        if tenure.exit_from.gap > self._not_before.gap:
            self._not_before = tenure.exit_from
        limit = self._limits[moment].gap
        refusals = Observations(tenure.refusals) if tenure.refusals else None
        candidates: list[Reach] = []
        for reach in reaches:
            leave = self._saw_free.leave(reach.latest)
            if refusals is not None:
                leave = min(leave, refusals.leave(reach.latest), key=_gap)
            _keep(candidates, _advance(reach, moment, leave, limit))
        return candidates

    def _stay_free(self, reaches: list[Reach], moment: int) -> list[Reach]:
        """From the entries into a free interval to its end at `moment`, with as many ghosts between as can help."""
        limit = self._limits[moment].gap
        candidates: list[Reach] = []
        haunted: Reach | None = None
        waiting = iter(reaches)
        reach = next(waiting, None)
        while reach is not None or haunted is not None:
            # Both ways to have used the same number: the later one stands for both.
            entry = reach if haunted is None or (reach is not None and reach.used < haunted.used) else haunted
            assert entry is not None
            if reach is not None and reach.used == entry.used:
                entry = max(entry, reach, key=_latest)
                reach = next(waiting, None)
            haunted = None
            end = _advance(entry, moment, self._saw_held.leave(entry.latest), limit)
            if not _keep(candidates, end):
                continue
            if end.latest < limit and entry.used + 1 < len(self._unknown):
                haunted = self._ghost(entry, end, moment, limit)
        return candidates

    def _ghost(self, entry: Reach, end: Reach, moment: int, limit: int) -> Reach | None:
        """Take the key at the last gap at which the free interval may end, and leave it again as late as can be."""
        if self._unknown[entry.used + 1] > end.latest:
            return None
        taken = Reach(entry.used + 1, end.latest, moment, True, end.forced_by, entry)
        return _advance(taken, moment, self._saw_free.leave(taken.latest), limit, ghost=True)

    def _refusal(self, moment: int, candidates: list[Reach]) -> Refusal:
        return Refusal(self._facts, moment, self._not_before, tuple(candidates), tuple(self._limits))


def _limits(tenures: Sequence[Tenure]) -> list[Bound]:
    """For each moment the smallest upper bound among its own and those of all later moments."""
    limits = [NO_LIMIT]
    for tenure in reversed(tenures):
        limits.append(min(limits[-1], tenure.exit_until, key=_gap))
        limits.append(min(limits[-1], tenure.enter_until, key=_gap))
    limits.reverse()
    return limits


def _advance(reach: Reach, moment: int, leave: Exit, limit: int, *, ghost: bool = False) -> Reach:
    if leave.gap < limit:
        return Reach(reach.used, leave.gap, moment, ghost, leave.by, reach)
    return Reach(reach.used, limit, moment, ghost, None, reach)


def _keep(candidates: list[Reach], reach: Reach) -> bool:
    """Append `reach` unless one that used fewer unknown acquires comes as far."""
    if candidates and candidates[-1].latest >= reach.latest:
        return False
    candidates.append(reach)
    return True


def _gap(bound: Bound | Exit) -> int:
    return bound.gap


def _latest(reach: Reach) -> int:
    return reach.latest
