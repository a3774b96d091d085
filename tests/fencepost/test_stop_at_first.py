"""A run that is checked while it lasts ends at its first violation, and only then."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fencepost import cli, commands, runner

SCENARIO = """\
name: watched
system: lockd
place: sim
{mutant}
nodes: 3
seed: 4
time_limit: 20s
workload: {{kind: mutex, clients: 6, keys: 2, rate: 100/s, lease: 1s, hold: 20ms..50ms}}
checks: [{checks}]
expect: {expect}
"""

BROKEN = "mutant: every-node-grants"


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path, **text: str
) -> dict[str, object]:
    (folder / "s.yaml").write_text(SCENARIO.format(**text))
    words = ["fencepost", "run", str(folder / "s.yaml"), "--stop-at-first", "--json", "--store", str(folder / "store")]
    monkeypatch.setattr(sys, "argv", words)
    cli._exit_code(commands.app)
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


def test_it_stops_at_the_first_violation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = {"mutant": BROKEN, "checks": "fencing", "expect": "{invalid: [fencing]}"}
    document = run(monkeypatch, capsys, tmp_path, **text)
    section = document["run"]
    assert isinstance(section, dict)
    assert section["stopped_at"].startswith("fencing of key 'k")
    assert section["interrupted"] is None
    assert section["exit_code"] == 1
    assert section["expected"]
    # A run of 20 s has a few thousand events.
    assert len(next(tmp_path.glob("store/watched/*/history.jsonl")).read_text().splitlines()) < 200


@pytest.mark.parametrize(("mutant", "checks"), [("", "linearizable, fencing"), (BROKEN, "recovery")])
def test_it_goes_on_without_one_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mutant: str, checks: str
) -> None:
    document = run(monkeypatch, capsys, tmp_path, mutant=mutant, checks=checks, expect="valid")
    section = document["run"]
    assert isinstance(section, dict)
    assert section["stopped_at"] is None
    assert len(next(tmp_path.glob("store/watched/*/history.jsonl")).read_text().splitlines()) > 1000


def test_a_monitor_that_fails_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(runner.Monitor, "observe", lambda *_: 1 / 0)
    document = run(monkeypatch, capsys, tmp_path, mutant="", checks="fencing", expect="valid")
    assert document["verdict"] == "valid"
