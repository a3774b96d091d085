"""Linearizability of a leased lock by trying everything: the yardstick for the sweep, for small histories only.

The history of one key is walked event by event. Before each event any operations that are open may take effect, in any
order, and a held lock may expire; an operation that completes must have taken effect with the result that it reports.
An operation whose outcome is unknown may take effect at any time after its invoke, or never. All configurations that
can be reached are kept, as a set; the history is linearizable when one is left at the end.

Tokens are only compared. An unknown acquire is granted a token that the history names and no ok acquire owns, or one
that nobody ever saw (`UNSEEN`): the best of those, from all others' point of view, is barely larger than the last one.

It shares no idea with the sweep (no intervals, no bounds, no order of tokens worked out beforehand) and no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from checker.history import Event

#: The holder under a token that no operation names. Names of tokens are whole numbers, so this is none of them.
UNSEEN = -0.5


class Call(NamedTuple):
    """One operation: its name, the token that it names, and what it reported (None: nobody knows)."""

    f: str
    token: int | None
    outcome: str | None
    result: int | None


class State(NamedTuple):
    holder: float | None
    last: float


class Configuration(NamedTuple):
    state: State
    open: frozenset[int]


def linearizable(events: Iterable[Event]) -> bool:
    """Whether the history of each of its keys fits the model."""
    keys: dict[str, list[Event]] = {}
    for event in events:
        if isinstance(event.process, int) and event.key is not None:
            keys.setdefault(event.key, []).append(event)
    return all(_key_is_linearizable(of_key) for of_key in keys.values())


def _key_is_linearizable(events: list[Event]) -> bool:
    calls, steps = _calls(events)
    owned = {call.result for call in calls if call.f == "acquire" and call.outcome == "ok"}
    named = {token for call in calls for token in (call.token, call.result) if token is not None}
    free_tokens = sorted(named - owned)
    reached = {Configuration(State(None, float("-inf")), frozenset())}
    for kind, number in steps:
        if kind == "invoke":
            reached = {Configuration(c.state, c.open | {number}) for c in reached}
        else:
            reached = {c for c in reached if number not in c.open}
        reached = _closure(reached, calls, free_tokens)
        if not reached:
            return False
    return True


def _calls(events: list[Event]) -> tuple[list[Call], list[tuple[str, int]]]:
    """The operations that can matter, and the order of their ends. A reported failure that says nothing about the lock
    never took effect, so it is left out."""
    calls: list[Call] = []
    steps: list[tuple[str, int]] = []
    completions: dict[int, Event] = {}
    invokes: dict[int | str, Event] = {}
    for event in events:
        if event.type == "invoke":
            invokes[event.process] = event
        else:
            completions[invokes.pop(event.process).index] = event
    numbers: dict[int, int] = {}
    open_by: dict[int | str, int] = {}
    for event in events:
        if event.type == "invoke":
            open_by[event.process] = event.index
            call = _call(event, completions.get(event.index))
            if call is not None:
                numbers[event.index] = len(calls)
                steps.append(("invoke", len(calls)))
                calls.append(call)
        else:
            invoke = open_by.pop(event.process)
            if invoke in numbers and event.type != "info":
                steps.append(("complete", numbers[invoke]))
    return calls, steps


def _call(invoke: Event, completion: Event | None) -> Call | None:
    token = (invoke.value or {}).get("token")
    if completion is None or completion.type == "info":
        return Call(invoke.f, token, None, None) if invoke.f in ("acquire", "release", "renew", "inspect") else None
    if completion.type == "ok":
        return Call(invoke.f, token, "ok", (completion.value or {}).get("token"))
    observed = {"acquire": "held", "release": "not-held", "renew": "not-held"}.get(invoke.f)
    return Call(invoke.f, token, completion.error, None) if completion.error == observed else None


def _closure(reached: set[Configuration], calls: list[Call], free_tokens: list[int]) -> set[Configuration]:
    seen = set(reached)
    frontier = list(reached)
    while frontier:
        here = frontier.pop()
        successors = [Configuration(State(None, here.state.last), here.open)] if here.state.holder is not None else []
        for number in here.open:
            rest = here.open - {number}
            successors += [Configuration(state, rest) for state in _effects(here.state, calls[number], free_tokens)]
        for successor in successors:
            if successor not in seen:
                seen.add(successor)
                frontier.append(successor)
    return seen


def _effects(state: State, call: Call, free_tokens: list[int]) -> Iterator[State]:
    """The states that `call` can lead to when it takes effect in `state`, as far as they fit what it reported."""
    free = state.holder is None
    match call.f, call.outcome:
        case "acquire", "ok":
            assert call.result is not None
            if free and call.result > state.last:
                yield State(call.result, call.result)
        case "acquire", "held":
            if not free:
                yield state
        case "acquire", None:
            if free:
                yield State(UNSEEN, state.last)
                yield from (State(token, token) for token in free_tokens if token > state.last)
        case "release", "ok":
            if state.holder == call.token:
                yield State(None, state.last)
        case "release", None:
            if state.holder == call.token:
                yield State(None, state.last)
        case (("release" | "renew"), "not-held"):
            if state.holder != call.token:
                yield state
        case "renew", "ok":
            if state.holder == call.token:
                yield state
        case "inspect", "ok":
            if state.holder == call.result:
                yield state
        case _:
            pass


def fenced(events: Iterable[Event]) -> bool:
    """Whether no grant is at odds with any other of its key, each compared with each."""
    grants: list[tuple[str, int, int, int]] = []
    invokes: dict[int | str, int] = {}
    for event in events:
        if event.type == "invoke":
            invokes[event.process] = event.index
        elif event.type == "ok" and event.f == "acquire" and event.key is not None and event.value is not None:
            grants.append((event.key, invokes[event.process], event.index, event.value["token"]))
    return not any(
        one[0] == other[0] and one is not other and (one[3] == other[3] or (one[2] < other[1] and one[3] > other[3]))
        for one in grants
        for other in grants
    )
