"""Small random histories of a lock, from a seed: first one that a correct service could have produced, then damaged.

The service is simulated: every operation takes effect at a random moment of its window, leases end at random, and
operations of unknown outcome take effect late or never. Damage swaps tokens, moves, drops and forges events, always
leaving a well-formed history, so that many no longer fit the model. Arbitrary histories come from no service at all:
they are full of acquires of unknown outcome and of observations that need one to be explained.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import msgspec

from checker.history import Event

LEASE_MS = 1000


@dataclass(slots=True)
class _Call:
    process: int
    f: str
    key: str
    token: int | None
    done: bool = False
    observed: bool = True
    result: int | None = None
    lease_ns: int = 0


class _Service:
    """The model itself, as a program."""

    def __init__(self, random: random.Random, keys: str) -> None:
        self.random = random
        self.holder: dict[str, int | None] = dict.fromkeys(keys)
        self.granted: dict[str, list[int]] = {key: [] for key in keys}
        self.counter = 0
        self.step = random.choice([1, 1, 3])

    def take_effect(self, call: _Call) -> None:
        call.done = True
        holder = self.holder[call.key]
        match call.f:
            case "acquire":
                call.observed = holder is None
                if holder is None:
                    self.counter += self.random.randint(1, self.step)
                    call.result = self.holder[call.key] = self.counter
                    self.granted[call.key].append(self.counter)
            case "release":
                call.observed = holder == call.token
                if call.observed:
                    self.holder[call.key] = None
            case "renew":
                call.observed = holder == call.token
            case "inspect":
                call.result = holder


class _Recorder:
    """`brief` histories last a few nanoseconds, with several events at one time."""

    def __init__(self, random: random.Random, *, brief: bool = False) -> None:
        self.random = random
        self.brief = brief
        self.events: list[Event] = []
        self.time = 0

    def add(self, call: _Call, type: Any, value: dict[str, Any] | None = None, error: str | None = None) -> None:
        self.time += self.random.choice([0, 0, 1, 2]) if self.brief else self.random.randint(1_000, 2_000_000)
        node = f"n{call.process % 3 + 1}"
        self.events.append(Event(len(self.events), self.time, call.process, type, call.f, call.key, value, error, node))


def valid(random: random.Random, operations: int = 12, keys: str | None = None) -> list[Event]:
    """A history that fits the model, of at most so many operations, on one key or two, or on `keys`."""
    concurrency = random.randint(1, 5)
    unknown_share = random.choice([0, 0.1, 0.25, 0.5])
    expiry_share = random.choice([0.02, 0.1])
    service = _Service(random, random.choice(["a", "a", "ab"]) if keys is None else keys)
    recorder = _Recorder(random)
    calls: list[_Call | None] = [None] * concurrency
    numbers = list(range(concurrency))
    late: list[_Call] = []
    left = operations
    while left or any(calls):
        for key in service.holder:
            if random.random() < expiry_share:
                service.holder[key] = None
        if late and random.random() < 0.3:
            service.take_effect(late.pop(random.randrange(len(late))))
        worker = random.randrange(concurrency)
        call = calls[worker]
        if call is None:
            if left:
                left -= 1
                calls[worker] = call = _invoke(random, service, numbers[worker])
                names = {} if call.token is None else {"token": call.token}
                lease = {"lease_ms": LEASE_MS} if call.f in ("acquire", "renew") else {}
                recorder.add(call, "invoke", {**names, **lease} or None)
        elif random.random() < unknown_share * 0.7:
            if not call.done:
                late.append(call)
            if random.random() < 0.7:
                recorder.add(call, "info", error="timeout")
            numbers[worker] += concurrency
            calls[worker] = None
        elif call.done:
            _complete(recorder, call)
            calls[worker] = None
        elif random.random() < 0.05:
            recorder.add(call, "fail", error="no-leader")
            calls[worker] = None
        else:
            service.take_effect(call)
    return recorder.events


def damaged(random: random.Random, operations: int = 12, keys: str | None = None) -> list[Event]:
    """A well-formed history that may or may not fit: `valid` after no, one or a few changes."""
    events = valid(random, operations, keys)
    for _ in range(random.choice([0, 1, 2, 3, 4])):
        if events:
            events = _renumbered(random.choice(_DAMAGES)(random, events))
    return events


def arbitrary(random: random.Random, operations: int = 10, keys: str = "a") -> list[Event]:
    """Operations that overlap at random, with outcomes at random."""
    recorder = _Recorder(random)
    open_calls: list[_Call] = []
    process = 0
    overlap = random.choice([1, 2, 4])
    tokens = random.randint(1, 5)
    while process < operations or open_calls:
        if process < operations and (len(open_calls) < overlap or random.random() < 0.2):
            f = random.choices(["acquire", "release", "inspect", "renew"], [10, 3, 6, 1])[0]
            token = random.randint(1, tokens) if f in ("release", "renew") else None
            call = _Call(process, f, random.choice(keys), token)
            recorder.add(call, "invoke", None if token is None else {"token": token})
            open_calls.append(call)
            process += 1
        else:
            call = open_calls.pop(random.randrange(len(open_calls)))
            if call.f == "acquire" and random.random() < 0.5:
                if random.random() < 0.5:
                    recorder.add(call, "info", error="timeout")
                continue
            call.observed = random.random() < 0.5
            call.result = random.choice([None, random.randint(1, tokens)])
            if call.f == "acquire" and call.result is None:
                call.observed = False
            elif call.f == "inspect":
                call.observed = True
            _complete(recorder, call)
    return recorder.events


def _invoke(random: random.Random, service: _Service, process: int) -> _Call:
    key = random.choice(list(service.holder))
    f = random.choices(["acquire", "release", "inspect", "renew"], [10, 6, 3, 2])[0]
    granted = service.granted[key]
    if f in ("release", "renew"):
        if not granted:
            return _Call(process, "acquire", key, None)
        token = granted[-1] if random.random() < 0.7 else random.choice([*granted, service.counter + 1])
        return _Call(process, f, key, token)
    return _Call(process, f, key, None)


def _complete(recorder: _Recorder, call: _Call) -> None:
    if not call.observed:
        recorder.add(call, "fail", error="held" if call.f == "acquire" else "not-held")
    elif call.f in ("acquire", "inspect"):
        recorder.add(call, "ok", {"token": call.result})
    else:
        recorder.add(call, "ok")


def crowded(random: random.Random, keys: str) -> list[Event]:
    """Keys with one counter of tokens, each with acquires of unknown outcome from the start, and much that is seen."""
    recorder = _Recorder(random)
    calls = [_Call(number, "acquire", key, None) for number, key in enumerate(keys * 2) if random.random() < 0.5]
    for call in calls:
        recorder.add(call, "invoke")
    open_calls: list[_Call] = []
    process, token, left = 2 * len(keys), 0, random.randint(5, 11)
    while left or open_calls:
        if left and len(open_calls) < random.choice([1, 2, 3]):
            left -= 1
            key = random.choice(keys)
            f, observed = random.choices([("acquire", False), ("inspect", True), ("acquire", True)], [5, 4, 5])[0]
            call = _Call(process, f, key, None, observed=observed)
            if f == "inspect" and random.random() < 0.4:
                call.result = random.randint(1, token + 2)
            recorder.add(call, "invoke")
            open_calls.append(call)
            process += 1
        else:
            call = open_calls.pop(random.randrange(len(open_calls)))
            if call.f == "acquire" and call.observed:
                token += 1
                call.result = token + (random.random() < 0.2)
            _complete(recorder, call)
    return recorder.events


def timed(random: random.Random, operations: int = 10) -> list[Event]:
    """A history of a few nanoseconds, with leases as short: of a service that mostly keeps them, then damaged."""
    events = _brief(random, operations)
    for _ in range(random.choice([0, 0, 1, 2])):
        if events:
            events = _renumbered(random.choice(_DAMAGES)(random, events))
    return events


def _brief(random: random.Random, operations: int) -> list[Event]:
    concurrency = random.randint(1, 4)
    unknown_share = random.choice([0, 0, 0.2, 0.4])
    haste = random.choice([0, 0, 0.2])
    service = _Service(random, "a")
    recorder = _Recorder(random, brief=True)
    calls: list[_Call | None] = [None] * concurrency
    numbers = list(range(concurrency))
    late: list[_Call] = []
    over = 0
    left = operations
    while left or any(calls):
        if service.holder["a"] is not None and (recorder.time >= over or random.random() < haste):
            service.holder["a"] = random.choice([None, service.holder["a"]])
        worker = random.randrange(concurrency)
        call = calls[worker]
        effect = None
        if late and random.random() < 0.3:
            effect = late.pop(random.randrange(len(late)))
        elif call is None:
            if left:
                left -= 1
                calls[worker] = call = _invoke(random, service, numbers[worker])
                value: dict[str, Any] = {} if call.token is None else {"token": call.token}
                if call.f in ("acquire", "renew") and random.random() < 0.95:
                    call.lease_ns = random.choice([0, 2, 5, 9])
                    value["lease_ms"] = call.lease_ns / 1_000_000
                recorder.add(call, "invoke", value or None)
        elif random.random() < unknown_share * 0.7:
            if not call.done:
                late.append(call)
            if random.random() < 0.7:
                recorder.add(call, "info", error="timeout")
            numbers[worker] += concurrency
            calls[worker] = None
        elif call.done:
            _complete(recorder, call)
            calls[worker] = None
        else:
            effect = call
        if effect is not None:
            service.take_effect(effect)
            if effect.observed and effect.f in ("acquire", "renew"):
                over = recorder.time + effect.lease_ns
    return recorder.events


def _renumbered(events: list[Event]) -> list[Event]:
    times = sorted(event.time for event in events)
    return [
        msgspec.structs.replace(event, index=index, time=time)
        for index, (event, time) in enumerate(zip(events, times, strict=True))
    ]


def _tokens(events: list[Event]) -> list[int]:
    """The positions of the events that carry a token."""
    return [i for i, event in enumerate(events) if event.value and event.value.get("token") is not None]


def _with_token(event: Event, token: int) -> Event:
    return msgspec.structs.replace(event, value={**(event.value or {}), "token": token})


def _swap_tokens(random: random.Random, events: list[Event]) -> list[Event]:
    carriers = _tokens(events)
    if len(carriers) < 2:
        return events
    one, other = random.sample(carriers, 2)
    changed = list(events)
    changed[one] = _with_token(events[one], events[other].value["token"])  # type: ignore[index]
    changed[other] = _with_token(events[other], events[one].value["token"])  # type: ignore[index]
    return changed


def _shift_token(random: random.Random, events: list[Event]) -> list[Event]:
    carriers = _tokens(events)
    if not carriers:
        return events
    one = random.choice(carriers)
    changed = list(events)
    changed[one] = _with_token(events[one], max(1, events[one].value["token"] + random.choice([-2, -1, 1, 2])))  # type: ignore[index]
    return changed


def _drop_operation(random: random.Random, events: list[Event]) -> list[Event]:
    start = random.choice([i for i, event in enumerate(events) if event.type == "invoke"])
    end = _completion(events, start)
    return [event for i, event in enumerate(events) if i not in (start, end)]


def _drop_completion(random: random.Random, events: list[Event]) -> list[Event]:
    start = random.choice([i for i, event in enumerate(events) if event.type == "invoke"])
    end = _completion(events, start)
    if end is None:
        return events
    # The worker goes on under another number, as after any operation that nobody knows the end of.
    process = events[start].process
    fresh = 1 + max(event.process for event in events if isinstance(event.process, int))
    return [
        msgspec.structs.replace(event, process=fresh) if i > end and event.process == process else event
        for i, event in enumerate(events)
        if i != end
    ]


def _forge_completion(random: random.Random, events: list[Event]) -> list[Event]:
    completions = [i for i, event in enumerate(events) if event.type != "invoke"]
    if not completions:
        return events
    one = random.choice(completions)
    event = events[one]
    tokens = [events[i].value["token"] for i in _tokens(events)] or [1]  # type: ignore[index]
    kind = random.choice(["ok", "ok", "fail", "info"])
    value: dict[str, Any] | None = None
    error: str | None = None
    if kind == "ok" and event.f in ("acquire", "inspect"):
        value = {"token": random.choice([*tokens, max(tokens) + 1])}
        if event.f == "inspect" and random.random() < 0.4:
            value = {"token": None}
    elif kind == "fail":
        error = {"acquire": "held", "release": "not-held", "renew": "not-held", "inspect": "no-leader"}[event.f]
    changed = list(events)
    changed[one] = Event(event.index, event.time, event.process, kind, event.f, event.key, value, error, event.node)  # type: ignore[arg-type]
    return changed


def _move_event(random: random.Random, events: list[Event]) -> list[Event]:
    """Some places earlier or later, not past another event of its process."""
    changed = list(events)
    place = random.randrange(len(changed))
    direction = random.choice([-1, 1])
    for _ in range(random.randint(1, 6)):
        other = place + direction
        if not 0 <= other < len(changed) or changed[other].process == changed[place].process:
            break
        changed[place], changed[other] = changed[other], changed[place]
        place = other
    return changed


def _completion(events: list[Event], start: int) -> int | None:
    for i in range(start + 1, len(events)):
        if events[i].process == events[start].process:
            return i if events[i].type != "invoke" else None
    return None


_DAMAGES = (_swap_tokens, _shift_token, _drop_operation, _drop_completion, _forge_completion, _move_event)
