"""What nodes wrote down, as a run's folder has it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from checker import Applied, Proposal, Verdict
from fencepost import checking, cli, evidence, foreign
from fencepost.exits import UserError

GRANT = '{"index":1,"term":2,"command":["Grant","a",500],"result":["Granted",1],"at":1500}\n'


def folder(tmp_path: Path, origin: str | None = '{"clock":"c","at_ns":1000}', **nodes: str | None) -> Path:
    for node, text in nodes.items():
        home = tmp_path / "nodes" / node
        home.mkdir(parents=True)
        if text is not None:
            (home / "applied.jsonl").write_text(text)
    if origin is not None:
        (tmp_path / "nodes" / "origin.json").write_text(origin)
    return tmp_path


def test_what_a_node_wrote_down_is_read_with_times_of_the_history(tmp_path: Path) -> None:
    text = '{"began":"c","at":900}\n{"leads":2}\n{"proposed":1,"term":2,"tag":"17"}\n' + GRANT
    found = evidence.read(folder(tmp_path, n1=text))
    assert found is not None
    assert found.applied == {"n1": [Applied(1, 1, "Grant a 500 ms", "Granted 1", "a", 1, 2, 500)]}
    assert (found.proposals, found.failures, found.whole) == ((Proposal(1, 2, 17),), (), True)


@pytest.mark.parametrize("origin", [None, '{"clock":"another machine","at_ns":1000}', '{"clock":"","at_ns":0}'])
def test_of_another_clock_no_times_are_known(tmp_path: Path, origin: str | None) -> None:
    clock = "" if origin is not None and '""' in origin else "c"
    found = evidence.read(folder(tmp_path, origin, n1=f'{{"began":"{clock}","at":900}}\n' + GRANT))
    assert found is not None
    assert [one.at for one in found.applied["n1"]] == [None]


def test_the_last_line_of_a_life_may_be_torn(tmp_path: Path) -> None:
    began = '{"began":"c","at":900}\n'
    found = evidence.read(folder(tmp_path, n1=began + '{"index":1,"te\n' + began + GRANT + '{"index":2,'))
    assert found is not None
    assert [(one.life, one.index) for one in found.applied["n1"]] == [(2, 1)]


def test_a_node_without_a_record_makes_the_whole_incomplete(tmp_path: Path) -> None:
    found = evidence.read(folder(tmp_path, n1='{"began":"c","at":900}\n', n2=None))
    assert found is not None
    assert not found.whole


def test_two_leaders_of_one_term_and_a_node_that_failed_are_told(tmp_path: Path) -> None:
    began = '{"began":"c","at":900}\n{"leads":2}\n'
    found = evidence.read(folder(tmp_path, n1=began, n2=began + '{"failed":"AssertionError: x"}\n'))
    assert found is not None
    assert found.failures == ("n1 and n2 both led term 2", "n2 failed: AssertionError: x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"began":"c","at":9}\n{"index":1,\n' + GRANT, "line 2: not what a node writes down"),
        (GRANT, "line 1: no life of the node has begun"),
        ('{"began":"c","at":9}\n{"index":"x"}\n' + GRANT, "line 2: not what a node writes down"),
    ],
)
def test_another_file_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        evidence.read(folder(tmp_path, n1=text))
    with pytest.raises(UserError, match=r"origin\.json: not what a run writes there"):
        evidence.read(folder(tmp_path / "other", "[]", n1=""))


SCENARIO = """
time_limit: 1s
workload: {kind: mutex, clients: 2, keys: 1, rate: 10/s, lease: 1s, hold: 1ms..2ms}
checks: [linearizable]
"""
HISTORY = """
{"index":0,"time":0,"process":0,"type":"invoke","f":"acquire","key":"a","value":{"lease_ms":1000}}
{"index":1,"time":10,"process":0,"type":"ok","f":"acquire","key":"a","value":{"token":1}}
{"index":2,"time":20,"process":0,"type":"invoke","f":"release","key":"a","value":{"token":1}}
{"index":3,"time":30,"process":0,"type":"info","f":"release","key":"a","error":"timeout"}
{"index":4,"time":40,"process":1,"type":"invoke","f":"acquire","key":"a","value":{"lease_ms":1000}}
{"index":5,"time":50,"process":1,"type":"ok","f":"acquire","key":"a","value":{"token":2}}
"""
LOG = """
{"began":"c","at":0}
{"proposed":1,"term":1,"tag":"0"}
{"index":1,"term":1,"command":["Grant","a",1000],"result":["Granted",1],"at":1005}
{"proposed":2,"term":1,"tag":"4"}
{"index":2,"term":1,"command":["Grant","a",1000],"result":["Granted",2],"at":1045}
"""


@pytest.mark.parametrize(("settle", "verdict"), [(True, Verdict.INVALID), (False, Verdict.VALID)])
def test_a_search_learns_from_the_log_what_a_release_has_done(tmp_path: Path, settle: bool, verdict: Verdict) -> None:
    run = folder(tmp_path, n1=LOG.lstrip())
    (run / "history.jsonl").write_text(HISTORY.lstrip())
    (run / "scenario.yaml").write_text(SCENARIO)
    how = foreign.reading("auto", [], [], None, "lock", "mutex", False, 30, 500)
    results, _ = checking.check(checking.request(run, None, None, False, how, settle=settle))
    assert results.verdict is verdict


@pytest.mark.parametrize("words", [[], ["--no-settle"]])
def test_a_scenario_or_the_command_line_leaves_it_unknown(
    tmp_path: Path, words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder(tmp_path, n1=LOG.lstrip())
    (run / "history.jsonl").write_text(HISTORY.lstrip())
    (run / "scenario.yaml").write_text(SCENARIO + ("" if words else "assumptions: {settle: nothing}\n"))
    monkeypatch.setattr(sys, "argv", ["fencepost", "check", str(run), "--json", *words])
    with pytest.raises(SystemExit):
        cli.main()
    numbers = json.loads(capsys.readouterr().out)["claims"]["linearizable"]["numbers"]
    assert "settled_no_effect" not in numbers
