"""All keys together, dense tokens and leases: against the exhaustive search (see `compare`), by scripts, in words."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

import checker
from checker import column_claims, dense, together, verifier
from checker.certificate import certify, seal
from checker.columns import columns_of
from checker.history import Event, History
from checker.narrator import Narrator
from checker.operations import OPEN
from checker.timeline import Timeline
from checker.verdict import ClaimResult, Verdict
from tests.checker import exhaustive, generate, script
from tests.checker.compare import compare, history_of, leases_accept, timed_history_of, together_accepts

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


def test_two_grants_in_the_wrong_order_are_a_cycle() -> None:
    (finding,) = judge(script.events(TOGETHER["a larger token was granted first"][0])).findings
    cycle = finding.data["cycle"]
    assert [edge["before"] for edge in cycle] == ["enter 1", "enter 2", "end of [0]", "invoke of [2]"]
    assert [edge["after"] for edge in cycle] == ["enter 2", "end of [0]", "invoke of [2]", "enter 1"]


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
    assert result.findings[0].data["cycle"] == []
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


def test_certificates_prove_what_all_keys_did(tmp_path: Path) -> None:
    found: dict[str, int] = {}
    scripts = [script.events(text) for text, _ in TOGETHER.values()]
    for number, events in enumerate([*scripts, *(history_of(61, number) for number in range(SAMPLE))]):
        if not events:
            continue
        path = tmp_path / "history.jsonl"
        path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
        certificate = certify(path, tokens_span_keys=True)
        verdict = verifier.verify(path, certificate)
        assert (verdict == "valid") is exhaustive.linearizable(events, joint=True), number
        between = [one for one in certificate.contradictions if one.key is None]
        assert all(one.cycle and len(one.operations) <= 8 for one in between)
        kind = "between keys" if between else verdict
        found[kind] = found.get(kind, 0) + 1
    assert min(found[kind] for kind in ("valid", "invalid", "between keys")) > 3


def test_a_certificate_of_each_key_proves_nothing_of_all_together(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    events = script.events(TOGETHER["a larger token was granted first"][0])
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    alone = certify(path)
    assert verifier.verify(path, alone) == "valid"
    with pytest.raises(verifier.Rejected, match="token 2 was granted before token 1"):
        verifier.verify(path, seal(msgspec.structs.replace(alone, tokens_span_keys=True)))
    refused = certify(path, tokens_span_keys=True)
    with pytest.raises(verifier.Rejected, match="share no order of tokens"):
        verifier.verify(path, seal(msgspec.structs.replace(refused, tokens_span_keys=False)))


def test_tokens_without_gaps() -> None:
    """Token 3 was granted to somebody in between, which only [4] can have been, and that came too late."""
    text = "1 acquire a\n1 ok 2\n2 acquire a\n2 ok 4\n3 acquire a\n3 info"
    dense_tokens = checker.Options(tokens_dense=True)
    assert checker.check(script.events(text), ["linearizable"]).verdict is Verdict.VALID
    (finding,) = checker.check(script.events(text), ["linearizable"], dense_tokens).claims["linearizable"].findings
    assert finding.message.startswith("key 'a', as tokens leave no gaps: no moment is left at which token 3 can")
    in_time = "3 acquire a\n3 info\n1 acquire a\n1 ok 2\n2 acquire a\n2 ok 4"
    assert checker.check(script.events(in_time), ["linearizable"], dense_tokens).verdict is Verdict.VALID


def test_tokens_without_gaps_over_all_keys() -> None:
    """Refused only for what is impossible; an unknown acquire of any key may have taken a number."""
    options = checker.Options(tokens_span_keys=True, tokens_dense=True)
    refused = 0
    for number in range(2 * SAMPLE):
        events = history_of(53, number)
        if events and len(History.of(events).by_key) > 1:
            verdict = checker.check(events, ["linearizable"], options).verdict
            if exhaustive.linearizable(events, joint=True, dense=True):
                assert verdict is Verdict.VALID, number
            refused += verdict is Verdict.INVALID
    assert refused > 10
    text = "1 acquire a\n1 ok 1\n2 acquire b\n2 ok 4\n3 acquire b\n3 info"
    (finding,) = checker.check(script.events(text), ["linearizable"], options).claims["linearizable"].findings
    assert finding.message.splitlines()[0] == (
        "all keys together, as tokens leave no gaps: by the grant of token 4, 2 that no ok acquire got were granted,"
        " but only 0 acquires of unknown outcome had been invoked"
    )


def test_the_claim_leases_is_exact() -> None:
    """Where the leases alone are at odds with a history, some finding says so, and only there."""
    early = 0
    for number in range(2 * SAMPLE):
        events, clock_error = timed_history_of(9, number)
        if events and exhaustive.linearizable(events):
            options = checker.Options(clock_error=clock_error)
            result = checker.check(events, ["leases"], options).claims["leases"]
            kept = exhaustive.linearizable(events, clock_error=clock_error)
            assert (result.verdict is Verdict.VALID) is kept, number
            early += not kept
    assert early > 10


def test_leases_that_several_operations_show_to_be_lost() -> None:
    """Token 1 was renewed, so it held until 3.5 s; but token 2 was granted by 2.5 s."""
    text = (
        "1 acquire a lease_ms=2000\n1 ok 1\n@ 1.5\n1 renew a 1 lease_ms=2000\n1 ok\n@ 2.4\n2 acquire a\n@ 2.5\n2 ok 2"
    )
    events = script.events(text)
    (finding,) = checker.check(events, ["leases"]).claims["leases"].findings
    assert finding.message.splitlines()[0] == (
        "key 'a': some grant was lost before its lease could be over; together these say so"
    )
    assert finding.data["tokens"] == [1, 2]
    inject = '{"fault": "clock-1", "action": "inject", "targets": ["n1"], "breaks": ["clock_error"]}'
    broken = checker.check(script.events(f"nemesis clock {inject}\n{text}"), ["leases"])
    assert broken.verdict is Verdict.UNKNOWN
    assert "the assumed clock error was broken" in broken.claims["leases"].findings[0].message
