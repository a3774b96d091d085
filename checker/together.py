"""Decides whether moments fit that depend on each other across keys, or on the time that a lease lasts.

Two promises reach beyond what `checker.sweep` decides for a key by itself:

* *one order of tokens over all keys*: a larger token was granted later, whatever its key;
* *leases*: what an ok acquire was granted does not end, unless it is released, before its lease can be over.

Both say how two moments lie to each other. `enter 5 <= enter 7`, though 5 and 7 are tokens of different keys. And
`enter 5 + lease <= exit 5`, of which more below.

Greatest moments
================

All that a sweep knows about moments has one of these forms: a bound from below, a bound from above, or `later <=
f(earlier)` where f grows (leave before somebody sees what can't be seen). The two promises add `earlier <= g(later)`,
where g grows too. Take two solutions of such constraints and of each moment the later one of the two: that is a
solution again. So there is a greatest one, in which each moment is as late as it is in any, and it is found by going
down from the upper bounds: sweep each key, with the upper bounds as they are; lower the bounds of all moments that the
promises put before the ones that turned out to be earlier; sweep again the keys to which this makes a difference. What
is refused on the way is impossible, and where nothing changes any more the greatest solution is found.

Unknown acquires
================

The sweep keeps several ways to a moment if more unknown acquires let it be later. The greatest moment over all ways is
an upper bound for it in any solution, so what is refused is still impossible. But the greatest moments of several keys
need not go together: being late here may take an unknown acquire that is needed there. So of each key one way is taken,
that of the fewest unknown acquires. Mostly its moments keep the promises, and are the solution. If `enter 5` comes
after `enter 7` in it, `enter 7` is at m now and could be later by another way. Either it is not after m in a solution
or it is: both cases are tried, each with one more bound. Each shuts out a way, so this ends.

It may end late, though. To choose which keys spend their unknown acquires such that all the others need not is hard in
general: a token of key b that is late makes one of b's unknown acquires necessary, an early one makes it necessary for
each of a, c and d to spend one of theirs; choosing for many such tokens, with so many unknown acquires for each key, is
a packing of sets, which is NP-hard. So there is a limit to how many cases are tried, and then the answer is that nobody
knows. Without unknown acquires there is nothing to choose and a single pass of bounds decides.

Leases
======

Time makes gaps too coarse: two moments in one gap may be seconds apart. So events are numbered anew: the k-th event of
the key, at time T, gets the number T + k. A gap between such numbers stands for one nanosecond of one gap, moments of
one gap follow each other, and all the above goes on as before (see `leased`).

A lease that began at `enter` ends at `enter + length * (1 - e)` at the earliest, where e is the declared error of the
clocks; a renewal at r replaces this by `r + length * (1 - e)` of its own, and it may take effect as early as it was
invoked. Of renewals that were open at once any may have been the last one, and one of unknown outcome may always have
been, so the least of these ends counts. A release of unknown outcome may end a grant from its invoke on. An ok release
ended it, so then nothing is asked of its lease. What remains is `earliest end(enter) <= exit` with an end that grows
with `enter`: the same as `enter <= g(exit)`. A grant to an acquire of unknown outcome has no lease to be kept: its
client was never told, so the service may have taken it back.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from checker.facts import Duplicate, Facts, Tenure
from checker.operations import OPEN, Operation
from checker.sweep import NO_LIMIT, NOT_BEFORE_START, START, Bound, Later, Reach, Refusal, Sweep

#: How many cases are tried before the answer is that nobody knows.
CASES_MAX = 200


class Undecided(NamedTuple):
    """So many cases were tried, and more are left."""

    cases: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """Without gaps, so many tokens that no ok acquire got were granted from the first that the history shows to the one
    that `shown_by` shows, but only so many acquires of unknown outcome had been invoked by then."""

    shown_by: Operation
    needed: int
    available: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the keys don't fit together: of `key`, no gap is left for a moment, or two operations exclude each other, or
    too few acquires can have been granted the tokens that nobody saw.

    `cases` is how many ways to use unknown acquires had to be told apart for it; 1 if `reason` says it all.
    """

    key: str
    reason: Duplicate | Refusal | Shortage
    cases: int = 1


