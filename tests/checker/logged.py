"""Random histories of a correct lock service that writes down what it applies, and what became of each operation.

Operations take effect at a random moment of their window, or much later, or never, if nobody waits for their answer any
more; leases last as long as was asked, at least. Three nodes apply the log, each somewhat later than the first.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from checker import Applied, Event, Evidence, Proposal
from checker.events import EventType

LEASE_MS = 20
STEP_NS = 1_000_000
NODES = 3


@dataclass(slots=True)
class Call:
    invoke: int
    process: int
    f: str
    key: str
    token: int | None
    result: tuple[EventType, dict[str, int | None] | None, str | None] | None = None


@dataclass(slots=True)
class Logged:
    """`effects` has, by the invoke of an operation that changed a lock, the position of the first event after that, and
    the token."""

    events: list[Event] = field(default_factory=list)
    evidence: Evidence = field(default_factory=lambda: Evidence({}))
    effects: dict[int, tuple[int, int]] = field(default_factory=dict)


class _Service:
    def __init__(self, rng: random.Random, keys: str, processes: int) -> None:
        self.rng = rng
        self.logged = Logged()
        self.now = 0
        self.held: dict[str, tuple[int, int]] = {}  # key -> (token, end of its lease)
        self.log: list[Applied] = []
        self.proposals: list[Proposal] = []
        self.granted = 0
        self.keys = keys
        self.open: dict[int, Call] = {}
        self.adrift: list[Call] = []  # nobody waits for these
        self.believed: dict[int, tuple[str, int]] = {}
        self.numbers = list(range(processes))

    def record(self, type: EventType, call: Call, value: dict[str, int | None] | None, error: str | None) -> int:
        self.now += self.rng.randint(1, STEP_NS)
        index = len(self.logged.events)
        process = self.numbers[call.process]
        self.logged.events.append(Event(index, self.now, process, type, call.f, call.key, value, error))
        return index

    def apply(self, command: str, result: str, key: str, token: int | None, invoke: int | None) -> None:
        self.now += self.rng.randint(1, STEP_NS)
        index = len(self.log) + 1
        self.log.append(Applied(1, index, command, result, key, token, 1, self.now))
        if invoke is not None:
            self.proposals.append(Proposal(index, 1, invoke))

    def expire(self, key: str) -> None:
        if key in self.held and self.held[key][1] <= self.now and self.rng.random() < 0.5:
            token, _ = self.held.pop(key)
            self.apply(f"Expire {key} {token}", "Expired", key, None, None)

    def take_effect(self, call: Call) -> None:
        self.expire(call.key)
        holder = self.held.get(call.key, (None, 0))[0]
        call.result = ("ok", None, None)
        if call.f == "acquire" and holder is None:
            self.granted += 1
            self.apply(f"Grant {call.key}", f"Granted {self.granted}", call.key, self.granted, call.invoke)
            self.held[call.key] = self.granted, self.now + LEASE_MS * 1_000_000
            self.logged.effects[call.invoke] = len(self.logged.events), self.granted
            call.result = ("ok", {"token": self.granted}, None)
        elif call.f == "acquire":
            call.result = ("fail", None, "held")
        elif call.f == "inspect":
            call.result = ("ok", {"token": holder}, None)
        elif holder == call.token and call.token is not None:
            del self.held[call.key]
            self.apply(f"Release {call.key}", "Released", call.key, None, call.invoke)
            self.logged.effects[call.invoke] = len(self.logged.events), call.token
        else:
            call.result = ("fail", None, "not-held")

    def invoke(self, worker: int) -> None:
        believed = self.believed.pop(worker, None)
        if believed is not None:
            call = Call(0, worker, "release", *believed)
            call.invoke = self.record("invoke", call, {"token": call.token}, None)
        else:
            f = "inspect" if self.rng.random() < 0.3 else "acquire"
            call = Call(0, worker, f, self.rng.choice(self.keys), None)
            value: dict[str, int | None] | None = {"lease_ms": LEASE_MS, "wait_ms": 0} if f == "acquire" else None
            call.invoke = self.record("invoke", call, value, None)
        self.open[worker] = call

    def complete(self, worker: int, unknown: float) -> None:
        call = self.open.pop(worker)
        assert call.result is not None
        if self.rng.random() < unknown:
            self.forget(worker, call)
            return
        type, value, error = call.result
        self.record(type, call, value, error)
        if call.f == "acquire" and value is not None and value["token"] is not None:
            self.believed[worker] = (call.key, value["token"])

    def forget(self, worker: int, call: Call) -> None:
        self.record("info", call, None, "timeout")
        self.numbers[worker] += len(self.numbers)


def logged(seed: int, *, operations: int = 30, processes: int = 4, unknown: float = 0.25, keys: str = "ab") -> Logged:
    rng = random.Random(seed)
    service = _Service(rng, keys, processes)
    while operations or service.open:
        if service.adrift and rng.random() < 0.2:
            call = service.adrift.pop(rng.randrange(len(service.adrift)))
            if rng.random() < 0.7:
                service.take_effect(call)
        worker = rng.randrange(processes)
        open_call = service.open.get(worker)
        if open_call is None:
            if operations:
                operations -= 1
                service.invoke(worker)
        elif open_call.result is not None:
            service.complete(worker, unknown / 2)
        elif rng.random() < unknown / 2:
            service.forget(worker, service.open.pop(worker))
            service.adrift.append(open_call)
        else:
            service.take_effect(open_call)
    service.logged.evidence = Evidence(_applied_by_nodes(service), (), service.proposals)
    return service.logged


def _applied_by_nodes(service: _Service) -> dict[str, list[Applied]]:
    """Each node has applied the log up to somewhere, the first all of it."""
    nodes = {"n1": service.log}
    for number in range(2, NODES + 1):
        count = service.rng.randint(0, len(service.log))
        late = service.rng.randint(0, STEP_NS)
        nodes[f"n{number}"] = [
            Applied(one.life, one.index, one.command, one.result, one.key, one.token, one.term, (one.at or 0) + late)
            for one in service.log[:count]
        ]
    return nodes
