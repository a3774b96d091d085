"""The smallest part of a history that is refused as well, and for what is wrong with the whole."""

from __future__ import annotations

import random

import pytest

from checker import Evidence, History, Options, check, subhistory, sweep
from checker.committed import Applied, Proposal
from checker.history import Event, Operation
from tests.checker import exhaustive, generate, script
from tests.checker.compare import history_of
from tests.checker.scripts import SCRIPTS

SAMPLE = 300


def refused(events: list[Event], options: Options | None = None) -> list[list[Event]]:
    """The parts of all keys that are refused."""
    options = options or Options()
    results = subhistory.with_parts(check(events, ["linearizable"], options), History.of(events), options)
    judged = subhistory.judged_history(History.of(events), options)
    return [subhistory.of_finding(finding, judged) for finding in results.claims["linearizable"].findings]


def test_each_part_is_refused_by_whoever_looks_at_it() -> None:
    parts = shorter = 0
    for number in range(SAMPLE):
        events = history_of(51, number, operations=14)
        if not events:
            continue
        for part in refused(events):
            assert check(part, ["linearizable"]).violated == ("linearizable",)
            assert not exhaustive.linearizable(part)
            parts += 1
            shorter += len(part) < len(events) / 2
    assert parts > 50
    assert shorter > parts / 2


def test_a_part_holds_nothing_that_could_be_left_out() -> None:
    for number in range(SAMPLE):
        events = history_of(52, number, operations=12)
        for operations in History.of(events).by_key.values() if events else ():
            reason = sweep.decide(operations)
            if reason is None:
                continue
            part = subhistory.smallest(operations, [])
            assert part is not None
            for one in part:
                fewer = subhistory._with_helpers(part, [other for other in part if other is not one])
                assert one in fewer or sweep.decide(fewer) is None, number


def test_what_is_added_later_never_makes_a_part_fit() -> None:
    """A part is refused in the midst of everything that was left out, so it is no artefact of leaving that out."""
    rng = random.Random(7)
    for number in range(SAMPLE):
        events = history_of(53, number, operations=14)
        for operations in History.of(events).by_key.values() if events else ():
            part = subhistory.smallest(operations, []) if sweep.decide(operations) is not None else None
            if part is None:
                continue
            indices = {one.index for one in part}
            others = [one for one in operations if one.index not in indices]
            for _ in range(5):
                more = [*part, *(one for one in others if rng.random() < 0.5)]
                more.sort(key=lambda one: one.index)
                assert sweep.decide(more) is not None, number


@pytest.mark.parametrize(
    "name", [name for name, text in SCRIPTS.items() if not exhaustive.linearizable(script.events(text))]
)
def test_scripts(name: str) -> None:
    (part,) = refused(script.events(SCRIPTS[name]))
    assert check(part, ["linearizable"]).violated == ("linearizable",)


def test_in_a_long_history_the_part_is_short() -> None:
    events = generate.valid(random.Random(3), operations=2_000)
    again = [event for event in events if event.type == "ok" and event.f == "acquire"][-1]
    end, time = len(events), events[-1].time
    events += [
        Event(end, time, 10**6, "invoke", "acquire", again.key),
        Event(end + 1, time, 10**6, "ok", "acquire", again.key, again.value),
    ]
    (part,) = refused(events)
    assert len(part) == 4


def test_what_was_settled_completes_where_it_is_known_by() -> None:
    ms = 1_000_000
    events = [
        Event(0, 0, 0, "invoke", "acquire", "a", {"lease_ms": 100}),
        Event(1, 10 * ms, 0, "info", "acquire", "a", error="timeout"),
        Event(2, 20 * ms, 1, "invoke", "acquire", "a", {"lease_ms": 100}),
        Event(3, 30 * ms, 1, "ok", "acquire", "a", {"token": 1}),
    ]
    log = [
        Applied(1, 1, "Grant a", "Granted 7", "a", 7, 1, 15 * ms),
        Applied(1, 2, "Grant a", "Granted 1", "a", 1, 1, 25 * ms),
    ]
    evidence = Evidence({"n1": log}, (), [Proposal(1, 1, 0), Proposal(2, 1, 2)])
    (part,) = refused(events, Options(evidence=evidence))
    assert [(event.type, event.f) for event in part] == [("invoke", "acquire"), ("ok", "acquire")] * 2
    assert check(part, ["linearizable"]).violated == ("linearizable",)


def test_there_is_none_of_what_fits() -> None:
    operations: list[Operation] = list(History.of(script.events("1 acquire a\n1 ok 1")).operations)
    assert subhistory.smallest(operations, [0]) is None
