"""The monitor against the check of the whole history: an alarm is never false, and at the end none is missing."""

from __future__ import annotations

import random
import time

import pytest

import checker
from bench.histories import simulated
from checker import Options, Verdict, online, sweep
from checker.history import Event, History
from checker.online import Alarm, Monitor
from tests.checker import generate, script
from tests.checker.compare import history_of, monitor_accepts

SAMPLE = 1000


def watch(events: list[Event], *, spans: bool = False, clock_error: float = 0.0) -> Alarm | None:
    monitor = Monitor(tokens_span_keys=spans, clock_error=clock_error)
    for event in events:
        if (alarm := monitor.observe(event)) is not None:
            assert alarm.index == event.index
            return alarm
    return monitor.finish()


@pytest.mark.parametrize("news", [1, 4, 1000])
def test_it_says_what_the_check_says(monkeypatch: pytest.MonkeyPatch, news: int) -> None:
    monkeypatch.setattr(online, "NEWS_MIN", news)
    alarms: dict[str, int] = {}
    missed = 0
    for number in range(SAMPLE):
        events = history_of(31, number, operations=12 if number % 2 else 60)
        if not events:
            continue
        spans, error = number % 3 == 0, number % 5 / 100
        options = Options(tokens_span_keys=spans, clock_error=error)
        claims = checker.check(events, options=options).claims
        alarm = watch(events, spans=spans, clock_error=error)
        if alarm is None:
            for claim in ("fencing", "resource"):
                assert claims[claim].verdict is Verdict.VALID, number
            # What several keys can't have done together it may leave to the check.
            together = claims["linearizable"].verdict is not Verdict.VALID
            alone = checker.check(events, ["linearizable"]).claims["linearizable"].verdict
            assert alone is Verdict.VALID, number
            missed += together
        else:
            assert claims[alarm.claim].verdict is Verdict.INVALID, (number, alarm)
            alarms[alarm.claim] = alarms.get(alarm.claim, 0) + 1
    assert min(alarms[claim] for claim in ("linearizable", "fencing", "mutual-exclusion")) > SAMPLE / 50
    assert missed < SAMPLE / 100


def test_the_incremental_sweep_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(online, "NEWS_MIN", 1)
    verdicts = [0, 0]
    for number in range(2 * SAMPLE):
        events = history_of(32, number, operations=[10, 25, 80, 12][number % 4])
        if events:
            fits = all(sweep.decide(operations) is None for operations in History.of(events).by_key.values())
            assert monitor_accepts(events) is fits, number
            verdicts[fits] += 1
    assert min(verdicts) > SAMPLE / 4


def test_what_is_settled_is_forgotten() -> None:
    monitor = Monitor()
    for event in simulated(20_000, keys=3, processes=10, unknown_share=0.05, seed=3):
        assert monitor.observe(event) is None
    assert max(len(lock.kept) for lock in monitor._locks.values()) < 400


def test_a_violation_of_the_resource_is_noticed_at_once() -> None:
    events = script.events("1 write a 2\n1 ok\n2 write a 1\n2 ok\n3 inspect a\n3 ok null")
    assert watch(events) == Alarm("resource", 3, "a")
    assert watch(events[:3]) is None


def test_a_broken_clock_silences_what_rests_on_it() -> None:
    text = '1 acquire a\n1 ok 1\nnemesis clock {"fault": "f1", "action": "injected", "breaks": ["clock_error"]}'
    assert watch(script.events(text + "\n2 acquire a\n2 ok 2")) is None
    assert watch(script.events(text.replace("breaks", "mends") + "\n2 acquire a\n2 ok 2")) is not None


def test_words() -> None:
    assert Alarm("fencing", 7, "a").words() == "fencing of key 'a' is violated, as of event 7"


def test_it_costs_little() -> None:
    """A harness takes 200 us and more for an operation; a tenth of that is 20 us."""
    events = generate.valid(random.Random(4), operations=4000)
    monitor = Monitor()
    started = time.process_time()
    for event in events:
        monitor.observe(event)
    assert (time.process_time() - started) / 4000 < 200e-6