@dataclass(frozen=True, slots=True)
class Fits:
    """For each key its moments, enter and exit by turns, and the way to them; found in so many cases."""

    moments: Mapping[str, Sequence[int]]
    ways: Mapping[str, Reach]
    cases: int


class Lease(NamedTuple):
    """What a grant's exit says about its enter. `ends` are (not before, length): of each lease that may have been the
    last one, where in the history it begins at the earliest, if not with the grant, and how long it is in nanoseconds.
    From `released` on the grant may have been released."""

    grant: Operation
    ends: tuple[tuple[int, int], ...]
    released: int


class Clock(NamedTuple):
    """The numbers of a key's events in which each stands for a nanosecond of a gap."""

    numbers: Sequence[int]

    def time(self, moment: int) -> int:
        return moment - (bisect_right(self.numbers, moment) - 1)

    def last_at(self, time: int) -> int:
        """The last moment at that time."""
        low, high = 0, len(self.numbers)
        while low < high:
            middle = (low + high) // 2
            if self.numbers[middle] - middle <= time:
                low = middle + 1
            else:
                high = middle
        return time + low - 1


def decide(keys: Mapping[str, Sequence[Operation]], *, tokens_dense: bool = False) -> Refused | Fits | Undecided:
    """Whether the keys fit under one order of tokens; `keys` are their operations, each in the order of its invokes.

    With `tokens_dense` all numbers between two tokens were granted too, of whichever key: what is refused for it is
    impossible, but not all that is impossible is refused."""
    facts = {key: Facts.of(operations) for key, operations in keys.items()}
    owner: dict[int, tuple[str, Tenure]] = {}
    for key, of_key in facts.items():
        if of_key.duplicate is not None:
            return Refused(key, of_key.duplicate)
        for tenure in of_key.tenures:
            if tenure.token in owner:
                other = owner[tenure.token][1].first_shown
                assert other is not None
                assert tenure.first_shown is not None
                first, second = sorted([other, tenure.first_shown], key=lambda operation: operation.index)
                return Refused(key, Duplicate(tenure.token, first, second))
            owner[tenure.token] = key, tenure
    return _Search([_Key(key, of_key) for key, of_key in facts.items()], tokens_dense=tokens_dense).run()


def decide_leased(
    operations: Sequence[Operation],
    clock_error: float,
    trusted: Callable[[Operation, int], bool] = lambda _, __: True,
) -> Refused | Fits | Undecided:
    """Whether the history of one key fits if leases last. Leases of None promise nothing, nor do those of grants that
    are not `trusted` up to the position of the event by which a later token was shown (OPEN without any).

    The operations in a refusal are those given, but for their ends."""
    stamped, clock = leased(operations)
    facts = Facts.of(stamped)
    key = operations[0].key if operations else ""
    if facts.duplicate is not None:
        return Refused(key, facts.duplicate)
    return _Search([_Key(key, facts, _leases(stamped, facts, clock_error, trusted), clock)]).run()


def leased(operations: Sequence[Operation]) -> tuple[list[Operation], Clock]:
    """The same operations with their ends numbered by time, see the top."""
    events = sorted(
        {
            (event.index, event.time)
            for operation in operations
            for event in (operation.invoke, operation.completion)
            if event is not None
        }
    )
    indices = [index for index, _ in events]
    numbers = [time + place for place, (_, time) in enumerate(events)]

    def numbered(index: int) -> int:
        # What was settled may end between the events of its key.
        place = bisect_left(indices, index)
        return numbers[place] if place < len(numbers) else OPEN

    stamped = [
        msgspec.structs.replace(operation, index=numbered(operation.index), end=numbered(operation.end))
        for operation in operations
    ]
    return stamped, Clock(numbers)


