"""Operations of unknown outcome, settled from the nodes' log: true where it says something, and of use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from checker import Applied, Event, Evidence, History, Options, Proposal, Verdict, check
from checker.history import OPEN, Operation
from checker.settle import Settled, settle
from tests.checker.logged import Logged, logged

SEEDS = 150
CLAIMS = ("linearizable", "mutual-exclusion", "fencing", "leases", "agreement")


def without_times(evidence: Evidence) -> Evidence:
    applied = {
        node: [msgspec.structs.replace(one, at=None) for one in entries] for node, entries in evidence.applied.items()
    }
    return replace(evidence, applied=applied)


def in_part(evidence: Evidence) -> Evidence:
    """The third node's record alone, which may end anywhere."""
    return replace(evidence, applied={"n3": evidence.applied["n3"]}, whole=False)


KINDS: dict[str, Callable[[Evidence], Evidence]] = {
    "with times": lambda evidence: evidence,
    "without times": without_times,
    "in part": in_part,
}


def unknown(history: History) -> list[Operation]:
    return [one for one in history.operations if one.outcome == "info" and one.f in ("acquire", "release")]


def assert_true(found: Logged, history: History, settled: Settled) -> None:
    """Whatever is said of an operation is what became of it."""
    after = {operation.index: operation for operation in settled.history.operations}
    for operation in unknown(history):
        now, effect = after[operation.index], found.effects.get(operation.index)
        if now.outcome == "ok":
            assert effect is not None
            assert now.token == effect[1]
            assert effect[0] <= now.end <= len(history.events)
            assert now.lease_ns is None
        elif now.outcome == "fail":
            assert effect is None
        else:
            assert now == operation
    known = [one for one in history.operations if one.outcome != "info"]
    assert all(after[one.index] == one for one in known)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_settled_is_true_and_no_true_history_is_refused(kind: str) -> None:
    counted = [0, 0, 0]
    for seed in range(SEEDS):
        found = logged(seed)
        evidence = KINDS[kind](found.evidence)
        history = History.of(found.events)
        settled = settle(history, evidence)
        assert_true(found, history, settled)
        results = check(history, CLAIMS, Options(evidence=evidence, tokens_span_keys=True))
        assert results.verdict is Verdict.VALID, (seed, results.violated)
        for place, count in enumerate(settled.numbers().values()):
            counted[place] += int(count)
        assert sum(settled.numbers().values()) == len(unknown(history))
    took_effect, no_effect, still_open = counted
    assert took_effect > SEEDS / 2
    if kind == "in part":
        assert no_effect == 0
    else:
        assert (no_effect > SEEDS / 2, still_open) == (True, 0)


def test_times_bound_an_effect_more_closely_than_order_alone() -> None:
    ends = {"with times": 0, "without times": 0}
    for seed in range(100):
        found = logged(seed)
        history = History.of(found.events)
        for kind in ends:
            settled = settle(history, KINDS[kind](found.evidence))
            ends[kind] += sum(one.end for one in settled.history.operations if one.settled is not None)
    assert ends["with times"] < ends["without times"]


def test_what_an_unknown_acquire_would_explain_is_refused_once_it_is_settled() -> None:
    events = [
        Event(0, 0, 0, "invoke", "acquire", "a", {"lease_ms": 100}),
        Event(1, 10, 0, "info", "acquire", "a", error="timeout"),
        Event(2, 20, 1, "invoke", "acquire", "a", {"lease_ms": 100}),
        Event(3, 30, 1, "fail", "acquire", "a", error="held"),
        Event(4, 40, 1, "invoke", "acquire", "b", {"lease_ms": 100}),
        Event(5, 50, 1, "ok", "acquire", "b", {"token": 1}),
    ]
    grant = Applied(1, 1, "Grant b", "Granted 1", "b", 1, 1, 45)
    evidence = Evidence({"n1": [grant]}, (), [Proposal(1, 1, 4)])
    refused = check(events, ["linearizable"], Options(evidence=evidence))
    assert refused.verdict is Verdict.INVALID
    assert refused.claims["linearizable"].numbers["settled_no_effect"] == 1
    assert check(events, ["linearizable"], Options(evidence=evidence, settle=False)).verdict is Verdict.VALID
    assert check(events, ["linearizable"], Options()).verdict is Verdict.VALID


