"""All keys together, dense tokens and leases: against the exhaustive search (see `compare`), by scripts, in words."""

from __future__ import annotations

import random
from typing import Any

import pytest

import checker
from checker import column_claims, dense, together
from checker.columns import columns_of
from checker.history import Event, History
from checker.narrator import Narrator
from checker.operations import OPEN
from checker.timeline import Timeline
from checker.verdict import ClaimResult, Verdict
from tests.checker import exhaustive, generate, script
from tests.checker.compare import compare, history_of, leases_accept, together_accepts

SAMPLE = 150

#: Each key fits by itself.
TOGETHER = {
    "a larger token was granted first": (
        "1 acquire a\n1 ok 2\n2 acquire b\n2 ok 1",
        "all keys together: no moment is left at which token 1 can have been granted (key 'b')\n"
        "- process 1 (n1) acquire, 0.000-0.001 s [0-1] ok, token 2: key 'a': token 2 was granted by 0.001 s,"
        " and every smaller token before it\n"
        "- process 2 (n2) acquire, 0.002-0.003 s [2-3] ok, token 1: key 'b': token 1 was not granted before 0.002 s",
    ),
    "two keys show one token": (
        "1 acquire a\n1 ok 1\n2 acquire b\n2 info\n3 inspect b\n3 ok 1",
        "token 1 was granted under two keys, 'a' and 'b'\n"
        "- process 1 (n1) acquire, 0.000-0.001 s [0-1] ok, token 1: key 'a': shows token 1\n"
        "- process 3 (n3) inspect, 0.004-0.005 s [4-5] ok, token 1: key 'b': shows token 1",
    ),
    "what somebody saw of one key decides about another": (
        "1 acquire a\n2 acquire b\n9 acquire b\n9 fail held\n6 inspect a\n6 ok null\n7 acquire a\n7 fail held\n"
        "1 ok 2\n2 ok 3",
        "all keys together: somebody held the lock after token 2 had ended, but nobody can have been granted it"
        " (key 'a')\n"
        "- process 9 (n9) acquire, 0.002-0.003 s [2-3] fail held: key 'b': saw the lock held by somebody, though nobody"
        " had been granted it before, so token 3 was granted by then, after all smaller ones\n"
        "- process 6 (n6) inspect, 0.004-0.005 s [4-5] ok, free: key 'a': saw the lock free\n"
        "- process 7 (n7) acquire, 0.006-0.007 s [6-7] fail held: key 'a': saw the lock held by somebody",
    ),
}


def judge(events: list[Event]) -> ClaimResult:
    return checker.check(events, ["linearizable"], checker.Options(tokens_span_keys=True)).claims["linearizable"]


@pytest.mark.parametrize("name", TOGETHER)
def test_what_keys_can_only_do_alone(name: str) -> None:
    text, words = TOGETHER[name]
    events = script.events(text)
    assert exhaustive.linearizable(events)
    assert not exhaustive.linearizable(events, joint=True)
    assert checker.check(events, ["linearizable"]).verdict is Verdict.VALID
    result = judge(events)
    assert [finding.message for finding in result.findings] == [words]
    assert result.numbers == {"keys": 2, "violations": 1}


def test_many_keys_agree_with_the_exhaustive_search() -> None:
    verdicts = [0, 0]
    for number in range(SAMPLE):
        rng = random.Random(number)
        events = generate.crowded(rng, rng.choice(["ab", "abc", "abcd"]))
        verdict = together.decide(History.of(events).by_key)
        assert not isinstance(verdict, together.Undecided)
        fits = isinstance(verdict, together.Fits)
        assert exhaustive.linearizable(events, joint=True) is fits, number
        verdicts[fits] += 1
    assert min(verdicts) > SAMPLE / 15


def test_ways_to_use_unknown_acquires_are_told_apart() -> None:
    """As the last script above, but an unknown acquire of b explains [5] at the price of being used up."""
    text, _ = TOGETHER["what somebody saw of one key decides about another"]
    helped = f"8 acquire b\n8 info\n{text}"
    assert exhaustive.linearizable(script.events(helped), joint=True)
    found = together.decide(History.of(script.events(helped)).by_key)
    assert isinstance(found, together.Fits)
    assert found.cases == 3
    needed = f"{helped}\n5 inspect b\n5 ok null\n6 acquire b\n6 fail held"
    events = script.events(needed)
    assert checker.check(events, ["linearizable"]).verdict is Verdict.VALID
    assert not exhaustive.linearizable(events, joint=True)
    result = judge(events)
    assert result.verdict is Verdict.INVALID
    assert "in whichever of 3 ways the acquires of unknown outcome are used" in result.findings[0].message


def test_columns_find_the_same_in_the_same_words() -> None:
    refused = 0
    for number in range(2 * SAMPLE):
        events = history_of(51, number)
        if events:
            narrator = Narrator(Timeline.of(events))
            found = column_claims.check_linearizable(columns_of(events), narrator, tokens_span_keys=True)
            assert found == judge(events), number
            refused += "together" in str(found.findings)
    assert refused > 3


def test_it_gives_up_after_so_many_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "CASES_MAX", 0)
    result = judge(script.events("1 acquire a\n1 ok 1\n2 acquire b\n2 ok 2"))
    assert result.verdict is Verdict.UNKNOWN
    assert "one order of tokens" in result.findings[0].message


_before_all = dense._Dense._before_all
_latest_enter = together._Key.latest_enter

WRONG: dict[str, tuple[Any, str, Any, str]] = {
    "keys don't heed each other": (together._Search, "_lowered", lambda *_: None, "leases"),
    "leases are as long as asked, whatever the clocks": (
        together._Key,
        "latest_enter",
        lambda self, lease, left: _latest_enter(
            self, lease._replace(ends=tuple((begins, 4 * length // 3) for begins, length in lease.ends)), left
        ),
        "leases",
    ),
    "leases last no time": (together._Key, "latest_enter", lambda *_: OPEN, "leases"),
    "gaps are no grants": (dense, "_filled", lambda facts: iter(facts.tenures), "dense"),
    "nobody was granted anything before the first": (
        dense._Dense,
        "_before_all",
        lambda self, reach, count, found: None if count else _before_all(self, reach, count, found),
        "dense",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_comparison_notices_what_is_wrong(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    owner, name, replacement, way = WRONG[wrong]
    monkeypatch.setattr(owner, name, replacement)
    disagreements = compare(200, seed=7).disagreements
    assert way in {which.split()[1] for which in disagreements}


def test_whoever_knows_less_refuses_less() -> None:
    """All keys together refuse what one refuses; so do dense tokens and leases."""
    for number in range(SAMPLE):
        events = history_of(52, number)
        if events and not exhaustive.linearizable(events):
            assert not together_accepts(History.of(events))
            assert not exhaustive.linearizable(events, dense=True)
            assert not leases_accept(History.of(events), 0.0)