def _leases(
    operations: Sequence[Operation],
    facts: Facts,
    clock_error: float,
    trusted: Callable[[Operation, int], bool],
) -> dict[int, Lease]:
    """For each token that an ok acquire got and no ok release ended, what its lease demands."""
    moves: dict[int, list[Operation]] = {}
    for operation in operations:
        if operation.f in ("release", "renew") and operation.outcome != "fail" and operation.token is not None:
            moves.setdefault(operation.token, []).append(operation)
    leases: dict[int, Lease] = {}
    over = OPEN
    for tenure in reversed(facts.tenures):
        until = over
        shown = None if tenure.first_shown is None else tenure.first_shown.completion
        over = over if shown is None else shown.index
        if tenure.grant is None or tenure.release is not None or not trusted(tenure.grant, until):
            continue
        of_token = moves.get(tenure.token, [])
        lease = _lease(tenure.grant, of_token, clock_error)
        if lease is not None:
            leases[tenure.token] = lease
    return leases


def _lease(grant: Operation, moves: Sequence[Operation], clock_error: float) -> Lease | None:
    """None where nothing is demanded."""
    released = min((move.index for move in moves if move.f == "release"), default=OPEN)
    renewals = [move for move in moves if move.f == "renew" and move.outcome == "ok"]
    unknown = [move for move in moves if move.f == "renew" and move.outcome != "ok"]
    begun = max((renewal.index for renewal in renewals), default=grant.index)
    last = [(begun, one.lease_ns) for one in renewals or [grant] if one.end > begun]
    last += [(max(begun, one.index), one.lease_ns) for one in unknown]
    ends: list[tuple[int, int]] = []
    for begins, length in last:
        if length is None:
            # Whoever knows no length knows no end.
            released = min(released, begins)
        else:
            ends.append((begins, int(length * (1 - clock_error))))
    return Lease(grant, tuple(ends), released) if ends else None


class _Key:
    """One key: what bounds its moments, and the last sweep over it."""

    def __init__(
        self, name: str, facts: Facts, leases: Mapping[int, Lease] | None = None, clock: Clock | None = None
    ) -> None:
        self.name = name
        self.facts = facts
        self.leases = leases or {}
        self.clock = clock or Clock(())
        self.sweep = Sweep(facts)

    def latest_enter(self, lease: Lease, left: int) -> int:
        """The last moment at which a grant can begin that ends at the moment `left` at the latest."""
        if left >= lease.released or left >= OPEN:
            return OPEN
        time = self.clock.time(left)
        enough = [
            length for begins, length in lease.ends if begins <= left and self.clock.time(begins) + length <= time
        ]
        return self.clock.last_at(time - min(enough)) if enough else -2


class _Case(NamedTuple):
    """Bounds of some moments beside those of all cases: (place of the key, moment) -> limit."""

    upper: dict[tuple[int, int], Bound]
    lower: dict[tuple[int, int], int]


