"""No step of a run can take forever: each has a budget, and a message when it is spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checker.history import read_events
from fencepost import conduct, losses, runner
from fencepost.commands import make_console
from fencepost.outcome import Outcome
from nemesis import conductor

SCENARIO = """
name: stuck
place: tests.fencepost.stuck_places:{place}
nodes: 3
seed: 5
time_limit: 30s
workload: {{kind: mutex, clients: 3, keys: 1, rate: 20/s, lease: 1s, hold: 5ms..20ms, timeout: 500ms}}
nemesis:
  - {{fault: partition, shape: one, at: 2s, for: 3s}}
checks: [linearizable, recovery]
"""


def run(folder: Path, place: str) -> Outcome:
    path = folder / "s.yaml"
    path.write_text(SCENARIO.format(place=place))
    outcome = runner.run(runner.load(path), folder / "store", make_console(True))
    document = json.loads(outcome.folder.results.read_text())
    assert document["run"]["exit_code"] == 255
    assert document["verdict"] == "unknown"
    return outcome


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("NeverStarts", f"the place did not start within {conduct.START_BUDGET_S:g} s"),
        ("NeverServes", f"the cluster did not get ready: not ready after {conduct.READY_BUDGET_S:.0f}."),
        ("NeverStops", f"the nodes did not stop within {conduct.STOP_BUDGET_S:g} s"),
        ("NeverHeals", f"could not be healed: not within {conductor.HEAL_BUDGET_S:g} s"),
        ("FailsTwice", "no room for nodes; no room for logs either"),
        ("LosesItsEngine", "the engine was stopped"),
        ("LosesTouch", f"sim did not say within {losses.ANSWER_BUDGET_S:g} s what it still has"),
    ],
)
def test_each_step_has_a_budget_and_a_message(tmp_path: Path, place: str, words: str) -> None:
    outcome = run(tmp_path, place)
    assert outcome.failure is not None
    assert words in outcome.failure


def test_what_is_lost_ends_the_run_at_once_and_blames_nobody_else(tmp_path: Path) -> None:
    outcome = run(tmp_path, "LosesItsEngine")
    events, _ = read_events(outcome.folder.history)
    assert 10 <= events[-1].time / 1e9 < 20
    phases = [event.value["name"] for event in events if event.f == "phase" and event.value]
    assert phases == ["main", "recovery", "end"]
    assert outcome.results is not None, "what was recorded until then is looked at"
    assert not outcome.results.violated


def test_the_watchdog_waits_for_all_of_them() -> None:
    scenario = runner.load(Path(__file__).parents[2] / "workloads" / "scenarios" / "demo.yaml")
    phases = conduct.START_BUDGET_S + conduct.READY_BUDGET_S + conduct.HEAL_BUDGET_S + conduct.RECOVERY_BUDGET_S
    assert conduct.budget_s(scenario) > phases + conduct.STOP_BUDGET_S + scenario.time_limit_ns / 1e9
