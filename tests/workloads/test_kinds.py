"""The kinds of workload in virtual time, against a lock service that keeps its promises."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker.history import Event
from cluster.systems.base import Outcome
from tests.workloads.virtual import MS, LockService, S, constant, invokes, well_formed
from workloads import kinds
from workloads.dispatch import Invocation
from workloads.mutex import RELEASE_ATTEMPTS_MAX
from workloads.recovery import ATTEMPTS_MAX, PATIENCE_MS, recovery
from workloads.simulate import simulate
from workloads.spec import WorkloadSpec

NODES = ("n1", "n2", "n3")
MUTEX = WorkloadSpec("mutex", 10, 4, 200.0, 1500, (5, 50), overrun=0.02)
GUARDED = WorkloadSpec("guarded-resource", 10, 4, 200.0, 1500, (5, 50), overrun=0.05)


def run(spec: WorkloadSpec, seed: int, time_limit_ns: int, info_share: float = 0.0) -> list[Event]:
    workload = kinds.build(spec, seed, time_limit_ns)
    return simulate(workload.main, LockService(seed, info_share), threads=spec.clients, nodes=NODES)


def completion(history: list[Event], invoke: Event) -> Event:
    return next(event for event in history[invoke.index + 1 :] if event.process == invoke.process)


@pytest.mark.parametrize("spec", [MUTEX, GUARDED], ids=lambda spec: spec.kind)
@given(seed=st.integers(0, 2**63))
@settings(max_examples=4)
def test_histories_are_well_formed_and_depend_on_the_seed_alone(spec: WorkloadSpec, seed: int) -> None:
    history = run(spec, seed, 5 * S, info_share=0.05)
    well_formed(history)
    assert history == run(spec, seed, 5 * S, info_share=0.05)
    assert history != run(spec, seed + 1, 5 * S, info_share=0.05)


@pytest.mark.parametrize("spec", [MUTEX, GUARDED], ids=lambda spec: spec.kind)
def test_the_rate_is_nearly_reached_and_never_exceeded(spec: WorkloadSpec) -> None:
    """What is missing are the clients who sleep past their lease and send nothing meanwhile."""
    count = len(invokes(run(spec, 1, 30 * S)))
    assert 0.7 * 200 * 30 < count < 1.05 * 200 * 30


def test_clients_are_dealt_out_to_nodes() -> None:
    for event in run(MUTEX, 1, 2 * S, info_share=0.1):
        assert isinstance(event.process, int)
        assert event.node == NODES[event.process % MUTEX.clients % len(NODES)]


def test_every_client_uses_every_key_and_looks_now_and_then() -> None:
    history = run(MUTEX, 3, 20 * S)
    used = {(event.process, event.key) for event in invokes(history, "acquire")}
    assert used == {(process, key) for process in range(10) for key in MUTEX.key_names()}
    looks, turns = len(invokes(history, "inspect")), len(invokes(history, "acquire"))
    assert looks / (looks + turns) == pytest.approx(0.1, abs=0.02)


def test_a_holder_releases_its_own_token_after_its_hold() -> None:
    history = run(WorkloadSpec("mutex", 10, 4, 200.0, 1500, (5, 50)), 5, 30 * S)
    granted = {
        event.value["token"]: event
        for event in history
        if event.f == "acquire" and event.type == "ok" and event.value is not None
    }
    released = invokes(history, "release")
    assert len(released) > 500
    for event in released:
        assert event.value is not None
        grant = granted.pop(event.value["token"])
        assert grant.process == event.process
        assert grant.key == event.key
        assert 5 * MS <= event.time - grant.time <= 50 * MS
    # Only those who hold when time is up keep their lock.
    assert len(granted) <= 10


def test_a_share_of_the_holders_outlives_its_lease_and_half_of_them_forget() -> None:
    spec = WorkloadSpec("mutex", 10, 40, 200.0, 1000, (5, 50), overrun=0.2)
    history = run(spec, 6, 120 * S)
    held = {
        event.value["token"]: event.time
        for event in history
        if event.f == "acquire" and event.type == "ok" and event.value is not None
    }
    lasted = {
        event.value["token"]: event.time - held[event.value["token"]]
        for event in invokes(history, "release")
        if event.value is not None
    }
    late = [duration for duration in lasted.values() if duration > 50 * MS]
    assert all(1005 * MS <= duration <= 1550 * MS for duration in late)
    assert len(late) / len(held) == pytest.approx(0.1, abs=0.03)
    assert 1 - len(lasted) / len(held) == pytest.approx(0.1, abs=0.03)


def test_where_clients_may_wait_half_of_them_do() -> None:
    spec = WorkloadSpec("mutex", 10, 4, 200.0, 1500, (5, 50), wait_ms=300)
    waits = Counter(event.value["wait_ms"] for event in invokes(run(spec, 2, 30 * S), "acquire") if event.value)
    assert set(waits) == {0, 300}
    assert waits[300] / waits.total() == pytest.approx(0.5, abs=0.05)


def test_what_one_client_chooses_does_not_depend_on_the_others() -> None:
    """Client 3 alone, among others, and among others to whom nothing happens as before: the same keys in order."""

    def keys(history: list[Event]) -> list[str | None]:
        return [event.key for event in invokes(history) if event.process == 3 and event.f != "release"][:50]

    few = kinds.build(WorkloadSpec("mutex", 4, 4, 80.0, 1500, (5, 50)), 9, 20 * S)
    alone = keys(simulate(few.main, LockService(1), threads=4))
    assert alone == keys(run(WorkloadSpec("mutex", 10, 4, 200.0, 1500, (5, 50)), 9, 20 * S))
    assert len(alone) == 50


def test_an_info_ends_the_turn_and_the_successor_starts_anew() -> None:
    history = run(MUTEX, 4, 20 * S, info_share=0.1)
    for event in history:
        if event.type == "info" and isinstance(event.process, int):
            later = [other for other in history[event.index :] if other.process == event.process + MUTEX.clients]
            assert not later or later[0].f in ("acquire", "inspect")


def test_a_release_that_was_not_sent_is_tried_again_for_a_while() -> None:
    def respond(invocation: Invocation, _now: int) -> tuple[int, Outcome]:
        if invocation.op.f == "acquire":
            return MS, Outcome("ok", {"token": 1})
        return MS, Outcome("fail", error="not-connected")

    spec = WorkloadSpec("mutex", 1, 1, 1.0, 1500, (5, 50), reads=0.0)
    history = simulate(kinds.build(spec, 1, 20 * S).main, respond, threads=1)
    names = "".join(event.f[0] for event in invokes(history))
    turn = "a" + RELEASE_ATTEMPTS_MAX * "r"
    assert names.startswith(turn + turn)


def test_a_release_that_was_refused_is_not_tried_again() -> None:
    def respond(invocation: Invocation, _now: int) -> tuple[int, Outcome]:
        if invocation.op.f == "acquire":
            return MS, Outcome("ok", {"token": 1})
        return MS, Outcome("fail", error="not-held")

    spec = WorkloadSpec("mutex", 1, 1, 10.0, 1500, (5, 50), reads=0.0)
    names = [event.f for event in invokes(simulate(kinds.build(spec, 1, 20 * S).main, respond, threads=1))]
    assert names[:6] == ["acquire", "release"] * 3


def test_a_holder_writes_guarded_then_unguarded_then_releases() -> None:
    history = run(GUARDED, 8, 30 * S)
    turns: defaultdict[int, list[Event]] = defaultdict(list)
    for event in invokes(history):
        if event.f in ("write", "release") and event.value is not None:
            turns[event.value["token"]].append(event)
    complete = [turn for turn in turns.values() if len(turn) == 3]
    assert len(complete) > 300
    for guarded, twin, release in complete:
        assert [guarded.f, twin.f, release.f] == ["write", "write", "release"]
        assert guarded.value is not None
        assert twin.value == {**guarded.value, "guarded": False}
        assert guarded.process == twin.process == release.process
    data = [turn[0].value["data"] for turn in complete if turn[0].value is not None]
    assert len(set(data)) == len(data)


def test_some_holders_write_after_their_lease() -> None:
    history = run(GUARDED, 8, 60 * S)
    held = {
        event.value["token"]: event.time
        for event in history
        if event.f == "acquire" and event.type == "ok" and event.value is not None
    }
    waited = [event.time - held[event.value["token"]] for event in invokes(history, "write") if event.value is not None]
    late = [duration for duration in waited if duration > 1500 * MS]
    assert len(late) > 20
    assert len(late) / len(waited) == pytest.approx(0.05, abs=0.03)


def test_only_a_kind_with_a_resource_has_calls_of_its_own() -> None:
    assert set(kinds.build(MUTEX, 0, S).calls) == set()
    assert set(kinds.build(GUARDED, 0, S).calls) == {"write", "read"}
    assert [kind for kind in kinds.names() if kinds.uses_resource(kind)] == ["guarded-resource"]


@given(st.integers(1, 12), st.integers(1, 12))
def test_recovery_takes_gives_back_and_looks_at_every_key(clients: int, keys: int) -> None:
    spec = WorkloadSpec("mutex", clients, keys, 100.0, 1000, (5, 50))
    history = simulate(recovery(spec, range(clients)), LockService(0), threads=clients, nodes=NODES)
    well_formed(history)
    for key in spec.key_names():
        events = [event for event in invokes(history) if event.key == key]
        assert [event.f for event in events] == ["acquire", "release", "inspect"]
        assert events[0].value == {"lease_ms": 1000, "wait_ms": 1000 + PATIENCE_MS}
        assert completion(history, events[2]).value == {"token": None}
        if clients > 1:
            assert events[2].process != events[0].process


def test_recovery_looks_from_another_node() -> None:
    spec = WorkloadSpec("mutex", 3, 3, 100.0, 1000, (5, 50))
    history = simulate(recovery(spec, range(3)), LockService(0), threads=3, nodes=NODES)
    for key in spec.key_names():
        nodes = [event.node for event in invokes(history) if event.key == key]
        assert nodes[0] == nodes[1] != nodes[2]


@pytest.mark.parametrize(
    ("outcome", "attempts"),
    [
        (Outcome("fail", error="held"), 1),
        (Outcome("fail", error="timeout"), 1),
        (Outcome("fail", error="no-leader"), ATTEMPTS_MAX),
        (Outcome("info", error="timeout"), 1),
    ],
)
def test_recovery_tries_again_only_where_nothing_was_answered(outcome: Outcome, attempts: int) -> None:
    spec = WorkloadSpec("mutex", 2, 1, 100.0, 1000, (5, 50))
    history = simulate(recovery(spec, range(2)), constant(MS, outcome), threads=2)
    assert len(invokes(history, "acquire")) == attempts
