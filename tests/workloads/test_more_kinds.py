"""The kinds that make trouble: what their clients ask for, and that they stop as they should."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from checker.history import Event
from cluster.systems.base import Outcome
from tests.workloads.virtual import LockService
from workloads import kinds
from workloads.dispatch import Invocation
from workloads.simulate import simulate
from workloads.spec import WorkloadSpec

MS = 1_000_000
SECOND = 1_000 * MS


def spec(kind: str, **changes: object) -> WorkloadSpec:
    fields: dict[str, object] = {
        "kind": kind, "clients": 6, "keys": 2, "rate": 300.0, "lease_ms": 500, "hold_ms": (1, 20), "wait_ms": 200,
        "overrun": 0.1,
    }  # fmt: skip
    return WorkloadSpec(**(fields | changes))  # type: ignore[arg-type]


def main(made: WorkloadSpec, seed: int = 1, seconds: int = 10) -> list[Event]:
    workload = kinds.build(made, seed, seconds * SECOND)
    return simulate(workload.main, LockService(0), threads=made.clients, nodes=("n1", "n2", "n3"))


def invoked(history: list[Event], f: str) -> list[Event]:
    return [event for event in history if event.type == "invoke" and event.f == f]


@pytest.mark.parametrize("kind", kinds.names())
def test_every_kind_gives_the_same_again_and_keeps_to_its_time(kind: str) -> None:
    history = main(spec(kind))
    assert history == main(spec(kind))
    assert history != main(spec(kind), seed=2)
    assert len(history) > 100
    assert max(event.time for event in history if event.type == "invoke") < 10 * SECOND


@pytest.mark.parametrize("kind", kinds.names())
def test_a_client_makes_no_more_operations_than_it_may(kind: str) -> None:
    made = spec(kind, operations=3)
    counts = Counter(event.process for event in main(made) if event.type == "invoke")
    assert max(counts.values()) <= 3 * (2 if kind == "retries" else 1)


def test_ghosts_abandon_at_every_moment_and_others_give_back() -> None:
    for kind, moments in (("ghost", {0}), ("late-ghost", set(range(31)))):
        acquires = invoked(main(spec(kind)), "acquire")
        left = [event.value["abandon_ms"] for event in acquires if event.value and "abandon_ms" in event.value]
        assert 0.4 < len(left) / len(acquires) < 0.8
        assert set(left) == moments


def test_waiters_differ_in_patience_and_lease_and_some_die() -> None:
    values = [event.value or {} for event in invoked(main(spec("waiters")), "acquire")]
    assert {value["wait_ms"] for value in values} == {40, 200, 800}
    assert {value["lease_ms"] for value in values} == {500, 1_000}
    assert any("abandon_ms" in value for value in values)
    assert all(value.get("abandon_ms", 0) <= value["wait_ms"] for value in values)


def test_two_of_three_only_ask() -> None:
    history = main(spec("holder-queries", reads=0.0))
    askers = {int(event.process) % 6 for event in invoked(history, "inspect")}
    assert askers == {1, 2, 4, 5}
    assert {int(event.process) % 6 for event in invoked(history, "acquire")} == {0, 3}


def test_some_leases_are_long() -> None:
    made = spec("mixed-leases")
    leases = Counter((event.value or {})["lease_ms"] for event in invoked(main(made), "acquire"))
    assert set(leases) == {500, 4_000}
    assert kinds.longest_lease_ms(made) == 4_000


def test_a_release_is_repeated_by_the_other_hand_at_about_the_same_time() -> None:
    releases = invoked(main(spec("retries", overrun=0.0)), "release")
    first = {(event.value or {})["token"]: event for event in releases if int(event.process) % 2 == 0}
    second = [event for event in releases if int(event.process) % 2 == 1]
    assert 0.3 < len(second) / len(first) < 0.7
    for event in second:
        twin = first[(event.value or {})["token"]]
        assert 0 <= event.time - twin.time <= 13 * MS
        assert event.key == twin.key


def test_what_is_unknown_is_tried_again_under_a_new_process() -> None:
    def unknown(invocation: Invocation, now: int) -> tuple[int, Outcome]:  # noqa: ARG001
        return MS, Outcome("info", error="timeout")

    workload = kinds.build(spec("retries", clients=1, reads=0.0, rate=10.0), 1, SECOND)
    history = simulate(workload.main, unknown, threads=1)
    acquires = invoked(history, "acquire")
    assert len({event.process for event in acquires}) == len(acquires)
    for position in range(0, len(acquires) - 5, 5):
        attempts = acquires[position : position + 5]
        assert len({event.key for event in attempts}) == 1
        assert [after.time - before.time for before, after in pairwise(attempts)] == [6 * MS] * 4
