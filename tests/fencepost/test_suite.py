from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import pytest
from junitparser import Error, Failure, JUnitXml, Skipped
from rich.console import Console

from checker.verdict import Verdict
from fencepost import junit, suite, tables
from fencepost.exits import Exit, UserError, worst
from fencepost.outcome import Outcome, Status
from fencepost.repetition import Repetition
from fencepost.scenario import ScenarioError
from fencepost.suite_file import SuiteEntry
from fencepost.yaml_file import Problem
from tests.fencepost.outcomes import outcome, results

VALID = outcome(results())
VIOLATED = outcome(results(Verdict.INVALID))
UNKNOWN = outcome(results(Verdict.UNKNOWN))
SHORT = outcome(results(short=True))
HARNESS = outcome(None, failure="no port is free")
MET = outcome(results(Verdict.INVALID), expect=("fencing",))
UNMET = outcome(results(), expect=("fencing",))
OTHERWISE = outcome(results(Verdict.INVALID), expect=("fencing", "linearizable"))


def run(*ends: Outcome | BaseException) -> suite.Summary:
    """A suite of runs that end so."""
    coming = iter(ends)

    def run_one(_: SuiteEntry) -> Outcome:
        end = next(coming)
        if isinstance(end, BaseException):
            raise end
        return end

    return suite.run("night", [SuiteEntry(Path(f"{number}.yaml")) for number in range(len(ends))], run_one)


BAD_FILE = ScenarioError([Problem("1.yaml", 3, "seed", "'x'", "a number")])


@pytest.mark.parametrize(
    ("end", "status", "code"),
    [
        (VALID, Status.PASSED, 0),
        (VIOLATED, Status.VIOLATION, 1),
        (UNKNOWN, Status.UNKNOWN, 2),
        (SHORT, Status.COVERAGE, 3),
        (HARNESS, Status.HARNESS, 255),
        (outcome(results(Verdict.INVALID), failure="x"), Status.HARNESS, 255),
        (MET, Status.PASSED, 0),
        (UNMET, Status.UNMET, 2),
        (OTHERWISE, Status.VIOLATION, 1),
        (outcome(results(), interrupted="SIGTERM"), Status.UNKNOWN, 2),
        (outcome(results(short=True), interrupted="SIGTERM"), Status.UNKNOWN, 2),
        (outcome(results(), expect=("fencing",), interrupted="SIGTERM"), Status.UNKNOWN, 2),
        (outcome(results(Verdict.INVALID), interrupted="SIGTERM"), Status.VIOLATION, 1),
        (outcome(results(Verdict.INVALID), expect=("fencing",), interrupted="SIGTERM"), Status.PASSED, 0),
        (BAD_FILE, Status.BAD_FILE, 254),
        (RuntimeError("boom"), Status.HARNESS, 255),
        (UserError("the store cannot be written"), Status.HARNESS, 255),
    ],
)
def test_each_end_of_a_run_has_its_status_and_code(end: Outcome | Exception, status: Status, code: int) -> None:
    summary = run(end)
    assert [entry.status for entry in summary.entries] == [status]
    assert summary.exit == code


def test_a_run_exits_with_its_verdict_whatever_was_expected() -> None:
    assert MET.exit == Exit.VIOLATED
    assert UNMET.exit == Exit.VALID
    assert (MET.expected, UNMET.expected) == (True, False)


def test_the_worst_dominates_in_any_order() -> None:
    order = [VALID, SHORT, UNKNOWN, BAD_FILE, HARNESS, VIOLATED]
    codes = [0, 3, 2, 254, 255, 1]
    for lower, higher in itertools.combinations(range(len(order)), 2):
        assert run(order[lower], order[higher]).exit == codes[higher]
        assert run(order[higher], order[lower]).exit == codes[higher]
    assert worst([]) is Exit.VALID


def test_a_bad_file_and_a_broken_harness_do_not_keep_the_others_from_running() -> None:
    summary = run(BAD_FILE, RuntimeError("boom"), UserError("the store cannot be written: s"), VALID)
    statuses = [Status.BAD_FILE, Status.HARNESS, Status.HARNESS, Status.PASSED]
    assert [entry.status for entry in summary.entries] == statuses
    assert "1.yaml:3: seed" in summary.entries[0].message
    assert "boom" in summary.entries[1].message
    assert summary.entries[2].message == "the store cannot be written: s"


@pytest.mark.parametrize("end", [outcome(results(), interrupted="SIGINT"), KeyboardInterrupt()])
def test_an_interrupt_ends_the_suite_with_what_there_is(end: Outcome | BaseException) -> None:
    summary = run(VALID, end, VIOLATED, VALID)
    assert [entry.status for entry in summary.entries][2:] == [Status.NOT_RUN, Status.NOT_RUN]
    assert summary.entries[0].status is Status.PASSED
    assert summary.exit is Exit.UNKNOWN


