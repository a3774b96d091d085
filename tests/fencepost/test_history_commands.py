"""The commands on histories: certificates and their verification, other tools' formats, models, export, lint."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import msgspec
import pytest

from checker.formats import Target, export
from checker.history import Event, History
from checker.verdict import CitedOperation, ClaimResult, Finding, Results, Verdict
from fencepost import checking, cli, commands
from tests.checker import script
from tests.checker.test_formats import HAZELCAST, JEPSEN_LOG

GOOD = "1 acquire a\n1 ok 1\n2 acquire a\n2 fail held\n1 release a 1\n1 ok"
BAD = "1 acquire a\n1 ok 1\n2 acquire a\n2 ok 1"


class Ran(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


Fencepost = Callable[..., Ran]


@pytest.fixture
def fencepost(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fencepost:
    """The command line in this process; the tests of `fencepost.cli` start others."""

    def run(*words: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["fencepost", *map(str, words)])
        code = cli._exit_code(commands.app)
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def recorded(tmp_path: Path) -> dict[str, Path]:
    found = {}
    for name, text in (("good", GOOD), ("bad", BAD)):
        found[name] = tmp_path / f"{name}.jsonl"
        found[name].write_text("".join(export(History.of(script.events(text)), Target.JSONL)))
    return found


def test_the_part_that_is_refused_is_written_and_named(
    fencepost: Fencepost, recorded: dict[str, Path], tmp_path: Path
) -> None:
    ran = fencepost("check", recorded["bad"], "--sub-history", tmp_path / "parts", "--json")
    (finding,) = json.loads(ran.stdout)["claims"]["linearizable"]["findings"]
    assert finding["data"]["sub_history"] == [0, 2]
    part = tmp_path / "parts" / "linearizable-1.jsonl"
    assert str(part) in ran.stderr
    assert fencepost("check", part, "--claims", "linearizable").returncode == 1
    assert fencepost("check", recorded["good"], "--sub-history", tmp_path / "none").returncode == 0
    assert not list((tmp_path / "none").iterdir())


@pytest.mark.parametrize(("name", "code", "words"), [("good", 0, "is linearizable"), ("bad", 1, "is not linearizable")])
def test_a_certificate_proves_the_verdict(
    fencepost: Fencepost, recorded: dict[str, Path], tmp_path: Path, name: str, code: int, words: str
) -> None:
    certificate = tmp_path / "certificate.json"
    assert fencepost("check", recorded[name], "--certificate", certificate).returncode == code
    verified = fencepost("verify", recorded[name], certificate)
    assert verified.returncode == code
    assert words in verified.stdout
    other = recorded["bad" if name == "good" else "good"]
    refused = fencepost("verify", other, certificate)
    assert refused.returncode == 254
    assert "proves nothing" in refused.stderr


def test_a_certificate_is_refused_with_the_largest_number(fencepost: Fencepost, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_text("".join(export(History.of(script.events(f"1 acquire a\n1 ok {2**63}")), Target.JSONL)))
    refused = fencepost("check", path, "--certificate", tmp_path / "certificate.json")
    assert refused.returncode == 254
    assert "no certificate can be made of it" in refused.stderr
    assert str(2**63 - 1) in refused.stderr


HOSTILE = "n1\x1b]0;VALID\x07\x1b[2J\r\x9b\u202e"


def test_a_terminal_obeys_nothing_that_is_in_a_history(fencepost: Fencepost, tmp_path: Path) -> None:
    fault = {"fault": f"f{HOSTILE}", "kind": "kill", "targets": [HOSTILE], "detail": {}}
    steps = [
        Event(0, 0, "nemesis", "info", f"kill{HOSTILE}", None, {**fault, "action": action})
        for action in ("inject", "injected")
    ]
    calls = [
        msgspec.structs.replace(event, key=HOSTILE, node=HOSTILE, error=event.error and HOSTILE)
        for event in script.events(BAD + "\n1 inspect a\n1 fail timeout")
    ]
    events = [msgspec.structs.replace(event, index=index) for index, event in enumerate([*steps, *calls])]
    path = tmp_path / "history.jsonl"
    path.write_text("".join(export(History.of(events), Target.JSONL)))
    checked = fencepost("check", path)
    assert checked.returncode == 1
    path.write_bytes(path.read_bytes() + path.read_bytes())
    refused = fencepost("check", path)
    assert refused.returncode == 254
    for printed in (checked.stdout, refused.stderr, fencepost("lint", path).stdout, fencepost("run", HOSTILE).stderr):
        assert not re.search(OBEYED, printed), repr(printed)
    assert "n1\\x1b]0;VALID\\x07" in checked.stdout


OBEYED = "[^\\n -~\xa0-\u2010\u2070-\uffff]"


@pytest.mark.parametrize("target", list(Target))
def test_an_exported_history_is_exact_in_a_pipe_and_harmless_on_a_terminal(
    fencepost: Fencepost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    events = [msgspec.structs.replace(event, key=HOSTILE, node=HOSTILE) for event in script.events(GOOD)]
    exact = "".join(export(History.of(events), target))
    path = tmp_path / "history.jsonl"
    path.write_text("".join(export(History.of(events), Target.JSONL)))
    assert fencepost("export", path, "--to", target).stdout == exact
    assert re.search(OBEYED, exact)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = fencepost("export", path, "--to", target).stdout
    assert not re.search(OBEYED, shown), repr(shown)
    assert len(shown.splitlines()) == len(exact.split("\n")) - 1


def test_a_drawing_is_xml_whatever_a_history_says(tmp_path: Path) -> None:
    hostile = f"{HOSTILE}<&\x00\ud800\uffff"
    finding = Finding(
        "fencing",
        Verdict.INVALID,
        f"token 1 was granted twice on {hostile}",
        operations=tuple(
            CitedOperation(index, index + 1, index, hostile, "acquire", hostile, "ok", 1, hostile, 0.1, 0.2, hostile)
            for index in (0, 2)
        ),
    )
    results = Results({"fencing": ClaimResult(Verdict.INVALID, (finding,))}, {"ok": 2, "fail": 0, "info": 0}, {}, 0.1)
    (path,) = checking.draw(results, tmp_path)
    text = "".join(ElementTree.parse(path).getroot().itertext())
    assert "n1\\x1b]0;VALID\\x07" in text
    assert not re.search(OBEYED, re.sub("[–…]", "", text))


def test_jepsens_history_is_checked_and_exported(fencepost: Fencepost, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text(HAZELCAST.replace(":value nil", ":value [:isolated {:n1 #{:n2}}]"))
    assert fencepost("check", path).returncode == 0
    assert fencepost("export", path, "--to", "jsonl", "-o", tmp_path / "ours.jsonl").returncode == 0
    # Which says that nobody knows how long the grants were in force.
    assert fencepost("check", tmp_path / "ours.jsonl").returncode == 2
    assert fencepost("check", tmp_path / "ours.jsonl", "--claims", "linearizable,fencing").returncode == 0
    trace = fencepost("export", tmp_path / "ours.jsonl", "--to", "perfetto")
    assert json.loads(trace.stdout)["traceEvents"]


def test_a_model_is_searched(fencepost: Fencepost, tmp_path: Path) -> None:
    path = tmp_path / "jepsen.log"
    path.write_text(JEPSEN_LOG.replace("cas\t[1 2]", "release\tnil"))
    checked = fencepost("check", path, "--model", "mutex", "--json")
    assert checked.returncode == 0, checked.stderr
    assert json.loads(checked.stdout)["claims"]["linearizable"]["numbers"]["keys"] == 1


def test_a_timeout_that_counts_as_a_failure_is_suspicious(fencepost: Fencepost, tmp_path: Path) -> None:
    path = tmp_path / "history.edn"
    path.write_text("{:type :invoke :f :a :process 1}\n{:type :fail :f :a :process 1 :error :timed-out}")
    assert f"{path}: line 2: 'a' failed with 'timed-out'" in fencepost("lint", path).stdout


@pytest.mark.parametrize(
    ("text", "options", "complaint"),
    [
        (HAZELCAST + "{:type :ok", [], "line 8: not EDN"),
        (HAZELCAST + "{:type :invoke :f :seize :process 7}", [], "line 8: 'seize' is no operation of a lock"),
        (HAZELCAST + "\n{:type :ok :f :acquire :process 7 :value 3}", [], "line 9: process 7 completes 'acquire'"),
        (HAZELCAST, ["--model", "spinlock"], "unknown model 'spinlock'"),
        (HAZELCAST, ["--model", "register"], "line 1: 'acquire' is no operation of this model"),
        (HAZELCAST, ["--model", "mutex", "--claims", "fencing"], "--model checks one thing"),
        (HAZELCAST, ["--model", "mutex", "--seconds", "0"], "more than 0 seconds"),
        (HAZELCAST, ["--map", "seize"], "THEIRS=OURS is needed"),
        (HAZELCAST, ["--map", "seize=grab"], "'seize' can't stand for 'grab'"),
        (HAZELCAST, ["--format", "xml"], "--format: found 'xml'"),
        (HAZELCAST, ["--engine", "steam"], "--engine: found 'steam'"),
        (HAZELCAST, ["--certificate", "x.json"], "--certificate is for histories in our own format"),
    ],
)
def test_what_is_wrong_is_said_where_it_is(
    fencepost: Fencepost, tmp_path: Path, text: str, options: list[str], complaint: str
) -> None:
    path = tmp_path / "history.edn"
    path.write_text(text)
    refused = fencepost("check", path, *options)
    assert refused.returncode == 254
    assert complaint in refused.stderr
    assert "Traceback" not in refused.stderr


def test_tokens_without_gaps(fencepost: Fencepost, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    events = script.events("1 acquire a\n1 ok 2\n2 acquire a\n2 ok 4")
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    assert fencepost("check", path, "--claims", "linearizable").returncode == 0
    counted = fencepost("check", path, "--claims", "linearizable", "--tokens-dense")
    assert counted.returncode == 1
    assert "as tokens leave no gaps" in counted.stdout
    refused = fencepost("check", path, "--tokens-dense", "--certificate", tmp_path / "c.json")
    assert refused.returncode == 254
    assert "--tokens-dense" in refused.stderr
