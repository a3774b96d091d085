from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.cli import _exit_code
from fencepost.explore_command import app


def fencepost(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["fencepost", *arguments])
    return int(_exit_code(app))


def test_a_mutant_violates_and_its_trace_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "trace.mmd"
    assert fencepost(monkeypatch, "explore", "--mutant", "grant-before-commit", "--out", str(out), "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["violated"] == "acknowledged grants"
    assert told["trace"][-2]["words"] == "acknowledges the grant"
    assert out.read_text().startswith("sequenceDiagram\n")


def test_what_is_said_of_the_true_node_names_the_bound(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fencepost(monkeypatch, "explore", "--cold", "--bound", "clients=0", "--depth", "3") == 0
    assert "valid       in all states up to 3 events from the beginning" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--bound", "nods=3"), "--bound: found 'nods=3'; expected NAME=N, with one of nodes, clients, in_flight"),
        (("--bound", "nodes=9"), "--bound: found 'nodes=9'; nodes is from 1 to 5"),
        (("--bound", "beats=0"), "--led: to elect a leader takes a time-out and a heartbeat, at least"),
        (
            ("--led", "--bound", "in_flight=1"),
            "--led: to elect a leader more has to be on one link at once (in_flight)",
        ),
        (("--for", "soon"), "--for: found 'soon'"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fencepost(monkeypatch, "explore", *arguments) == 254
    assert says in capsys.readouterr().err