def test_an_interrupted_run_is_valid_nowhere(tmp_path: Path) -> None:
    end = outcome(results(), interrupted="SIGTERM")
    document = end.to_dict()
    assert (document["verdict"], end.exit) == ("unknown", Exit.UNKNOWN)
    assert (document["run"]["exit_code"], document["run"]["expected"]) == (2, False)
    console = Console(file=io.StringIO(), width=100)
    console.print(tables.outcome_table(end))
    assert "UNKNOWN: interrupted (what was recorded: valid)" in console.file.getvalue()  # type: ignore[attr-defined]
    junit.write(tmp_path / "j.xml", run(end))
    (case,) = next(iter(JUnitXml.fromfile(str(tmp_path / "j.xml"))))
    (found,) = case.result
    assert isinstance(found, Error)
    assert "interrupted by SIGTERM" in found.message
    violated = outcome(results(Verdict.INVALID), interrupted="SIGTERM")
    assert (violated.to_dict()["verdict"], violated.exit) == ("invalid", Exit.VIOLATED)


def test_the_summary_is_one_json_document() -> None:
    document = json.loads(json.dumps(run(VALID, VIOLATED, BAD_FILE).to_dict()))
    assert document["exit_code"] == 1
    assert document["counts"]["passed"] == document["counts"]["violation"] == document["counts"]["bad-file"] == 1
    assert [entry["status"] for entry in document["runs"]] == ["passed", "violation", "bad-file"]
    assert document["runs"][1]["results"]["claims"]["fencing"]["verdict"] == "invalid"
    assert document["runs"][2]["results"] is None


def test_junit_tells_every_status_apart(tmp_path: Path) -> None:
    ends = [VALID, VIOLATED, UNMET, SHORT, UNKNOWN, HARNESS, BAD_FILE, KeyboardInterrupt()]
    junit.write(tmp_path / "junit.xml", run(*ends))
    suites = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    cases = list(next(iter(suites)))
    found = [(type(case.result[0]), case.result[0].type) if case.result else None for case in cases]
    assert found == [
        None,
        (Failure, "violation"),
        (Failure, "expectation-not-met"),
        (Failure, "coverage"),
        (Error, "unknown"),
        (Error, "harness"),
        (Error, "bad-file"),
        (Skipped, "not-run"),
    ]
    assert (suites.tests, suites.failures, suites.errors, suites.skipped) == (8, 3, 3, 1)
    assert "token 2 twice" in cases[1].result[0].text
    assert "seed 0" in cases[1].system_out


def test_junit_survives_what_xml_cannot_hold(tmp_path: Path) -> None:
    hostile = "]]></failure>&<b>\x00\x1b[31m\ud800 \U0001f600"
    end = outcome(results(Verdict.INVALID, message=hostile), name=hostile)
    junit.write(tmp_path / "junit.xml", run(end))
    case = next(iter(next(iter(JUnitXml.fromfile(str(tmp_path / "junit.xml"))))))
    assert case.name.startswith("]]></failure>&<b>")
    assert "\U0001f600" in case.result[0].text


def test_a_folder_stands_for_its_scenarios_in_order(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "c.txt", "d.yaml.bak"):
        (tmp_path / name).write_text("name: x")
    (tmp_path / "sub.yaml").mkdir()
    assert [entry.file.name for entry in suite.collect([tmp_path])] == ["a.yml", "b.yaml"]


def test_a_suite_file_stands_for_what_it_lists(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yaml"):
        (tmp_path / name).write_text("name: x")
    (tmp_path / "night.yaml").write_text("suite: night\nscenarios: [b.yaml, {scenario: a.yaml, seed: 7}]\n")
    entries = suite.collect([tmp_path / "night.yaml", tmp_path / "a.yaml"])
    assert [(entry.file.name, entry.seed) for entry in entries] == [("b.yaml", None), ("a.yaml", 7), ("a.yaml", None)]
    assert suite.title([tmp_path / "night.yaml"]) == "night"
    assert suite.title([tmp_path / "a.yaml"]) == "a"
    assert suite.title([tmp_path / "a.yaml", tmp_path / "b.yaml"]) == "scenarios"


def test_nothing_to_run_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=str(tmp_path)):
        suite.collect([tmp_path])


def test_a_missing_file_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "time_limit: 60s\nworkload: {kind: mutex, clients: 4, keys: 3, rate: 200/s, lease: 2s, hold: 50ms..500ms}\n"
    )
    (tmp_path / "night.yaml").write_text("scenarios: [none.yaml, sub/../a.yaml, ../gone/b.yaml]\n")
    planned = suite.collect([tmp_path / "missing.yaml", tmp_path / "night.yaml"])

    def run_one(entry: SuiteEntry) -> Outcome:
        entry.load()
        return VALID

    summary = suite.run("night", planned, run_one)
    bad, passed = Status.BAD_FILE, Status.PASSED
    assert [entry.status for entry in summary.entries] == [bad, bad, passed, bad]
    assert f"{tmp_path / 'none.yaml'}: found no such file" in summary.entries[1].message
    assert summary.exit is Exit.BAD_INPUT


def test_a_repetition_counts_violations_and_claims() -> None:
    repetition = Repetition(5, (VALID, VIOLATED, VIOLATED, HARNESS))
    assert repetition.exit is Exit.VIOLATED
    assert repetition.words() == "2 of 4 runs violated a claim (50%): fencing 2; the harness failed in 1"
    document = repetition.to_dict()
    assert (document["times"], document["runs"], document["violated"]) == (5, 4, 2)
    assert document["claims"] == {"fencing": 2}
