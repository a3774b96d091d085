"""What keeps a verdict from being lost or changed: the watchdog, and analysis that may fail."""

from __future__ import annotations

import io
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from checker.verdict import Verdict
from fencepost import analysis, report, tables
from tests.fencepost.outcomes import outcome, results
from tests.fencepost.synthetic import chaos

HUNG = """
import sys, time
from pathlib import Path
from fencepost.interrupts import watchdog
with watchdog(0.3, Path(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
"""


def test_a_run_that_hangs_is_ended_as_a_failure_of_the_harness_that_says_where(tmp_path: Path) -> None:
    log = tmp_path / "harness.log"
    result = subprocess.run(
        [sys.executable, "-c", HUNG, log, "60"], capture_output=True, text=True, timeout=20, check=False
    )
    assert result.returncode == 255
    assert str(log) in result.stderr
    assert 'File "<string>", line 6' in log.read_text()


def test_a_run_that_ends_in_time_is_left_alone(tmp_path: Path) -> None:
    result = subprocess.run([sys.executable, "-c", HUNG, tmp_path / "log", "0"], timeout=20, check=False)
    assert result.returncode == 0


def test_a_picture_that_fails_is_told_and_changes_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("no pixels")

    monkeypatch.setattr(report, "render", broken)
    end = outcome(results())
    words = analysis.write_report(tmp_path / "report.html", [], {}, analysis.about(end))
    assert words == "the report could not be made (ZeroDivisionError: no pixels)"
    assert list(tmp_path.iterdir()) == []
    assert end.exit == 0


def test_the_page_of_a_run_says_that_it_was_interrupted_or_that_the_harness_failed(tmp_path: Path) -> None:
    for end, words in (
        (outcome(results(), interrupted="SIGTERM"), "SIGTERM ended this run early"),
        (outcome(results(), failure="no port is free"), "no port is free"),
    ):
        path = tmp_path / "report.html"
        assert end.results is not None
        assert analysis.write_report(path, chaos(operations=9), end.results.to_dict(), analysis.about(end)) is None
        assert words in path.read_text()


@pytest.mark.parametrize(
    ("recorded", "verdict", "words"),
    [
        (Verdict.VALID, "unknown", "HARNESS FAILED (what was recorded: valid)"),
        (Verdict.UNKNOWN, "unknown", "HARNESS FAILED (what was recorded: unknown)"),
        (Verdict.INVALID, "invalid", "HARNESS FAILED (what was recorded: invalid: violated fencing)"),
    ],
)
def test_a_run_whose_harness_failed_is_never_valid(recorded: Verdict, verdict: str, words: str, tmp_path: Path) -> None:
    end = outcome(results(recorded), failure="no port is free")
    document = end.to_dict()
    assert document["verdict"] == verdict
    assert document["run"]["failure"] == "no port is free"
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(tables.outcome_table(end))
    printed = console.export_text()
    assert words in printed
    assert "VALID" not in printed
    path = tmp_path / "report.html"
    assert analysis.write_report(path, chaos(operations=9), document, analysis.about(end)) is None
    assert f"<title>{verdict}" in path.read_text()


def test_coverage_tells_what_was_demanded_and_what_there_was() -> None:
    found = replace(results(), coverage={"kills": 0, "pauses": 0, "leader_changes": 2, "faults": 1})
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(tables.results_table(found, {"pauses": 1, "faults": 1}))
    assert "coverage    pauses 0 of 1, faults 1 of 1, leader changes 2\n" in console.export_text()
