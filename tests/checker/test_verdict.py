"""Verdicts, exit codes, and the shape of results."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import checker
from checker import COVERAGE, ClaimResult, Finding, Options, Results, Verdict
from tests.checker import script

verdicts = st.lists(st.sampled_from(Verdict))


@given(verdicts, verdicts)
def test_worst_is_a_join(some: list[Verdict], others: list[Verdict]) -> None:
    worst = Verdict.worst
    assert worst([*some, *others]) == worst([worst(some), worst(others)]) == worst([*others, *some])
    assert worst([*some, *some]) == worst(some)
    assert worst([*some, Verdict.VALID]) == worst(some)


@given(verdicts)
def test_invalid_dominates_unknown_dominates_valid(some: list[Verdict]) -> None:
    for dominant in (Verdict.INVALID, Verdict.UNKNOWN):
        if dominant in some:
            assert Verdict.worst(some) is dominant
            return
    assert Verdict.worst(some) is Verdict.VALID


@pytest.mark.parametrize(
    ("claims", "verdict", "exit_code"),
    [
        ({}, "valid", 0),
        ({"fencing": "valid", COVERAGE: "valid"}, "valid", 0),
        ({"fencing": "invalid"}, "invalid", 1),
        ({"fencing": "invalid", "recovery": "unknown", COVERAGE: "unknown"}, "invalid", 1),
        ({"fencing": "valid", "recovery": "unknown"}, "unknown", 2),
        ({"recovery": "unknown", COVERAGE: "unknown"}, "unknown", 2),
        ({"fencing": "valid", COVERAGE: "unknown"}, "unknown", 3),
    ],
)
def test_exit_codes(claims: dict[str, str], verdict: str, exit_code: int) -> None:
    results = Results({name: ClaimResult(Verdict(each)) for name, each in claims.items()}, {}, {}, 0.0)
    assert results.verdict == verdict
    assert results.exit_code == exit_code
    assert results.violated == tuple(name for name, each in claims.items() if each == "invalid")


def test_results_are_json_of_one_shape() -> None:
    events = script.events("""
        1 acquire a
        1 ok 1
        nemesis kill {"fault": "f1", "action": "injected", "targets": ["n1"], "evidence": "gone"}
        2 acquire a
        2 ok 1
        3 acquire b
        3 fail held
        4 acquire a
        4 info
        1 acquire a
        1 info
        1 inspect a
        """)
    plain = checker.check(events, ["linearizable", "fencing"], Options(coverage={"kills": 1})).to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert list(plain) == ["verdict", "claims", "operations", "coverage", "seconds", "warnings"]
    assert plain["verdict"] == "invalid"
    assert plain["operations"] == {"ok": 2, "fail": 1, "info": 3}
    assert plain["coverage"]["kills"] == 1
    assert list(plain["claims"]) == ["linearizable", "fencing", "coverage"]
    assert plain["claims"]["coverage"] == {"verdict": "valid", "findings": [], "numbers": {"kills": 1}}
    assert len(plain["warnings"]) == 1
    (finding,) = plain["claims"]["fencing"]["findings"]
    assert finding["faults"] == [
        {
            "id": "f1",
            "kind": "kill",
            "targets": ["n1"],
            "start_s": 0.002,
            "end_s": None,
            "start": 2,
            "end": None,
            "took_effect": True,
            "evidence": "gone",
            "breaks": [],
        }
    ]
    assert finding["operations"][1] == {
        "index": 3,
        "end": 4,
        "process": 2,
        "node": "n2",
        "f": "acquire",
        "key": "a",
        "type": "ok",
        "token": 1,
        "error": None,
        "invoked_s": 0.003,
        "completed_s": 0.004,
        "role": "granted it again",
    }


def test_a_finding_alone_is_complete() -> None:
    finding = Finding("fencing", Verdict.INVALID, "words")
    assert finding.to_dict() == {
        "claim": "fencing",
        "verdict": "invalid",
        "message": "words",
        "key": None,
        "operations": [],
        "faults": [],
        "data": {},
    }
