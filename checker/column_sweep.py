"""The sweep of `checker.sweep` over columns: the same ranges, found many moments at a time.

Nearly every moment of nearly every history can be as late as its upper bound: no observation forces it to be earlier.
Whether that is so for a moment, given that it is so for the one before, depends on nothing else, so it is found for all
moments at once, by one look into the suffix minima for all. What remains are the moments at which something happens: an
observation forces an exit before the bound, a shown token needs an unknown acquire, a range becomes empty. Only there
the sweep goes step by step, by the very rules of `checker.sweep`, until it is back at an upper bound: that makes all
other ways to get there pointless (they used more unknown acquires and came no further), so from there on it may jump to
the next moment at which something happens.

Places among the rows of the key stand for operations here; `explained` makes operations of the few that matter.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from checker.columns import (
    ACQUIRE,
    FAIL,
    HELD,
    INFO,
    INSPECT,
    NOT_HELD,
    NULL,
    NUMBER,
    OK,
    RELEASE,
    RENEW,
    Columns,
    Ints,
)
from checker.facts import Duplicate, Tenure
from checker.operations import OPEN, Operation
from checker.sweep import Bound, Reach, Refusal, UnknownAcquires

START = -1
NOBODY = -1


class Step(NamedTuple):
    """As `checker.sweep.Reach`; `forced_by` is a row, or NOBODY where the upper bound was the limit.

    Where `before` is more than one moment back, all moments between lie at their upper bounds.
    """

    used: int
    latest: int
    moment: int
    ghost: bool
    forced_by: int
    before: Step | None


class Interval(NamedTuple):
    """When the key was held: from gap `enter` to gap `exit`, under `token` (None: nobody saw it).

    `acquire` is the position of the invoke that got it.
    """

    token: int | None
    enter: int
    exit: int
    acquire: int


@dataclass(frozen=True, slots=True)
class Refused:
    """No gap is left for `moment`, or two operations can't both have happened. See `explained`."""

    lock: Lock
    moment: int
    candidates: tuple[Step, ...]
    duplicate: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Fits:
    """`last` is the way to the final moment, from which `intervals` goes back."""

    lock: Lock
    last: Step


class _Watch:
    """As `facts.Observations`: when a state must be left, for observations sorted by their invokes."""

    __slots__ = ("_gaps", "_invokes", "_listed", "_rows")

    def __init__(self, rows: Ints, invokes: Ints, ends: Ints) -> None:
        self._rows = rows
        self._invokes = invokes
        self._gaps = np.minimum.accumulate((ends - 1)[::-1])[::-1]
        self._listed: tuple[list[int], list[int]] | None = None

    def leave_all(self, entered: Ints) -> Ints:
        first = np.searchsorted(self._invokes, entered, side="right")
        return np.append(self._gaps, OPEN)[first]

    def leave(self, entered: int) -> tuple[int, int]:
        """The last gap to leave at, and the place of the observation that says so (see `row`)."""
        if self._listed is None:
            self._listed = self._invokes.tolist(), self._gaps.tolist()
        invokes, gaps = self._listed
        first = bisect_right(invokes, entered)
        return (gaps[first], first) if first < len(gaps) else (OPEN, NOBODY)

    def row(self, place: int) -> int:
        """The observation behind a place: the first one from there on that completes at its gap."""
        gap = self._gaps[place]
        last = int(np.searchsorted(self._gaps, gap, side="right")) - 1
        return int(self._rows[last])


