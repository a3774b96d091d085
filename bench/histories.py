"""Long histories as a correct lock service would produce them, from a seed: what the checker is measured on."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from checker.history import Event, EventType

#: Short against the simulated latencies, so that leases end while clients still hold.
LEASE_MS = 50

#: Chances per step; chosen so that all kinds of operations and outcomes are common.
INSPECT_SHARE = 0.1
WRITE_SHARE = 0.3
RELEASE_SHARE = 0.7


@dataclass(slots=True)
class _Call:
    f: str
    key: str
    token: int | None
    result: tuple[EventType, dict[str, Any] | None, str | None] | None = None


class _Recorder:
    def __init__(self, rng: random.Random, keep: Callable[[Event], object]) -> None:
        self.time = 0
        self._index = 0
        self._rng = rng
        self._keep = keep

    def add(
        self, process: int, type: EventType, call: _Call, value: dict[str, Any] | None, error: str | None = None
    ) -> None:
        self.time += self._rng.randint(1_000, 200_000)
        node = f"n{process % 5 + 1}"
        self._keep(Event(self._index, self.time, process, type, call.f, call.key, value, error, node))
        self._index += 1


def simulated(operations: int, *, keys: int, processes: int, unknown_share: float, seed: int) -> list[Event]:
    """A history that fits the model: each operation takes effect at a random moment of its window."""
    events: list[Event] = []
    _simulate(events.append, operations, keys, processes, unknown_share, seed)
    return events


def write_simulated(path: Path, operations: int, *, keys: int, processes: int, unknown_share: float, seed: int) -> None:
    """The same history as a file, which may be longer than memory."""
    encode = msgspec.json.Encoder().encode
    with path.open("wb") as file:
        _simulate(lambda event: file.write(encode(event) + b"\n"), operations, keys, processes, unknown_share, seed)


def _simulate(
    keep: Callable[[Event], object], operations: int, keys: int, processes: int, unknown_share: float, seed: int
) -> None:
    rng = random.Random(seed)
    recorder = _Recorder(rng, keep)
    holder: dict[str, int | None] = {f"k{number}": None for number in range(keys)}
    names = list(holder)
    lease_ends: dict[str, int] = {}
    believed: dict[int, tuple[str, int]] = {}
    open_calls: dict[int, _Call] = {}
    numbers = list(range(processes))
    granted = 0
    while operations or open_calls:
        worker = rng.randrange(processes)
        call = open_calls.get(worker)
        if call is None:
            if operations:
                operations -= 1
                call = open_calls[worker] = _next_call(rng, believed.get(worker), names)
                recorder.add(numbers[worker], "invoke", call, _arguments(call))
                if call.f == "release":
                    del believed[worker]
        elif call.result is None:
            if lease_ends.get(call.key, 0) <= recorder.time:
                holder[call.key] = None
            if call.f == "acquire" and holder[call.key] is None:
                lease_ends[call.key] = recorder.time + LEASE_MS * 1_000_000
            granted = _take_effect(call, holder, granted)
        elif rng.random() < unknown_share:
            recorder.add(numbers[worker], "info", call, None, "timeout")
            numbers[worker] += processes
            believed.pop(worker, None)
            del open_calls[worker]
        else:
            type, value, error = call.result
            recorder.add(numbers[worker], type, call, value, error)
            if call.f == "acquire" and type == "ok" and value is not None:
                believed[worker] = (call.key, value["token"])
            del open_calls[worker]


def _next_call(rng: random.Random, believed: tuple[str, int] | None, keys: list[str]) -> _Call:
    if believed is not None:
        chance = rng.random()
        if chance < RELEASE_SHARE:
            return _Call("release", *believed)
        if chance < RELEASE_SHARE + WRITE_SHARE:
            return _Call("write", *believed)
    return _Call("inspect" if rng.random() < INSPECT_SHARE else "acquire", rng.choice(keys), None)


def _arguments(call: _Call) -> dict[str, Any] | None:
    match call.f:
        case "acquire":
            return {"lease_ms": LEASE_MS, "wait_ms": 0}
        case "release":
            return {"token": call.token}
        case "write":
            return {"token": call.token, "data": "x", "guarded": False}
    return None


def _take_effect(call: _Call, holder: dict[str, int | None], granted: int) -> int:
    held = holder[call.key]
    call.result = ("ok", None, None)
    match call.f:
        case "acquire" if held is None:
            granted += 1
            holder[call.key] = granted
            call.result = ("ok", {"token": granted}, None)
        case "acquire":
            call.result = ("fail", None, "held")
        case "release" if held == call.token:
            holder[call.key] = None
        case "release":
            call.result = ("fail", None, "not-held")
        case "inspect":
            call.result = ("ok", {"token": held}, None)
    return granted
