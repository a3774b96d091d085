"""Breadth first through all states within the bounds: the first violation has the shortest trace there is."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from cluster.explore.promises import Violation
from cluster.explore.space import Event, Space, State


class BeginningOutOfBounds(Exception):
    """The bounds don't allow what the exploration was to begin with."""


#: How many states are expanded between two looks at the clock.
LOOK_EVERY = 256


@dataclass(slots=True)
class Explored:
    """What was covered. `depth`: every state that so many events lead to was seen, and checked; `complete`: no event is
    left anywhere within the bounds. `trace` are the events of the violation, from the first state on."""

    depth: int = 0
    states: int = 0
    steps: int = 0
    seconds: float = 0.0
    complete: bool = False
    violation: Violation | None = None
    trace: Sequence[Event] = field(default_factory=tuple)

    def words(self) -> str:
        return f"depth {self.depth:>3}   {self.states:>9,} states {self.steps:>10,} steps {self.seconds:>7.1f} s"

    def verdict(self) -> str:
        if self.violation is not None:
            return f"violated    {self.violation.claim}, after {len(self.trace)} events ({self.words().strip()})"
        if self.complete:
            return f"valid       in all {self.states:,} states within these bounds ({self.seconds:.1f} s)"
        return (
            f"valid       in all states up to {self.depth} events from the beginning; {self.states:,} states seen,"
            f" {self.seconds:.1f} s. Nothing is said of what lies beyond"
        )

    def to_dict(self) -> dict[str, object]:
        return {
            "depth": self.depth,
            "states": self.states,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "complete": self.complete,
            "violated": None if self.violation is None else self.violation.claim,
            "message": None if self.violation is None else self.violation.message,
        }


def explore(
    space: Space,
    *,
    begin: Sequence[Event] = (),
    depth: int | None = None,
    for_s: float | None = None,
    states_max: int | None = None,
    observe: Callable[[Explored], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Explored:
    """Explore from the state that the events `begin` lead to, up to `depth` events more, `for_s` seconds or
    `states_max` states. `observe` hears of each depth that is done."""
    explored = Explored()
    started = clock()
    first = space.first()
    for event in begin:
        after = space.step(first, event)
        assert after is not None, "the beginning lies within the bounds"
        first = after
    seen: set[State] = {first}
    parents, events = array("q", [-1]), [("", 0, 0)]
    level: list[tuple[State, int]] = [(first, 0)]
    while level and (depth is None or explored.depth < depth):
        following: list[tuple[State, int]] = []
        for count, (state, number) in enumerate(level):
            if count % LOOK_EVERY == 0:
                explored.seconds = clock() - started
                late = for_s is not None and explored.seconds >= for_s
                if late or (states_max is not None and len(seen) >= states_max):
                    explored.states = len(seen)
                    return explored
            for event in space.events(state):
                explored.steps += 1
                try:
                    after = space.step(state, event)
                except Violation as violation:
                    explored.violation = violation
                    explored.trace = (*begin, *_back(parents, events, number), event)
                    explored.states, explored.seconds = len(seen), clock() - started
                    return explored
                if after is not None and after not in seen:
                    seen.add(after)
                    following.append((after, len(parents)))
                    parents.append(number)
                    events.append(event)
        level = following
        explored.depth += 1
        explored.states, explored.seconds = len(seen), clock() - started
        observe(explored)
    explored.complete = not level
    return explored


def _back(parents: Sequence[int], events: Sequence[Event], number: int) -> list[Event]:
    trace = []
    while number > 0:
        trace.append(events[number])
        number = parents[number]
    return trace[::-1]


def elect(space: Space, node: int = 0) -> list[Event]:
    """The events by which `node` comes to lead a new cluster, with its first entry applied everywhere and nothing on
    its way. Raises BeginningOutOfBounds, Violation."""
    if not (space.bounds.timeouts and space.bounds.beats):
        raise BeginningOutOfBounds("to elect a leader takes a time-out and a heartbeat, at least")
    events: list[Event] = [("timeout", node, 0)]
    state = space.step(space.first(), events[0])
    beats = 0
    while state is not None:
        pending = [e for e in space.events(state) if e[0] in ("deliver", "sync")]
        if not pending:
            if beats == 1:
                break
            pending = [("beat", node, 0)]
            beats += 1
        events.append(pending[0])
        state = space.step(state, pending[0])
    if state is None:
        raise BeginningOutOfBounds("to elect a leader more has to be on one link at once (in_flight)")
    return events