class _Search:
    def __init__(self, keys: Sequence[_Key], *, tokens_dense: bool = False) -> None:
        self._keys = keys
        self._dense = tokens_dense
        #: All tokens in their order: the places of their keys, and of the tokens among those of the key.
        self._order = [
            (place, number)
            for _, place, number in sorted(
                (tenure.token, place, number)
                for place, key in enumerate(keys)
                for number, tenure in enumerate(key.facts.tenures)
            )
        ]

    def run(self) -> Refused | Fits | Undecided:
        cases = [_Case({}, {})]
        first: Refused | None = None
        tried = 0
        while cases:
            if tried == CASES_MAX:
                return Undecided(tried)
            tried += 1
            case = cases.pop()
            floors = self._floors(case)
            for place, key in enumerate(self._keys):
                key.sweep = Sweep(key.facts, floors=floors[place])
            upper = dict(case.upper)
            refused = self._tighten(upper, floors) or (self._short() if self._dense else None)
            if refused is not None:
                first = first or refused
                continue
            ways = self._ways()
            broken = self._broken(ways)
            if broken is not None:
                place, moment = broken
                gap = ways[place][moment]
                ways = self._cut(dict(upper), floors, ways)
                if not ways:
                    cases.append(_Case(upper, {**case.lower, broken: gap + 1}))
                    cases.append(_Case({**upper, broken: Bound(gap, None)}, case.lower))
                    continue
            names = [key.name for key in self._keys]
            ended = [_ended(key) for key in self._keys]
            return Fits(dict(zip(names, ways, strict=True)), dict(zip(names, ended, strict=True)), tried)
        assert first is not None
        return Refused(first.key, first.reason, tried)

    def _short(self) -> Refused | None:
        """A token by whose grant more acquires of unknown outcome must have been granted one than had been invoked."""
        invokes = sorted(operation.index for key in self._keys for operation in key.facts.unknown)
        needed = 0
        last: int | None = None
        for place, number in self._order:
            key = self._keys[place]
            tenure = key.facts.tenures[number]
            needed += 0 if last is None else tenure.token - last - 1
            needed += tenure.grant is None
            last = tenure.token
            available = bisect_right(invokes, key.sweep.tops[2 * number].latest)
            if needed > available:
                assert tenure.first_shown is not None
                return Refused(key.name, Shortage(tenure.first_shown, needed, available))
        return None

    def _cut(
        self, upper: dict[tuple[int, int], Bound], floors: Sequence[Sequence[Bound]], ways: list[list[int]]
    ) -> list[list[int]]:
        """Try to keep to the ways that were taken: let no moment be later than they are. Mostly this works out, and
        then it spares telling cases apart; empty if it does not."""
        while self._broken(ways) is not None:
            for place, (way, key) in enumerate(zip(ways, self._keys, strict=True)):
                for moment, (gap, limit) in enumerate(zip(way, key.sweep.limits, strict=True)):
                    if gap < limit.gap:
                        upper[place, moment] = Bound(gap, None)
            if self._tighten(upper, floors) is not None:
                return []
            before, ways = ways, self._ways()
            if ways == before:
                return []
        return ways

    def _ways(self) -> list[list[int]]:
        return [self._way(place) for place in range(len(self._keys))]

    def _way(self, place: int) -> list[int]:
        """The moments of a key on the way that was found."""
        key = self._keys[place]
        moments = [0] * (2 * len(key.facts.tenures) + 1)
        reach: Reach | None = key.sweep.ended
        while reach is not None and reach.moment >= 0:
            if not reach.ghost:
                moments[reach.moment] = reach.latest
            reach = reach.before
        return moments

    def _broken(self, ways: Sequence[Sequence[int]]) -> tuple[int, int] | None:
        """A moment that is so early that another one would have to be earlier than it is."""
        least: tuple[int, tuple[int, int]] | None = None
        for place, number in reversed(self._order):
            key = self._keys[place]
            enter, left = ways[place][2 * number], ways[place][2 * number + 1]
            if least is not None and enter > least[0]:
                return least[1]
            lease = key.leases.get(key.facts.tenures[number].token)
            if lease is not None and enter > key.latest_enter(lease, left):
                return place, 2 * number + 1
            if least is None or enter < least[0]:
                least = enter, (place, 2 * number)
        return None

    def _tighten(self, upper: dict[tuple[int, int], Bound], floors: Sequence[Sequence[Bound]]) -> Refused | None:
        """Sweep until no sweep lowers a bound of another moment any more; `upper` are the bounds that are found."""
        limits = self._limits(upper)
        crossed = self._crossed(limits, floors)
        if crossed is not None:
            return crossed
        while True:
            calm = True
            for place, key in enumerate(self._keys):
                first = _first_lower(limits[place], key.sweep)
                if first is None:
                    continue
                calm = False
                key.sweep = key.sweep.again(limits[place], first // 2)
                refusal = key.sweep.run()
                if refusal is not None:
                    return Refused(key.name, refusal)
                self._lowered(place, upper)
            if calm:
                return None
            limits = self._limits(upper)

    def _crossed(self, limits: Sequence[Sequence[Bound]], floors: Sequence[Sequence[Bound]]) -> Refused | None:
        """A grant whose bounds cross before any sweep, if there is one."""
        for place, number in self._order:
            limit, floor = limits[place][2 * number], floors[place][2 * number]
            if limit.gap < floor.gap:
                key = self._keys[place]
                start = Reach(0, START, -1, False, None, None)
                too_early = Reach(0, limit.gap, 2 * number, False, None, start)
                sweep = Sweep(key.facts, limits=limits[place])
                return Refused(key.name, sweep.refusal(2 * number, [too_early], floor))
        return None

    def _lowered(self, place: int, found: dict[tuple[int, int], Bound]) -> None:
        """Take down the bounds that follow from how late the moments of a key can be."""
        key = self._keys[place]
        sweep = key.sweep
        for moment, (top, limit) in enumerate(zip(sweep.tops, sweep.limits, strict=False)):
            if moment % 2 == 0 and top.latest < limit.gap:
                found[place, moment] = Bound(top.latest, Later(sweep, top, None))
        for number, tenure in enumerate(key.facts.tenures):
            lease = key.leases.get(tenure.token)
            if lease is not None:
                top = sweep.tops[2 * number + 1]
                gap = key.latest_enter(lease, top.latest)
                known = found.get((place, 2 * number), NO_LIMIT)
                if gap < known.gap:
                    found[place, 2 * number] = Bound(gap, Later(sweep, top, lease.grant))

    def _limits(self, found: Mapping[tuple[int, int], Bound]) -> list[list[Bound]]:
        """For each moment of each key the smallest upper bound among its own and those of all that it is not after."""
        limits = [[NO_LIMIT] * (2 * len(key.facts.tenures) + 1) for key in self._keys]
        of_key = [NO_LIMIT] * len(self._keys)
        of_all = NO_LIMIT
        for place, number in reversed(self._order):
            tenure = self._keys[place].facts.tenures[number]
            limit = of_key[place]
            for moment, operation in ((2 * number + 1, tenure.release), (2 * number, tenure.first_shown)):
                if moment % 2 == 0 and of_all.gap < limit.gap:
                    limit = of_all
                if operation is not None and operation.end <= limit.gap:
                    limit = Bound(operation.end - 1, operation)
                bound = found.get((place, moment))
                if bound is not None and bound.gap < limit.gap:
                    limit = bound
                limits[place][moment] = limit
            of_key[place] = of_all = limit
        return limits

    def _floors(self, case: _Case) -> list[list[Bound]]:
        """For each moment the largest lower bound among its own and those of all that are not after it."""
        floors = [[NOT_BEFORE_START] * (2 * len(key.facts.tenures)) for key in self._keys]
        of_key = [NOT_BEFORE_START] * len(self._keys)
        of_all = NOT_BEFORE_START
        for place, number in self._order:
            tenure = self._keys[place].facts.tenures[number]
            floor = max(of_key[place], of_all, key=_gap)
            for moment, operation in ((2 * number, tenure.grant), (2 * number + 1, tenure.last_held)):
                if operation is not None and operation.index > floor.gap:
                    floor = Bound(operation.index, operation)
                gap = case.lower.get((place, moment))
                if gap is not None and gap > floor.gap:
                    floor = Bound(gap, None)
                floors[place][moment] = floor
                if moment % 2 == 0:
                    of_all = floor
            of_key[place] = floor
        return floors


def _first_lower(limits: Sequence[Bound], sweep: Sweep) -> int | None:
    """The first moment that was found to be later than it may be, or was not looked at; None without any."""
    for moment, (limit, top) in enumerate(zip(limits, sweep.tops, strict=False)):
        if limit.gap < top.latest:
            return moment
    return len(sweep.tops) if sweep.ended is None else None


def _ended(key: _Key) -> Reach:
    assert key.sweep.ended is not None
    return key.sweep.ended


def _gap(bound: Bound) -> int:
    return bound.gap