def early(*, at: int | None) -> tuple[list[Event], Evidence]:
    """Somebody is granted the lock before the lease of its holder can be over, and never told."""
    events = [
        Event(0, 0, 0, "invoke", "acquire", "a", {"lease_ms": 1000}),
        Event(1, 10, 0, "ok", "acquire", "a", {"token": 1}),
        Event(2, 20, 1, "invoke", "acquire", "a", {"lease_ms": 1000}),
        Event(3, 30, 1, "info", "acquire", "a", error="timeout"),
        Event(4, 40_000, 2, "invoke", "inspect", "b"),
        Event(5, 50_000, 2, "ok", "inspect", "b", {"token": None}),
        Event(6, 3_000_000_000, 2, "invoke", "inspect", "b"),
        Event(7, 3_000_000_010, 2, "ok", "inspect", "b", {"token": None}),
    ]
    log = [
        Applied(1, 1, "Grant a", "Granted 1", "a", 1, 1, None if at is None else 5),
        Applied(1, 2, "Expire a 1", "Expired", "a", None, 1, at),
        Applied(1, 3, "Grant a", "Granted 2", "a", 2, 1, at),
    ]
    return events, Evidence({"n1": log}, (), [Proposal(1, 1, 0), Proposal(3, 1, 2)])


def test_a_settled_grant_shows_who_held_the_lock_as_soon_as_its_time_is_known() -> None:
    events, evidence = early(at=25)
    found = check(events, ["mutual-exclusion", "leases"], Options(evidence=evidence))
    assert found.violated == ("mutual-exclusion", "leases")
    message = found.claims["mutual-exclusion"].findings[0].message
    assert "took effect by 0.000 s (ok, token 2: entry 3 of the nodes' log)" in message
    events, evidence = early(at=None)
    assert check(events, ["mutual-exclusion", "leases"], Options(evidence=evidence)).verdict is Verdict.VALID


def disagreeing(evidence: Evidence) -> Evidence:
    other = Applied(1, 1, "Grant a", "Granted 9", "a", 9, 1)
    return replace(evidence, applied={**evidence.applied, "n2": [other]})


def claimed_twice(evidence: Evidence) -> Evidence:
    return replace(evidence, proposals=[*evidence.proposals, Proposal(3, 1, 4), Proposal(3, 1, 6)])


def served_twice(evidence: Evidence) -> Evidence:
    more = Applied(1, 4, "Grant a", "GrantRejected", "a", None, 1, 35)
    applied = {"n1": [*evidence.applied["n1"], more]}
    return replace(evidence, applied=applied, proposals=[*evidence.proposals, Proposal(4, 1, 2)])


def before_it_was_asked_for(evidence: Evidence) -> Evidence:
    log = [msgspec.structs.replace(one, at=-5_000) for one in evidence.applied["n1"]]
    return replace(evidence, applied={"n1": log})


def of_another_key(evidence: Evidence) -> Evidence:
    *log, last = evidence.applied["n1"]
    return replace(evidence, applied={"n1": [*log, msgspec.structs.replace(last, key="b")]})


def with_a_hole(evidence: Evidence) -> Evidence:
    first, *_ = evidence.applied["n1"]
    return replace(evidence, applied={"n1": [first, Applied(1, 5, "Noop", "NothingDone", term=1)]})


def untagged(evidence: Evidence) -> Evidence:
    return replace(evidence, proposals=())


@pytest.mark.parametrize(
    "damage",
    [disagreeing, served_twice, before_it_was_asked_for, of_another_key, with_a_hole, untagged],
)
def test_where_anything_is_doubtful_nothing_is_settled(damage: Callable[[Evidence], Evidence]) -> None:
    events, evidence = early(at=25)
    settled = settle(History.of(events), damage(evidence))
    assert (settled.took_effect, settled.no_effect, settled.open) == (0, 0, 1)
    assert settled.history.operations[1].end == OPEN


def test_an_entry_that_two_requests_claim_settles_neither_as_effective() -> None:
    events, evidence = early(at=25)
    settled = settle(History.of(events), claimed_twice(evidence))
    assert settled.took_effect == 0


def test_a_release_that_removed_another_holder_is_left_unknown() -> None:
    events = [
        Event(0, 0, 0, "invoke", "acquire", "a", {"lease_ms": 1000}),
        Event(1, 10, 0, "ok", "acquire", "a", {"token": 1}),
        Event(2, 20, 0, "invoke", "release", "a", {"token": 1}),
        Event(3, 30, 0, "info", "release", "a", error="timeout"),
    ]
    grant = Applied(1, 1, "Grant a", "Granted 1", "a", 1, 1, 5)
    release = Applied(1, 3, "Release a", "Released", "a", None, 1, 25)
    between = [
        Applied(1, 2, "Expire a 1", "Expired nothing", "a", None, 1, 22),
        Applied(1, 2, "Grant a", "Granted 2", "a", 2, 1, 22),
    ]
    outcomes = []
    for entry in between:
        evidence = Evidence({"n1": [grant, entry, release]}, (), [Proposal(1, 1, 0), Proposal(3, 1, 2)])
        outcomes.append(settle(History.of(events), evidence).history.operations[1].outcome)
    assert outcomes == ["ok", "info"]
