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

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

from checker.facts import Duplicate, Exit, Facts, Observations, Tenure
from checker.operations import OPEN, Operation

#: Before the first event: every key starts free.
START = -1


class Bound(NamedTuple):
    """A limit for a moment, and the operation that sets it, or the moment that it must not be after (see `Later`)."""

    gap: int
    by: Operation | Later | None


NOT_BEFORE_START = Bound(START, None)
NO_LIMIT = Bound(OPEN, None)


class Later(NamedTuple):
    """Another moment that sets a limit: `reach` is how late it can be at the most, found by `sweep`. `lease` is the
    grant whose lease lies between the two, None where they are grants of different keys."""

    sweep: Sweep
    reach: Reach
    lease: Operation | None


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


class Front(NamedTuple):
    """All the ways to a moment, and the lower bound of all that follow."""

    reaches: tuple[Reach, ...]
    not_before: Bound


@dataclass(frozen=True, slots=True)
class UnknownAcquires:
    """The acquires of unknown outcome: the positions of their invokes, and each as a whole."""

    invokes: Sequence[int]
    operation: Callable[[int], Operation]


@dataclass(frozen=True, slots=True)
class Refusal:
    """No gap is left for a moment.

    `moment` as in `Reach`, and beyond the last one when the final free interval must be left and nothing follows.
    `not_before` is the lower limit; `candidates` are the ways to get there, none of which is late enough. `tenures` may
    be those of some tokens in a row: whether they start and end with the first and the last one, `starts` and `ends`
    say. Those in `owned` were got by an ok acquire.
    """

    tenures: Sequence[Tenure]
    moment: int
    not_before: Bound
    candidates: tuple[Reach, ...]
    limits: Sequence[Bound]
    unknown: UnknownAcquires
    owned: frozenset[int]
    starts: bool = True
    ends: bool = True


def decide(operations: Sequence[Operation]) -> Duplicate | Refusal | None:
    """None when the history of the key (operations in the order of their invokes) fits; else the reason why not."""
    facts = Facts.of(operations)
    return facts.duplicate or Sweep(facts).run()


