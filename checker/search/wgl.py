"""The search: Wing and Gong's, with Lowe's memory of configurations.

The calls and returns of one key form a list in the order of the history. From its head on, any call may come first that
comes before the first return; take one, take it and its return out of the list, go on from the new state, and come back
where that leads nowhere. What makes it bearable is to remember every pair (calls taken, state) that was reached: to
reach it once more is pointless. (Wing & Gong 1993; Lowe 2017.)

Calls of unknown outcome have no return: they stay at hand for ever, which is what makes the problem hard, and need not
be taken at all. So one that would change nothing is not taken, and among equal ones only the earliest is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from checker.search.calls import OPEN, Call
from checker.search.models import Model

#: Steps between two looks at the clock.
STEPS_PER_LOOK = 1 << 12


@dataclass(frozen=True, slots=True)
class Found:
    """`fits` is None when `stop` ended the search. `order` are the calls in an order that fits; of a history that
    doesn't, or of a search that was ended, in the longest one that was found. `stuck` is the call that can come in none
    of the places left to it after that, `state` the state there. `configurations` counts what was remembered."""

    fits: bool | None
    order: tuple[int, ...]
    stuck: int | None
    state: Hashable
    configurations: int


def search(calls: Sequence[Call], model: Model, stop: Callable[[int, int], bool] = lambda *_: False) -> Found:
    """Look for an order of `calls` (of one key, in the order of their starts) that fits the model.

    `stop` is asked now and then, with the number of configurations and of calls in the longest order so far.
    """
    return _Search(calls, model, stop).run()


class _Search:
    def __init__(self, calls: Sequence[Call], model: Model, stop: Callable[[int, int], bool]) -> None:
        self._calls = calls
        self._model = model
        self._stop = stop
        events = sorted(
            [(call.start, number) for number, call in enumerate(calls)]
            + [(call.end, len(calls) + number) for number, call in enumerate(calls) if call.end < OPEN]
        )
        # Entries: call i is i, its return is n + i; the head is 2n. A returnless call has itself as its return.
        self._count = count = len(calls)
        self._next = list(range(2 * count + 1))
        self._previous = list(range(2 * count + 1))
        chain = [2 * count, *(entry for _, entry in events)]
        for one, other in zip(chain, [*chain[1:], 2 * count], strict=True):
            self._next[one], self._previous[other] = other, one
        self._twin_before = _earlier_twins(calls) if model.anonymous else [None] * count

    def run(self) -> Found:
        calls, count, head = self._calls, self._count, 2 * self._count
        step, next_of = self._model.step, self._next
        state: Any = self._model.initial
        taken = 0
        seen: set[tuple[int, Hashable]] = {(0, state)}
        stack: list[tuple[int, Any, Iterator[Hashable]]] = []
        best: tuple[int, ...] = ()
        best_known, stuck, best_state = -1, None, state
        known = 0
        steps = 0
        entry = next_of[head]
        ways: Iterator[Hashable] | None = None
        while True:
            steps += 1
            if steps % STEPS_PER_LOOK == 0 and self._stop(len(seen), len(best)):
                return Found(None, best, stuck, best_state, len(seen))
            if entry == head:
                return Found(True, tuple(number for number, _, _ in stack), None, state, len(seen))
            if entry < count:
                if ways is None:
                    ways = self._ways(step, state, entry, taken)
                went = False
                for after in ways:
                    configuration = (taken | 1 << entry, after)
                    if configuration in seen:
                        continue
                    seen.add(configuration)
                    stack.append((entry, state, ways))
                    taken, state = configuration
                    known += calls[entry].end < OPEN
                    self._lift(entry)
                    entry, ways, went = next_of[head], None, True
                    break
                if not went:
                    entry, ways = next_of[entry], None
                continue
            # A return: its call can't come later, so the last choice has to be another one.
            if known > best_known:
                best = tuple(number for number, _, _ in stack)
                best_known, stuck, best_state = known, entry - count, state
            if not stack:
                return Found(False, best, stuck, best_state, len(seen))
            entry, state, ways = stack.pop()
            taken &= ~(1 << entry)
            known -= calls[entry].end < OPEN
            self._unlift(entry)

    def _ways(self, step: Callable[[Any, Call], Any], state: Any, entry: int, taken: int) -> Iterator[Hashable]:
        call = self._calls[entry]
        if call.end < OPEN:
            return iter(step(state, call))
        twin = self._twin_before[entry]
        if twin is not None and not taken >> twin & 1:
            return iter(())
        return (after for after in step(state, call) if after != state)

    def _lift(self, number: int) -> None:
        for entry in self._entries(number):
            one, other = self._previous[entry], self._next[entry]
            self._next[one], self._previous[other] = other, one

    def _unlift(self, number: int) -> None:
        for entry in reversed(self._entries(number)):
            one, other = self._previous[entry], self._next[entry]
            self._next[one] = self._previous[other] = entry

    def _entries(self, number: int) -> tuple[int, ...]:
        return (number, self._count + number) if self._calls[number].end < OPEN else (number,)


def _earlier_twins(calls: Sequence[Call]) -> list[int | None]:
    """For each call of unknown outcome the one before it that is equal in all that an anonymous model sees."""
    last: dict[str, int] = {}
    found: list[int | None] = [None] * len(calls)
    for number, call in enumerate(calls):
        if call.end == OPEN:
            name = f"{call.f} {call.value!r}"
            found[number] = last.get(name)
            last[name] = number
    return found