class Lock:
    """One key: its tokens, its moments (enter t1, exit t1, enter t2, ...) and what bounds them."""

    def __init__(self, columns: Columns, rows: Ints) -> None:
        """`rows`: those of the key, in the order of their invokes."""
        f, outcome, has = columns.f[rows], columns.outcome[rows], columns.has[rows]
        index, end, token, error = columns.index[rows], columns.end[rows], columns.token[rows], columns.error[rows]
        lock = f <= INSPECT
        ok = lock & (outcome == OK)
        shown = np.flatnonzero(ok & (has == NUMBER))
        order = shown[np.argsort(token[shown], kind="stable")]
        tokens = token[order]
        starts = np.flatnonzero(np.concatenate(([True], tokens[1:] != tokens[:-1]))) if len(tokens) else _NONE
        self.columns, self.rows = columns, rows
        self.tokens = tokens[starts]
        self.count = len(starts)
        number = np.repeat(np.arange(self.count), np.diff(np.append(starts, len(tokens))))
        self.index, self.end = index, end
        self.duplicate = _duplicate(order, number, f)
        self.grant = _of_each(self.count, number, order, f == ACQUIRE)
        self.release = _of_each(self.count, number, order, f == RELEASE)
        self.first_shown, self.last_held = _NONE, _NONE
        if self.count:
            # The first completion of each token, and the last invoke of its proofs other than the grant.
            by_end = order[np.lexsort((-order, end[order], token[order]))]
            self.first_shown = by_end[starts]
            held = np.where(f[order] == ACQUIRE, START, order)
            self.last_held = np.maximum.reduceat(held, starts)
        limits = np.full(2 * self.count + 1, OPEN, np.int64)
        limits[0:-1:2] = end[self.first_shown] - 1
        limits[1:-1:2] = np.where(self.release >= 0, end[self.release] - 1, OPEN) if self.count else limits[1:-1:2]
        self._own_limits = limits
        self.limits = np.minimum.accumulate(limits[::-1])[::-1]
        lower = np.full(2 * self.count, START, np.int64)
        if self.count:
            lower[0::2] = np.where(self.grant >= 0, index[self.grant], START)
            lower[1::2] = np.where(self.last_held >= 0, index[self.last_held], START)
        self._own_lower = lower
        self.lowest = np.maximum.accumulate(lower) if self.count else lower
        self.unknown = np.flatnonzero(lock & (f == ACQUIRE) & (outcome == INFO))
        self._saw_held = self._watch((f == ACQUIRE) & (outcome == FAIL) & (error == HELD))
        self._saw_free = self._watch((f == INSPECT) & ok & (has == NULL))
        refused = np.flatnonzero(((f == RELEASE) | (f == RENEW)) & (outcome == FAIL) & (error == NOT_HELD))
        place = np.searchsorted(self.tokens, token[refused])
        known = (place < self.count) & (np.append(self.tokens, 0)[place] == token[refused])
        self._refusals = refused[known]
        self._refused_token = place[known]

    def _watch(self, mask: npt.NDArray[np.bool_]) -> _Watch:
        rows = np.flatnonzero(mask)
        return _Watch(rows, self.index[rows], self.end[rows])

    def events(self) -> Ints:
        """The moments that need a look, in their order."""
        limits, count = self.limits, self.count
        entered = np.concatenate(([START], limits[:-1]))
        leave = np.empty(2 * count + 1, np.int64)
        leave[0::2] = self._saw_held.leave_all(entered[0::2])
        leave[1::2] = self._saw_free.leave_all(entered[1::2])
        calm = leave >= limits
        calm[:-1] &= self.lowest <= limits[:-1]
        calm[0:-1:2] &= self.grant >= 0
        exits = 2 * self._refused_token + 1
        offended = (self.index[self._refusals] > entered[exits]) & (self.end[self._refusals] <= limits[exits])
        calm[exits[offended]] = False
        return np.flatnonzero(~calm)

    def refusals(self) -> dict[int, _Watch]:
        """For each token that was refused, by its number, what watches it."""
        order = np.argsort(self._refused_token, kind="stable")
        numbers, starts = np.unique(self._refused_token[order], return_index=True)
        parts = np.split(self._refusals[order], starts[1:]) if len(numbers) else []
        return {
            int(number): _Watch(part, self.index[part], self.end[part])
            for number, part in zip(numbers, parts, strict=True)
        }

    def operations(self, places: Sequence[int]) -> list[Operation]:
        """The operations at these places among the rows of the key."""
        return self.columns.operations(self.rows[list(places)])

    def limit_row(self, moment: int) -> int:
        """The operation that sets the upper bound of a moment: its own, or that of the first later one as low."""
        limit = self.limits[moment]
        if limit == OPEN:
            return NOBODY
        at = moment + int(np.argmax(self._own_limits[moment:] == limit))
        token = at // 2
        return int(self.release[token] if at % 2 else self.first_shown[token])

    def lower_row(self, moment: int) -> int:
        """The operation that sets the lower bound, NOBODY if none does."""
        lowest = int(self.lowest[moment]) if self.count else START
        if lowest == START:
            return NOBODY
        at = int(np.argmax(self._own_lower == lowest))
        return int(self.last_held[at // 2] if at % 2 else self.grant[at // 2])


_NONE: Ints = np.empty(0, np.int64)


def _of_each(count: int, number: Ints, order: Ints, mask: npt.NDArray[np.bool_]) -> Ints:
    """For each token the first of its proofs that `mask` picks, NOBODY without any."""
    found = np.full(count, NOBODY, np.int64)
    picked = mask[order]
    found[number[picked][::-1]] = order[picked][::-1]
    return found


def _duplicate(order: Ints, number: Ints, f: npt.NDArray[np.int8]) -> tuple[int, int] | None:
    """Two grants, or two releases, of one token: those of which the second was invoked first."""
    best: tuple[int, int] | None = None
    for code in (ACQUIRE, RELEASE):
        places = np.flatnonzero(f[order] == code)
        twice = np.flatnonzero(number[places][1:] == number[places][:-1])
        if len(twice):
            second = order[places[twice + 1]]
            one = int(np.argmin(second))
            pair = int(order[places[twice[one]]]), int(second[one])
            if best is None or pair[1] < best[1]:
                best = pair
    return best


def decide(lock: Lock) -> Fits | Refused:
    """Whether the history of the key fits, as `checker.sweep.decide` does."""
    if lock.duplicate is not None:
        return Refused(lock, 0, (), lock.duplicate)
    return _Walk(lock).run()


class _Walk:
    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._events = lock.events()
        self._final = 2 * lock.count

    def run(self) -> Fits | Refused:
        lock, final = self._lock, self._final
        start = Step(0, START, -1, False, NOBODY, None)
        events = self._events.tolist()
        if not events:
            return Fits(lock, Step(0, OPEN, final, False, NOBODY, start))
        self._limits: list[int] = lock.limits.tolist()
        self._lowest: list[int] = lock.lowest.tolist()
        self._granted: list[bool] = (lock.grant >= 0).tolist()
        self._unknown: list[int] = [START, *lock.index[lock.unknown].tolist()]
        self._refusals = lock.refusals()
        reaches, moment = [start], 0
        while True:
            if len(reaches) == 1 and (moment == 0 or reaches[0].latest == self._limits[moment - 1]):
                place = bisect_right(events, moment - 1)
                ahead = events[place] if place < len(events) else final + 1
                if ahead > moment:
                    moment = ahead
                    reaches = [Step(reaches[0].used, self._limits[moment - 1], moment - 1, False, NOBODY, reaches[0])]
                if moment > final:
                    return Fits(lock, reaches[0])
            if moment == final:
                candidates = self._stay_free(reaches, moment)
                if candidates[-1].latest == OPEN:
                    return Fits(lock, candidates[-1])
                return Refused(lock, moment, tuple(candidates))
            candidates = self._exit(reaches, moment) if moment % 2 else self._enter(reaches, moment)
            lowest = self._lowest[moment]
            unknown = self._unknown
            reaches = [one for one in candidates if lowest <= one.latest and unknown[one.used] <= one.latest]
            if not reaches:
                return Refused(lock, moment, tuple(candidates))
            moment += 1

    def _enter(self, reaches: list[Step], moment: int) -> list[Step]:
        candidates = self._stay_free(reaches, moment)
        if self._granted[moment // 2]:
            return candidates
        enough = len(self._unknown) - 1
        return [
            Step(used + 1, latest, moment, False, forced_by, before)
            for used, latest, moment, _, forced_by, before in candidates
            if used < enough
        ]

    def _exit(self, reaches: list[Step], moment: int) -> list[Step]:
        limit = self._limits[moment]
        watch = self._lock._saw_free
        refusals = self._refusals.get(moment // 2)
        candidates: list[Step] = []
        for reach in reaches:
            gap, place = watch.leave(reach.latest)
            by = watch
            if refusals is not None and (other := refusals.leave(reach.latest))[0] < gap:
                gap, place = other
                by = refusals
            _keep(candidates, _advance(reach, moment, gap, limit, by, place))
        return candidates

    def _stay_free(self, reaches: list[Step], moment: int) -> list[Step]:
        limit = self._limits[moment]
        watch, enough = self._lock._saw_held, len(self._unknown) - 1
        candidates: list[Step] = []
        haunted: Step | None = None
        queue = deque(reaches)
        while queue or haunted is not None:
            if haunted is None or (queue and queue[0].used == haunted.used and queue[0].latest > haunted.latest):
                entry = queue.popleft()
            else:
                entry = haunted
                if queue and queue[0].used == haunted.used:
                    queue.popleft()
            haunted = None
            gap, place = watch.leave(entry.latest)
            end = _advance(entry, moment, gap, limit, watch, place)
            if _keep(candidates, end) and end.latest < limit and entry.used < enough:
                haunted = self._ghost(entry, end, moment, limit)
        return candidates

    def _ghost(self, entry: Step, end: Step, moment: int, limit: int) -> Step | None:
        if self._unknown[entry.used + 1] > end.latest:
            return None
        taken = Step(entry.used + 1, end.latest, moment, True, end.forced_by, entry)
        watch = self._lock._saw_free
        gap, place = watch.leave(taken.latest)
        return _advance(taken, moment, gap, limit, watch, place, ghost=True)


def _advance(
    reach: Step, moment: int, leave: int, limit: int, watch: _Watch, place: int, *, ghost: bool = False
) -> Step:
    if leave < limit:
        return Step(reach.used, leave, moment, ghost, watch.row(place), reach)
    return Step(reach.used, limit, moment, ghost, NOBODY, reach)


def _keep(candidates: list[Step], reach: Step) -> bool:
    if candidates and candidates[-1].latest >= reach.latest:
        return False
    candidates.append(reach)
    return True


def moments(fits: Fits) -> Ints:
    """When each token was granted and ended, by turns: the latest gaps on the way that was found."""
    lock, final = fits.lock, 2 * fits.lock.count
    latest: Ints = lock.limits[:-1].copy()
    step: Step | None = fits.last
    while step is not None:
        if 0 <= step.moment < final and not step.ghost:
            latest[step.moment] = step.latest
        step = step.before
    return latest


def intervals(fits: Fits) -> list[Interval]:
    """A way in which the key can have been held: of each moment, given the next one, the latest that is possible."""
    lock, final = fits.lock, 2 * fits.lock.count
    latest = lock.limits[:-1].copy()
    owner = np.where(lock.grant >= 0, lock.grant, NOBODY)
    ghosts: list[tuple[int, Step, Step]] = []
    step: Step | None = fits.last
    while step is not None:
        if step.ghost:
            assert step.before is not None
            ghosts.append((step.moment, step.before, step))
            step = step.before.before
            continue
        if 0 <= step.moment < final:
            latest[step.moment] = step.latest
            if step.moment % 2 == 0 and lock.grant[step.moment // 2] < 0:
                owner[step.moment // 2] = lock.unknown[step.used - 1]
        step = step.before
    ghosts.reverse()
    places = [moment for moment, _, _ in ghosts]
    tokens: list[int | None] = lock.tokens.tolist()
    owners = owner.tolist()
    for moment, taken, _ in reversed(ghosts):
        tokens.insert(moment // 2, None)
        owners.insert(moment // 2, int(lock.unknown[taken.used - 1]))
    gaps = [gap for _, taken, left in ghosts for gap in (taken.latest, left.latest)]
    moments = np.insert(latest, np.repeat(places, 2).astype(np.int64), gaps)
    moments = np.minimum.accumulate(moments[::-1])[::-1]
    acquires = lock.index[owners].tolist() if owners else []
    return [
        Interval(*found) for found in zip(tokens, moments[0::2].tolist(), moments[1::2].tolist(), acquires, strict=True)
    ]


def explained(refused: Refused) -> Duplicate | Refusal:
    """The reason in terms of operations, as `checker.sweep` gives it: only the tokens along the ways that ended."""
    lock = refused.lock
    if refused.duplicate is not None:
        one, other = lock.operations(refused.duplicate)
        assert one.token is not None
        return Duplicate(one.token, one, other)
    steps: dict[int, Step] = {}
    rows: set[int] = set()
    for candidate in refused.candidates:
        step: Step | None = candidate
        while step is not None and id(step) not in steps:
            steps[id(step)] = step
            rows.add(step.forced_by)
            at_limit = step.moment >= 0 and step.latest == lock.limits[step.moment]
            step = None if at_limit else step.before
    # The tokens from the first that matters to the last, counted anew.
    first = min((max(step.moment, 0) for step in steps.values()), default=refused.moment) // 2
    last = min(refused.moment // 2 + 1, lock.count)
    limits = [lock.limit_row(moment) for moment in range(2 * first, refused.moment + 1)]
    lower = lock.lower_row(min(refused.moment, 2 * lock.count - 1))
    bounds = [row for row in (*limits, lower) if row != NOBODY]
    named = np.searchsorted(lock.tokens, lock.columns.token[lock.rows[bounds]]).tolist()
    limits = [NOBODY] * (2 * (first - min([first, *named]))) + limits
    first, last = min([first, *named]), max([last, *(token + 1 for token in named)])
    shown = {refused.moment // 2} & set(range(lock.count))
    rows |= {*bounds, *(int(lock.first_shown[token]) for token in shown)}
    rows.discard(NOBODY)
    ordered = sorted(rows)
    operations = dict(zip(ordered, lock.operations(ordered), strict=True))

    def reach(step: Step) -> Reach:
        # A way may be long, so it is followed without recursion, from its start.
        way = [step]
        while way[-1].before is not None and id(way[-1].before) in steps:
            way.append(way[-1].before)
        # Only the start of the history has nothing before it; how a way came to an upper bound is of no interest.
        before = None if way[-1].before is None else Reach(0, START, -1, False, None, None)
        for one in reversed(way):
            by = operations.get(one.forced_by)
            before = Reach(one.used, one.latest, max(one.moment - 2 * first, -1), one.ghost, by, before)
        assert before is not None
        return before

    return Refusal(
        tenures=[
            Tenure(token, first_shown=operations[int(lock.first_shown[number])] if number in shown else None)
            for number, token in enumerate(lock.tokens[first:last].tolist(), first)
        ],
        moment=refused.moment - 2 * first,
        not_before=Bound(START, None) if lower == NOBODY else Bound(operations[lower].index, operations[lower]),
        candidates=tuple(map(reach, refused.candidates)),
        limits=[
            Bound(OPEN, None) if row == NOBODY else Bound(operations[row].end - 1, operations[row]) for row in limits
        ],
        unknown=UnknownAcquires(
            lock.index[lock.unknown].tolist(), lambda number: lock.operations([int(lock.unknown[number])])[0]
        ),
        owned=frozenset(lock.tokens[lock.grant >= 0].tolist()),
        starts=first == 0,
        ends=last == lock.count,
    )
