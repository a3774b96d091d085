"""Clients that do what a list says, and nothing else."""

from __future__ import annotations

from checker.history import Event
from cluster.systems.base import Outcome
from tests.workloads.virtual import MS, LockService, constant
from workloads.simulate import Respond, simulate
from workloads.spec import Step
from workloads.steps import scripted

ASKED = (("lease_ms", 1_000), ("wait_ms", 0))


def acquire(at_ms: int, client: int, grant: str | None = None) -> Step:
    return Step(at_ms * MS, client, "acquire", "k1", ASKED, grant)


def release(at_ms: int, client: int, grant: str) -> Step:
    return Step(at_ms * MS, client, "release", "k1", (), grant)


def done(steps: list[Step], respond: Respond) -> list[Event]:
    return [event for event in simulate(scripted(steps), respond, threads=3) if event.type == "invoke"]


def test_each_step_comes_at_its_moment_on_its_client() -> None:
    steps = [acquire(5, 2), Step(7 * MS, 0, "inspect", "k2"), acquire(100, 1)]
    said = [(event.time // MS, event.process, event.f, event.key) for event in done(steps, constant(MS))]
    assert said == [(5, 2, "acquire", "k1"), (7, 0, "inspect", "k2"), (100, 1, "acquire", "k1")]


def test_a_release_has_the_token_of_the_grant_that_it_names_whoever_makes_it() -> None:
    events = done([acquire(0, 0, "a"), acquire(20, 2), release(50, 1, "a"), acquire(100, 2, "b")], LockService(1))
    assert [(event.process, event.f, event.value) for event in events] == [
        (0, "acquire", dict(ASKED)),
        (2, "acquire", dict(ASKED)),
        (1, "release", {"token": 1}),
        (2, "acquire", dict(ASKED)),
    ]


def test_a_step_waits_for_its_grant_and_its_client() -> None:
    granted = constant(30 * MS, Outcome("ok", {"token": 9}))
    events = done([acquire(0, 0, "a"), release(1, 1, "a"), acquire(2, 0)], granted)
    assert [(event.time // MS, event.process, event.f) for event in events] == [
        (0, 0, "acquire"),
        (30, 1, "release"),
        (30, 0, "acquire"),
    ]


def test_what_is_about_a_grant_that_never_came_is_left_out() -> None:
    for outcome in (Outcome("fail", error="held"), Outcome("info", error="timeout")):
        events = done([acquire(0, 0, "a"), release(10, 0, "a"), release(20, 1, "a")], constant(MS, outcome))
        assert [event.f for event in events] == ["acquire"]