class Sweep:
    """One pass. `fronts` are the possible ends of each token's interval, with the lower bound there, in their order;
    `tops` the latest that each moment can be; `ended` is the way to the end of the history, if there is one."""

    def __init__(
        self,
        facts: Facts,
        start: Front | None = None,
        unknown: Sequence[int] | None = None,
        *,
        limits: Sequence[Bound] | None = None,
        floors: Sequence[Bound] | None = None,
    ) -> None:
        """From the start of the history, or from `start` on; then `unknown` are the invokes of all unknown acquires.

        `limits` and `floors` are bounds for each moment (those of later and earlier ones included), if there are more
        than the operations of the key give."""
        self._facts = facts
        self._start = start or Front((Reach(0, START, -1, False, None, None),), NOT_BEFORE_START)
        self.fronts: list[Front] = []
        self._saw_held = Observations(facts.saw_held)
        self._saw_free = Observations(facts.saw_free)
        # The g-th used comes not before the g-th invoke; none used: no limit.
        self._unknown = [START, *(unknown or (operation.index for operation in facts.unknown))]
        self.limits: Sequence[Bound] = _limits(facts.tenures) if limits is None else limits
        self._floors = floors
        self._not_before = self._start.not_before
        self.tenures = facts.tenures
        self.tops: list[Reach] = []
        self.ended: Reach | None = None

    def again(self, limits: Sequence[Bound], first: int) -> Sweep:
        """One like this under smaller limits, which make no difference before the token of that number."""
        other = copy(self)
        other.limits = limits
        other.fronts, other.tops, other.ended = self.fronts[:first], self.tops[: 2 * first], None
        return other

    def run(self) -> Refusal | None:
        """Sweep from where `fronts` end."""
        first = len(self.fronts)
        front = self.fronts[-1] if self.fronts else self._start
        reaches, self._not_before = list(front.reaches), front.not_before
        for number, tenure in enumerate(self._facts.tenures[first:], first):
            for moment, advance in ((2 * number, self._enter), (2 * number + 1, self._exit)):
                candidates = advance(reaches, tenure, moment)
                if self._floors is not None and self._floors[moment].gap > self._not_before.gap:
                    self._not_before = self._floors[moment]
                reaches = self._possible(candidates)
                if not reaches:
                    return self.refusal(moment, candidates, self._not_before)
                self.tops.append(reaches[-1])
            self.fronts.append(Front(tuple(reaches), self._not_before))
        moment = 2 * len(self._facts.tenures)
        candidates = self._stay_free(reaches, moment)
        if candidates[-1].latest == OPEN:
            self.ended = candidates[-1]
            return None
        return self.refusal(moment, candidates, self._not_before)

    def _possible(self, candidates: list[Reach]) -> list[Reach]:
        """Those whose range is not empty."""
        lowest, unknown = self._not_before.gap, self._unknown
        return [reach for reach in candidates if lowest <= reach.latest and unknown[reach.used] <= reach.latest]

    def _enter(self, reaches: list[Reach], tenure: Tenure, moment: int) -> list[Reach]:
        candidates = self._stay_free(reaches, moment)
        if tenure.grant is not None:
            self._raise(tenure.grant)
            return candidates
        return [
            Reach(reach.used + 1, reach.latest, moment, False, reach.forced_by, reach.before)
            for reach in candidates
            if reach.used + 1 < len(self._unknown)
        ]

    def _exit(self, reaches: list[Reach], tenure: Tenure, moment: int) -> list[Reach]:
        if tenure.last_held is not None:
            self._raise(tenure.last_held)
        limit = self.limits[moment].gap
        refusals = Observations(tenure.refusals) if tenure.refusals else None
        candidates: list[Reach] = []
        for reach in reaches:
            leave = self._saw_free.leave(reach.latest)
            if refusals is not None:
                leave = min(leave, refusals.leave(reach.latest), key=_gap)
            keep(candidates, advance(reach, moment, leave, limit))
        return candidates

    def _stay_free(self, reaches: list[Reach], moment: int) -> list[Reach]:
        """From the entries into a free interval to its end at `moment`, with as many ghosts between as can help."""
        limit = self.limits[moment].gap
        candidates: list[Reach] = []
        haunted: Reach | None = None
        queue = deque(reaches)
        while queue or haunted is not None:
            if haunted is None or (queue and queue[0].used == haunted.used and queue[0].latest > haunted.latest):
                entry = queue.popleft()
            else:
                entry = haunted
                if queue and queue[0].used == haunted.used:
                    queue.popleft()
            haunted = None
            end = advance(entry, moment, self._saw_held.leave(entry.latest), limit)
            if keep(candidates, end) and end.latest < limit and entry.used + 1 < len(self._unknown):
                haunted = self._ghost(entry, end, moment, limit)
        return candidates

    def _ghost(self, entry: Reach, end: Reach, moment: int, limit: int) -> Reach | None:
        """Take the key at the last gap at which the free interval may end, and leave it again as late as can be."""
        if self._unknown[entry.used + 1] > end.latest:
            return None
        taken = Reach(entry.used + 1, end.latest, moment, True, end.forced_by, entry)
        return advance(taken, moment, self._saw_free.leave(taken.latest), limit, ghost=True)

    def _raise(self, operation: Operation) -> None:
        """No moment from here on is before the invoke of `operation`."""
        if operation.index > self._not_before.gap:
            self._not_before = Bound(operation.index, operation)

    def refusal(self, moment: int, candidates: Sequence[Reach], not_before: Bound) -> Refusal:
        unknown = UnknownAcquires(self._unknown[1:], self._facts.unknown.__getitem__)
        tenures = self._facts.tenures
        owned = frozenset(tenure.token for tenure in tenures if tenure.grant is not None)
        return Refusal(tenures, moment, not_before, tuple(candidates), self.limits, unknown, owned)


def _limits(tenures: Sequence[Tenure]) -> list[Bound]:
    """For each moment the smallest upper bound among its own and those of all later moments."""
    limit = NO_LIMIT
    limits = [limit]
    for tenure in reversed(tenures):
        for operation in (tenure.release, tenure.first_shown):
            if operation is not None and operation.end <= limit.gap:
                limit = Bound(operation.end - 1, operation)
            limits.append(limit)
    limits.reverse()
    return limits


def advance(reach: Reach, moment: int, leave: Exit, limit: int, *, ghost: bool = False) -> Reach:
    if leave.gap < limit:
        return Reach(reach.used, leave.gap, moment, ghost, leave.by, reach)
    return Reach(reach.used, limit, moment, ghost, None, reach)


def keep(candidates: list[Reach], reach: Reach) -> bool:
    """Append `reach` unless one that used fewer unknown acquires comes as far."""
    if candidates and candidates[-1].latest >= reach.latest:
        return False
    candidates.append(reach)
    return True


def _gap(bound: Bound | Exit) -> int:
    return bound.gap
