"""The sweep against the exhaustive search, against golden verdicts, and against itself on changed histories."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import checker
from checker import Verdict, linearizable, sweep
from checker.facts import NEVER_LEFT, Observations
from checker.history import Event, History
from checker.narrator import Narrator
from checker.timeline import Timeline
from tests.checker import exhaustive, generate, script
from tests.checker.compare import compare, sweep_accepts
from tests.checker.scripts import SCRIPTS

GOLDEN = Path(__file__).parent / "golden"
VERDICTS: dict[str, dict[str, bool]] = json.loads((GOLDEN / "verdicts.json").read_text())

#: A sample; the command `python -m tests.checker.compare` does as many as one likes.
SAMPLE = 1500

seeds = st.integers(0, 10**9)


def test_it_agrees_with_the_exhaustive_search() -> None:
    agreement = compare(SAMPLE, seed=7)
    assert agreement.disagreements == []
    assert agreement.valid > SAMPLE / 4
    assert agreement.invalid > SAMPLE / 6
    assert agreement.unknown > agreement.operations / 5


_leave = Observations.leave

WRONG = {
    "intervals are never forced to end": (Observations, "leave", lambda _, __: NEVER_LEFT),
    "intervals end two gaps too late": (
        Observations,
        "leave",
        lambda self, entered: _leave(self, entered)._replace(gap=_leave(self, entered).gap + 3),
    ),
    "what was invoked at the entry's gap is forgotten": (
        Observations,
        "leave",
        lambda self, entered: _leave(self, entered + 2),
    ),
    "no ghosts": (sweep.Sweep, "_ghost", lambda *_: None),
    "lower bounds are ignored": (sweep.Sweep, "_raise", lambda *_: None),
    "upper bounds are ignored": (sweep, "_limits", lambda tenures: [sweep.NO_LIMIT] * (2 * len(tenures) + 1)),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_comparison_notices_a_wrong_sweep(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    monkeypatch.setattr(*WRONG[wrong])
    assert compare(500, seed=7).disagreements


@pytest.mark.parametrize("name", VERDICTS)
def test_golden_histories_have_their_verdicts(name: str) -> None:
    history = checker.read(GOLDEN / f"{name}.jsonl")
    judged = {
        "fencing": ("fencing", checker.Options()),
        "linearizable": ("linearizable", checker.Options()),
        "together": ("linearizable", checker.Options(tokens_span_keys=True)),
        "dense": ("linearizable", checker.Options(tokens_dense=True)),
        "leases": ("leases", checker.Options()),
    }
    for which, valid in VERDICTS[name].items():
        claim, options = judged[which]
        assert (checker.check(history, [claim], options).verdict is Verdict.VALID) is valid, which


def test_the_golden_folder_holds_what_the_verdicts_name() -> None:
    assert {path.stem for path in GOLDEN.glob("*.jsonl")} == set(VERDICTS)
    assert set(SCRIPTS) <= set(VERDICTS)
    for which in ("fencing", "linearizable", "together", "dense", "leases"):
        assert {of_name[which] for of_name in VERDICTS.values() if which in of_name} == {True, False}


@given(seeds)
def test_what_a_correct_service_did_is_accepted(seed: int) -> None:
    events = generate.valid(random.Random(seed), operations=40)
    assert sweep_accepts(History.of(events))


@given(seeds)
def test_knowing_less_never_refuses(seed: int) -> None:
    """An accepted history stays accepted when any one outcome gets lost."""
    rng = random.Random(seed)
    events = generate.damaged(rng)
    completions = [event for event in events if event.type != "invoke"]
    if completions and sweep_accepts(History.of(events)):
        lost = rng.choice(completions)
        changed = [
            msgspec.structs.replace(event, type="info", value=None, error="timeout") if event is lost else event
            for event in events
        ]
        assert sweep_accepts(History.of(changed))


@given(seeds)
def test_names_of_keys_and_sizes_of_tokens_do_not_matter(seed: int) -> None:
    events = generate.damaged(random.Random(seed))
    if events:
        renamed = [_renamed(event, {"a": "z", "b": "y"}, lambda token: 1000 * token - 7) for event in events]
        assert sweep_accepts(History.of(renamed)) == sweep_accepts(History.of(events))


@given(seeds)
def test_keys_do_not_touch_each_other(seed: int) -> None:
    """Two histories under different keys, shuffled into one, fit exactly when both do."""
    rng = random.Random(seed)
    one = [_renamed(event, {"a": "a1", "b": "b1"}) for event in generate.damaged(rng)]
    other = [_renamed(event, {"a": "a2", "b": "b2"}, process=1000) for event in generate.damaged(rng)]
    both = sorted([*one, *other], key=lambda event: event.time)
    if one and other:
        merged = [msgspec.structs.replace(event, index=index) for index, event in enumerate(both)]
        separate = sweep_accepts(History.of(one)) and sweep_accepts(History.of(other))
        assert sweep_accepts(History.of(merged)) == separate


def _renamed(event: Event, keys: dict[str, str], token: object = None, process: int = 0) -> Event:
    value = event.value
    if callable(token) and value is not None and value.get("token") is not None:
        value = {**value, "token": token(value["token"])}
    assert isinstance(event.process, int)
    assert event.key is not None
    return msgspec.structs.replace(event, key=keys[event.key], value=value, process=event.process + process)


@given(seeds)
def test_every_explanation_is_a_contradiction(seed: int) -> None:
    """Read as a chain, the steps of a finding say that a moment lies before itself."""
    events = generate.damaged(random.Random(seed))
    if not events:
        return
    history = History.of(events)
    for finding in linearizable.check(history, Narrator(Timeline.of(events))).findings:
        assert finding.operations
        if finding.data["kind"] == "duplicate":
            first, second = finding.operations
            assert first.token == second.token == finding.data["token"]
            continue
        steps = finding.data["steps"]
        # A moment lies before the completion of what forces it, and that was invoked after the moment before.
        for step, following in pairwise(steps):
            assert step["gap"] < following["index"]
        assert [step["says"] for step in steps].count("not-before") <= 1


def test_a_long_valid_history_of_one_key_does_not_overflow_the_stack() -> None:
    lines = [f"1 acquire a\n1 ok {token}\n1 release a {token}\n1 ok" for token in range(1, 30_000)]
    assert sweep.decide(History.of(script.events("\n".join(lines))).by_key["a"]) is None


def test_many_ghosts_are_placed_without_a_search() -> None:
    """Each refusal needs one of the unknown acquires, and there are just enough."""
    count = 2000
    lines = [f"{process} acquire a\n{process} info" for process in range(10, 10 + count)]
    lines += ["1 acquire a\n1 fail held\n1 inspect a\n1 ok null"] * count
    events = script.events("\n".join(lines))
    assert sweep.decide(History.of(events).by_key["a"]) is None
    events = script.events("\n".join([*lines[1:], "1 acquire a\n1 fail held"]))
    assert sweep.decide(History.of(events).by_key["a"]) is not None


def test_the_exhaustive_search_itself_knows_right_from_wrong() -> None:
    assert exhaustive.linearizable(script.events(SCRIPTS["expired-then-granted"]))
    assert exhaustive.linearizable(script.events(SCRIPTS["refused-by-a-ghost"]))
    assert not exhaustive.linearizable(script.events(SCRIPTS["refused-before-the-ghost"]))
    assert not exhaustive.linearizable(script.events(SCRIPTS["token-granted-twice"]))
    assert not exhaustive.linearizable(script.events(SCRIPTS["two-refusals-two-frees-one-ghost"]))
