"""Polynomial deciders for histories in which every value is written only once.

Which write a read saw, or which enqueue a dequeue answers, is then no question, and what is left are comparisons of
windows. Each decider gives None where it does not apply (a value written twice, an operation that it does not know);
then the search decides. A call of unknown outcome counts where a result proves that it took effect, with a window that
ends with the first proof; where nothing does, leaving it out is never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from checker.search.calls import OPEN, Call
from checker.search.models import FifoQueue, Model, Register, Set, hashable

#: Before every history; what was there at the start counts as written then.
START = -1


def decide(calls: Sequence[Call], model: Model) -> bool | None:
    """Whether the calls of one key fit, None where only a search can tell."""
    decider = _DECIDERS.get(type(model))
    return None if decider is None else decider(calls)


def _register(calls: Sequence[Call]) -> bool | None:
    """Gibbons & Korach 1997. A write and the reads of its value form a cluster. Between the first end and the last
    start in it, if that is a span of time at all, the register must hold its value: such spans of two clusters must not
    overlap; a cluster that has none takes place at any moment from its last start to its first end, and that range must
    not lie within the span of another."""
    writes: dict[Any, Call] = {}
    for call in calls:
        if call.f == "write" and (writes.setdefault(hashable(call.value), call) is not call or call.value is None):
            return None
    reads: dict[Any, list[Call]] = {}
    for call in calls:
        if call.f == "read" and call.outcome == "ok":
            reads.setdefault(hashable(call.result), []).append(call)
    spans: list[tuple[int, int]] = []
    ranges: list[tuple[int, int]] = []
    for value in {*writes, *reads}:
        of_value = reads.get(value, [])
        write = writes.get(value)
        if write is None:
            if value is not None:
                return False
            start = end = START
        else:
            start, end = write.start, write.end
            if any(read.end < start for read in of_value):
                return False
            if end == OPEN and not of_value:
                continue
        first_end = min([end, *(read.end for read in of_value)])
        last_start = max([start, *(read.start for read in of_value)])
        (spans if first_end < last_start else ranges).append(
            (first_end, last_start) if first_end < last_start else (last_start, first_end)
        )
    spans.sort()
    if any(one[1] > other[0] for one, other in pairwise(spans)):
        return False
    return not any(_inside(one, spans) for one in ranges)


def _inside(one: tuple[int, int], spans: Sequence[tuple[int, int]]) -> bool:
    """Whether it lies within any of the spans, which are sorted and apart."""
    low, high = 0, len(spans)
    while low < high:
        middle = (low + high) // 2
        if spans[middle][0] < one[0]:
            low = middle + 1
        else:
            high = middle
    return low > 0 and one[1] < spans[low - 1][1]


def _queue(calls: Sequence[Call]) -> bool | None:
    """Henzinger, Sezgin & Vafeiadis 2013: a value is dequeued once, not before it was enqueued, and never overtaken by
    one that was enqueued later. (Not for dequeues that found nothing, or whose result nobody knows.)"""
    enqueues: dict[Any, Call] = {}
    dequeues: dict[Any, Call] = {}
    for call in calls:
        if call.f == "enqueue":
            if enqueues.setdefault(hashable(call.value), call) is not call:
                return None
        elif call.outcome != "ok" or call.result is None:
            return None
        elif dequeues.setdefault(hashable(call.result), call) is not call:
            return False
    for value, dequeue in dequeues.items():
        enqueue = enqueues.get(value)
        if enqueue is None or dequeue.end < enqueue.start:
            return False
    # (end of the enqueue, start of the dequeue), the latest start so far: who was there before and left after.
    waiting = sorted(
        (min(call.end, dequeues[value].end) if value in dequeues else call.end, _start(dequeues.get(value)))
        for value, call in enqueues.items()
        if call.end < OPEN or value in dequeues
    )
    latest = START
    position = 0
    for value, dequeue in sorted(dequeues.items(), key=lambda item: enqueues[item[0]].start):
        while position < len(waiting) and waiting[position][0] < enqueues[value].start:
            latest = max(latest, waiting[position][1])
            position += 1
        if latest > dequeue.end:
            return False
    return True


def _start(call: Call | None) -> int:
    return OPEN if call is None else call.start


def _set(calls: Sequence[Call]) -> bool | None:
    """Reads show growing sets, so they come in the order of their sizes; what is new in one was added between. No call
    may then end before one starts that comes earlier in this order."""
    adds: dict[Any, Call] = {}
    for call in calls:
        if call.f == "add":
            if adds.setdefault(hashable(call.value), call) is not call:
                return None
        elif call.f != "read":
            return None
    shown: dict[frozenset[Any], list[Call]] = {}
    for call in calls:
        if call.f == "read" and call.outcome == "ok":
            shown.setdefault(frozenset(map(hashable, call.result or ())), []).append(call)
    latest_start = START
    before: frozenset[Any] = frozenset()
    for values in sorted(shown, key=len):
        if not before <= values or not all(value in adds for value in values):
            return False
        for block in ([adds[value] for value in values - before], shown[values]):
            if any(call.end < latest_start for call in block):
                return False
            latest_start = max([latest_start, *(call.start for call in block)])
        before = values
    return not any(call.end < latest_start for value, call in adds.items() if value not in before)


_DECIDERS: dict[type[Model], Callable[[Sequence[Call]], bool | None]] = {
    Register: _register,
    FifoQueue: _queue,
    Set: _set,
}
