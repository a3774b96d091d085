"""Linearizability of leased locks by trying everything: the yardstick for the sweeps, for small histories only.

The history is walked event by event. Before each event any operations that are open may take effect, in any order, and
a held lock may expire; an operation that completes must have taken effect with the result that it reports. An operation
whose outcome is unknown may take effect at any time after its invoke, or never. All configurations that can be reached
are kept, as a set; the history is linearizable when one is left at the end.

Tokens are only compared, unless they are `dense`. An unknown acquire is granted a token that the history names and no
ok acquire owns, or one that nobody ever saw (`UNSEEN`): the best of those, from all others' point of view, is barely
larger than the last one. Dense tokens are counted: each grant takes the last one's successor, the first one any.

Each key has a lock and a counter of its own; with `joint`, all keys share one counter and are walked together.

With `clock_error`, time counts: what an ok acquire was granted does not expire before its lease, as renewals replaced
it, can be over. Then effects have times, whole nanoseconds between those of the events around them.

It shares no idea with the sweeps (no intervals, no bounds, no order of tokens worked out beforehand) and no code. It is
made fast by rules that need no proof of their own: an observation that is satisfied now need not wait; unknown acquires
of a key are as good as each other; without time, nothing need happen before an operation is about to complete; with
time, nothing need wait but for a lease to end, since leases that begin earlier end earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from checker.history import Event

#: The holder under a token that no operation names; and nobody, as a holder and as the last token granted.
UNSEEN = "unseen"
NOBODY = None

Holder = int | str | None


class Call(NamedTuple):
    """One operation: its name, its key, the token that it names, what it reported (None: nobody knows), and for how
    long a lease it asked, in nanoseconds (None: it does not say)."""

    f: str
    key: int
    token: int | None
    outcome: str | None
    result: int | None
    lease_ns: int | None


#: For each key who holds it and since when it may expire (0: since ever); the last token granted; the time (0 if none
#: counts). A plain tuple, since millions of them are made.
State = tuple[tuple[Holder, ...], tuple[int, ...], int | None, int]


class Rules(NamedTuple):
    """`error`: None where time does not count, else by what share clocks may be wrong."""

    dense: bool
    error: float | None


def linearizable(
    events: Iterable[Event], *, joint: bool = False, dense: bool = False, clock_error: float | None = None
) -> bool:
    """Whether the history of each of its keys fits the model, or that of all of them together."""
    rules = Rules(dense, clock_error)
    clients = [event for event in events if isinstance(event.process, int) and event.key is not None]
    names = sorted({event.key for event in clients if event.key is not None})
    groups = [names] if joint else [[name] for name in names]
    return all(_fits([event for event in clients if event.key in group], group, rules) for group in groups)


def _fits(events: Sequence[Event], keys: Sequence[str], rules: Rules) -> bool:
    calls, steps = _calls(events, keys, rules)
    owned = {call.result for call in calls if call.f == "acquire" and call.outcome == "ok"}
    named = {token for call in calls for token in (call.token, call.result) if token is not None}
    walk = _Walk(calls, sorted(named - owned), rules)
    nobody, never = (NOBODY,) * len(keys), (0,) * len(keys)
    reached: set[tuple[State, int]] = {((nobody, never, last, 0), 0) for last in _starts(named, calls, rules)}
    for kind, number, time in steps:
        timed = rules.error is not None
        if timed:
            reached = walk.closure(reached, time)
            reached = {(_at(state, time), waiting) for state, waiting in reached}
        if kind == "invoke":
            reached = {walk.settled(state, waiting | 1 << number) for state, waiting in reached}
            continue
        if not timed:
            reached = walk.closure(reached, 0)
        reached = {(state, waiting) for state, waiting in reached if not waiting >> number & 1}
        if not reached:
            return False
    return True


def _at(state: State, time: int) -> State:
    """The same at a later time; that a lease is over is all that counts of it."""
    holders, overs, last, _ = state
    return holders, tuple(over if over > time else 0 for over in overs), last, time


def _starts(named: set[int], calls: Sequence[Call], rules: Rules) -> Sequence[int | None]:
    """Where tokens are counted, whatever may have been the last one before the history."""
    if not rules.dense or not named:
        return [None]
    grants = sum(call.f == "acquire" and call.outcome in ("ok", None) for call in calls)
    return range(min(named) - 1 - grants, max(named) + 1)


def _calls(events: Sequence[Event], keys: Sequence[str], rules: Rules) -> tuple[list[Call], list[tuple[str, int, int]]]:
    """The operations that can matter, and the order of their ends, with times. A reported failure that says nothing
    about the lock never took effect, so it is left out."""
    completions: dict[int, Event] = {}
    invokes: dict[int | str, int] = {}
    for event in events:
        if event.type == "invoke":
            invokes[event.process] = event.index
        else:
            completions[invokes.pop(event.process)] = event
    calls: list[Call] = []
    steps: list[tuple[str, int, int]] = []
    numbers: dict[int | str, int | None] = {}
    for event in events:
        if event.type == "invoke":
            assert event.key is not None
            call = _call(event, completions.get(event.index), keys.index(event.key), rules)
            numbers[event.process] = None
            if call is not None:
                numbers[event.process] = len(calls)
                steps.append(("invoke", len(calls), event.time))
                calls.append(call)
        else:
            number = numbers[event.process]
            if number is not None and event.type != "info":
                steps.append(("complete", number, event.time))
    return calls, steps


def _call(invoke: Event, completion: Event | None, key: int, rules: Rules) -> Call | None:
    value = invoke.value or {}
    token, lease = value.get("token"), value.get("lease_ms")
    lease_ns = None if lease is None else round(lease * 1_000_000)
    if completion is None or completion.type == "info":
        # Without time, an unknown release does no more than an expiry, and an unknown renewal nothing.
        matters = invoke.f == "acquire" or (rules.error is not None and invoke.f in ("release", "renew"))
        return Call(invoke.f, key, token, None, None, lease_ns) if matters else None
    if completion.type == "ok":
        return Call(invoke.f, key, token, "ok", (completion.value or {}).get("token"), lease_ns)
    observed = {"acquire": "held", "release": "not-held", "renew": "not-held"}.get(invoke.f)
    return Call(invoke.f, key, token, completion.error, None, lease_ns) if completion.error == observed else None


class _Walk:
    """Configurations are a state and the calls that wait for their effect, as bits."""

    def __init__(self, calls: Sequence[Call], free_tokens: Sequence[int], rules: Rules) -> None:
        self._calls = calls
        self._free_tokens = free_tokens
        self._rules = rules
        #: Only a grant that its client was told of has a lease to be kept.
        self._told = {call.result for call in calls if call.f == "acquire" and call.outcome == "ok"}
        self._looks = sum(1 << number for number, call in enumerate(calls) if _only_looks(call, rules))

    def closure(self, reached: set[tuple[State, int]], until: int) -> set[tuple[State, int]]:
        frontier = [self.settled(*here) for here in reached]
        seen = set(frontier)
        while frontier:
            state, waiting = frontier.pop()
            successors = [(after, waiting) for after in self._by_itself(state, until)]
            rest, skipped = waiting & ~self._looks, 0
            while rest:
                bit = rest & -rest
                rest ^= bit
                call = self._calls[bit.bit_length() - 1]
                if call.outcome is None and call.f == "acquire":
                    if skipped >> call.key & 1:
                        continue
                    skipped |= 1 << call.key
                successors += [(after, waiting ^ bit) for after in self._effects(state, call)]
            for successor in successors:
                settled = self.settled(*successor)
                if settled not in seen:
                    seen.add(settled)
                    frontier.append(settled)
        return seen

    def settled(self, state: State, waiting: int) -> tuple[State, int]:
        """With all observations made that can be made in this state."""
        rest = waiting & self._looks
        while rest:
            bit = rest & -rest
            rest ^= bit
            if _sees(self._calls[bit.bit_length() - 1], state[0]):
                waiting ^= bit
        return state, waiting

    def _by_itself(self, state: State, until: int) -> Iterator[State]:
        """Leases end, as soon as they may."""
        holders, overs, last, now = state
        for key, holder in enumerate(holders):
            if holder is not NOBODY and overs[key] <= until:
                yield _with(holders, overs, key, NOBODY, 0, last, max(now, overs[key]))

    def _effects(self, state: State, call: Call) -> Iterator[State]:
        """The states that `call` can lead to when it takes effect in `state`, as far as they fit what it reported."""
        holders, overs, last, now = state
        key = call.key
        holder = holders[key]
        match call.f, call.outcome:
            case "acquire", "ok" if holder is NOBODY:
                assert call.result is not None
                if last is None or call.result == last + 1 or (not self._rules.dense and call.result > last):
                    yield _with(holders, overs, key, call.result, self._over(now, call), call.result, now)
            case "acquire", None if holder is NOBODY:
                if self._rules.dense:
                    following = None if last is None else last + 1
                    yield _with(holders, overs, key, UNSEEN if last is None else following, 0, following, now)
                else:
                    yield _with(holders, overs, key, UNSEEN, 0, last, now)
                    for free in self._free_tokens:
                        if last is None or free > last:
                            yield _with(holders, overs, key, free, 0, free, now)
            case "release", "ok" | None if holder == call.token:
                yield _with(holders, overs, key, NOBODY, 0, last, now)
            case "renew", "ok" | None if holder == call.token:
                over = self._over(now, call) if holder in self._told else 0
                yield _with(holders, overs, key, holder, over, last, now)
            case _:
                pass

    def _over(self, now: int, call: Call) -> int:
        """When the lease that begins now may be over."""
        if self._rules.error is None or call.lease_ns is None:
            return 0
        return now + int(call.lease_ns * (1 - self._rules.error))


def _with(
    holders: tuple[Holder, ...], overs: tuple[int, ...], key: int, holder: Holder, over: int, last: int | None, now: int
) -> State:
    if len(holders) == 1:
        return (holder,), (over,), last, now
    return (*holders[:key], holder, *holders[key + 1 :]), (*overs[:key], over, *overs[key + 1 :]), last, now


def _only_looks(call: Call, rules: Rules) -> bool:
    """Whether it changes nothing, whatever it finds."""
    if call.f == "renew" and call.outcome == "ok":
        return rules.error is None
    return call.f == "inspect" or call.outcome in ("held", "not-held")


def _sees(call: Call, holders: tuple[Holder, ...]) -> bool:
    """Whether `call`, which only looks, can have seen this."""
    holder = holders[call.key]
    if call.f == "acquire":
        return holder is not NOBODY
    if call.outcome == "not-held":
        return holder != call.token
    return holder == (call.token if call.f == "renew" else call.result)


def fenced(events: Iterable[Event], *, joint: bool = False) -> bool:
    """Whether no grant is at odds with any other of its key, or of all keys, each compared with each."""
    grants: list[tuple[str, int, int, int]] = []
    invokes: dict[int | str, int] = {}
    for event in events:
        if event.type == "invoke":
            invokes[event.process] = event.index
        elif event.type == "ok" and event.f == "acquire" and event.key is not None and event.value is not None:
            grants.append((event.key, invokes[event.process], event.index, event.value["token"]))
    return not any(
        (joint or one[0] == other[0])
        and one is not other
        and (one[3] == other[3] or (one[2] < other[1] and one[3] > other[3]))
        for one in grants
        for other in grants
    )
