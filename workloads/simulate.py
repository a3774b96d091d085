"""A generator in virtual time: the history that it would make against answers that a function gives.

For tests of generators, and to see what a workload does: an hour takes seconds, and the same arguments give the same
history.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

from checker.history import Event, EventType
from cluster.systems.base import Outcome
from workloads.dispatch import Dispatcher, Invocation
from workloads.generator import Generator

#: Gives an invocation at a time (ns) its latency (ns) and its outcome; asked in the order of the invocations.
Respond = Callable[[Invocation, int], tuple[int, Outcome]]


def simulate(generator: Generator, respond: Respond, *, threads: int, nodes: Sequence[str] = ("n1",)) -> list[Event]:
    """Run the generator until it is over and everything has come back. It must end by itself."""
    events: list[Event] = []
    now = 0

    def record(
        process: int | str,
        type: EventType,
        f: str,
        *,
        key: str | None = None,
        value: dict[str, Any] | None = None,
        error: str | None = None,
        node: str | None = None,
    ) -> Event:
        event = Event(len(events), now, process, type, f, key, value, error, node)
        events.append(event)
        return event

    dispatcher = Dispatcher(threads, nodes, record)
    dispatcher.start(generator)
    answers: list[tuple[int, int, Outcome]] = []  # (when, thread, outcome), a heap; a thread has at most one
    over = False
    while not over or answers:
        while answers and answers[0][0] <= now:
            _, thread, outcome = heapq.heappop(answers)
            dispatcher.complete(thread, outcome, now)
        step = dispatcher.poll(now)
        if isinstance(step, Invocation):
            latency_ns, outcome = respond(step, now)
            heapq.heappush(answers, (now + latency_ns, step.op.thread, outcome))
            continue
        over = step is None
        wakes = [answers[0][0]] if answers else []
        if step is not None and step.until_ns is not None:
            wakes.append(step.until_ns)
        now = max(now, min(wakes, default=now))
    return events
