"""A run that is checked while it lasts ends at its first violation, and only then."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import pytest

from checker.online import Alarm, Monitor
from fencepost import cli, commands, watching
from tests.checker import script

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
    monkeypatch.setattr(Monitor, "observe", lambda *_: 1 / 0)
    document = run(monkeypatch, capsys, tmp_path, mutant="", checks="fencing", expect="valid")
    assert document["verdict"] == "valid"


def test_elsewhere_a_process_of_its_own_watches(tmp_path: Path) -> None:
    """An alarm comes while the history still grows."""
    path = tmp_path / "history.jsonl"
    events = script.events("1 acquire a\n1 ok 1\n2 acquire a\n2 ok 1")
    found: list[Alarm] = []

    async def run() -> None:
        heard = asyncio.Event()

        def note(alarm: Alarm) -> None:
            found.append(alarm)
            heard.set()

        watcher = watching.Aside(path, note, clock_error=0.01, tokens_span_keys=True)
        try:
            with path.open("ab", buffering=0) as file:
                for event in events:
                    file.write(msgspec.json.encode(event) + b"\n")
                    watcher.observe(event)
                async with asyncio.timeout(60):
                    await heard.wait()
        finally:
            watcher.close()

    asyncio.run(run())
    assert [alarm.claim for alarm in found] == ["fencing"]


@pytest.mark.parametrize("text", ["", "1 acquire a\n1 ok 1\n2 acquire a\n2 fail held"])
def test_one_that_finds_nothing_ends_with_the_run(tmp_path: Path, text: str) -> None:
    path = tmp_path / "history.jsonl"

    async def run() -> None:
        watcher = watching.Aside(path, lambda alarm: pytest.fail(alarm.words()), clock_error=0, tokens_span_keys=False)
        for event in script.events(text) if text else ():
            with path.open("ab") as file:
                file.write(msgspec.json.encode(event) + b"\n")
            watcher.observe(event)
        watcher.close()
        assert watcher._process is None or watcher._process.returncode == 0

    asyncio.run(run())
