"""A lock service that exists in virtual time only, for generators under test."""

from __future__ import annotations

from checker.history import Event
from cluster.systems.base import Outcome
from workloads.dispatch import Invocation
from workloads.generator import Op
from workloads.seeds import Seed
from workloads.simulate import Respond

MS = 1_000_000
S = 1_000 * MS


def constant(latency_ns: int, outcome: Outcome | None = None) -> Respond:
    """Every call ends after the same time, in the same way."""
    answer = outcome or Outcome("ok")
    return lambda _invocation, _now: (latency_ns, answer)


class LockService:
    """Grants and expires locks at the moment of the invocation; answers after a random 1-8 ms. A share of the calls
    ends `info`, having had its effect."""

    def __init__(self, seed: int, info_share: float = 0.0) -> None:
        self._seed = Seed(seed)
        self._info_share = info_share
        self._held: dict[str, tuple[int, int]] = {}  # key -> (token, end)
        self._tokens = 0
        self._calls = 0

    def __call__(self, invocation: Invocation, now: int) -> tuple[int, Outcome]:
        self._calls += 1
        seed = self._seed.split(self._calls)
        outcome = self._apply(invocation.op, now)
        if seed.split("info").chance(self._info_share):
            outcome = Outcome("info", error="timeout")
        return seed.split("latency").between(1 * MS, 8 * MS), outcome

    def _apply(self, op: Op, now: int) -> Outcome:
        key, value = op.key or "", op.value or {}
        token, end = self._held.get(key, (None, 0))
        if end <= now:
            token = None
        match op.f:
            case "acquire" if token is not None:
                return Outcome("fail", error="held")
            case "acquire":
                self._tokens += 1
                self._held[key] = (self._tokens, now + value["lease_ms"] * MS)
                return Outcome("ok", {"token": self._tokens})
            case "release" if token != value["token"]:
                return Outcome("fail", error="not-held")
            case "release":
                del self._held[key]
                return Outcome("ok")
            case "inspect":
                return Outcome("ok", {"token": token})
        return Outcome("ok")


def invokes(history: list[Event], f: str | None = None) -> list[Event]:
    return [event for event in history if event.type == "invoke" and (f is None or event.f == f)]


def well_formed(history: list[Event]) -> None:
    """Every process alternates between invocation and completion, ends with a completion, and is silent after an
    `info`; time never goes back and indices are dense."""
    open_: dict[int | str, Event] = {}
    retired: set[int | str] = set()
    for index, event in enumerate(history):
        assert event.index == index
        assert index == 0 or history[index - 1].time <= event.time
        assert event.process not in retired
        if event.type == "invoke":
            assert event.process not in open_
            open_[event.process] = event
        else:
            begun = open_.pop(event.process)
            assert (begun.f, begun.key, begun.node) == (event.f, event.key, event.node)
            if event.type == "info":
                retired.add(event.process)
    assert not open_
