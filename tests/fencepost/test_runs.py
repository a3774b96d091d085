"""Real runs of real nodes, as short as they can be."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest

from fencepost import evidence
from fencepost.scenario import load

ROOT = Path(__file__).parents[2]

SHORT = """
name: short
nodes: 3
seed: 7
time_limit: {limit}
workload: {{kind: guarded-resource, clients: 6, keys: 2, rate: 150/s, lease: 500ms, hold: 5ms..20ms, timeout: 500ms}}
nemesis:
  - {{fault: partition, shape: one, at: 300ms, for: {long}}}
  - {{fault: pause, target: one, at: 1s, for: 600ms}}
checks: [linearizable, mutual-exclusion, fencing, resource, recovery]
coverage: {{operations: 50, partitions: 1, pauses: 1, nodes_with_clients: 3}}
"""

MUTANT = """
name: planted
mutant: every-node-grants
nodes: 3
seed: 4
time_limit: 2s
workload: {kind: mutex, clients: 6, keys: 1, rate: 100/s, lease: 300ms, hold: 20ms..60ms, timeout: 500ms}
checks: [linearizable, fencing]
expect: {invalid: [fencing]}
"""

#: Clients queue all the time, so calls are open when the time limit comes.
CROWDED = """
name: crowded
nodes: 1
time_limit: 2s
workload: {kind: mutex, clients: 6, keys: 1, rate: 200/s, lease: 1s, hold: 100ms..200ms, wait: 1s}
"""


def start(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] = MappingProxyType({}), within: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """`within`: a command that ends by running ours in its place."""
    command = [*within, sys.executable, "-c", "from fencepost.cli import main; main()", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    # A session of its own: a signal to the harness reaches nobody else, as with a CI server's.
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=env, start_new_session=True
    )


def finish(process: subprocess.Popen[str], seconds: float = 60) -> tuple[int, str, str]:
    stdout, stderr = process.communicate(timeout=seconds)
    assert "Traceback" not in stdout + stderr, stderr
    return process.returncode, stdout, stderr


def nodes_of(folder: Path) -> list[psutil.Process]:
    """Processes that were started with a path in the folder."""
    found = []
    for process in psutil.process_iter():
        try:
            command = " ".join(process.cmdline())
            if str(folder) in command and "serve" in command and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def until(condition: Callable[[], Any], what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def history_has(folder: Path, *parts: str) -> bool:
    return any(
        all(part in line for part in parts)
        for path in folder.glob("store/*/*/history.jsonl")
        for line in path.read_text().splitlines()
    )


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that is in its main phase with a fault in effect and would go on for a minute."""
    (tmp_path / "s.yaml").write_text(SHORT.format(limit="60s", long="50s"))
    process = start("run", "s.yaml", "--json", cwd=tmp_path)
    try:
        until(lambda: history_has(tmp_path, '"pause"', '"healed"') or process.poll() is not None, "a fault")
        assert len(nodes_of(tmp_path)) == 3
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def check_again(folder: Path, why: str) -> None:
    """The folder of a run that did not come to its end has no verdict either, however good its record is."""
    code, stdout, _ = finish(start("check", folder / "store" / "latest", "--report", "r.html", "--json", cwd=folder))
    document = json.loads(stdout)
    assert document["claims"]["linearizable"]["verdict"] == "valid"
    assert (code, document["verdict"], document["cut_short"]) == (2, "unknown", why)
    assert why in (folder / "r.html").read_text()
    code, stdout, _ = finish(start("check", folder / "store" / "latest", cwd=folder))
    assert code == 2
    assert "UNKNOWN: the run did not come to its end (what was recorded: " in stdout
    assert f"cut short   {why}" in stdout


def test_a_run_leaves_a_verdict_and_a_whole_folder(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SHORT.format(limit="3s", long="1s"))
    code, stdout, stderr = finish(start("run", "s.yaml", "--json", "--seed", "9", cwd=tmp_path))
    assert code == 0, stderr
    document = json.loads(stdout)
    assert document["verdict"] == "valid"
    assert document["run"]["failure"] is document["run"]["interrupted"] is None
    assert stderr.splitlines()[0].split() == ["seed", "9"]
    assert "fencepost run s.yaml --place local --seed 9" in stderr
    folder = tmp_path / document["run"]["folder"]
    assert (tmp_path / "store" / "latest").resolve() == folder
    # Not the file itself: the command line said something else.
    assert load(folder / "scenario.yaml") == replace(load(tmp_path / "s.yaml"), seed=9)
    assert json.loads((folder / "results.json").read_text()) == document
    assert json.loads((folder / "versions.json").read_text())["system"]["name"] == "lockd"
    assert "<title>valid" in (folder / "report.html").read_text()
    assert "phase main" in (folder / "harness.log").read_text()
    assert {path.name for path in (folder / "nodes").iterdir() if path.is_dir()} == {"n1", "n2", "n3"}
    # Each node wrote down what it applied, by the clock of the history.
    entries = document["claims"]["agreement"]["numbers"]
    assert (entries["nodes"], entries["violations"]) == (3, 0)
    assert entries["entries"] > 10
    found = evidence.read(folder)
    assert found is not None
    assert (found.whole, bool(found.proposals)) == (True, True)
    assert all(one.at is not None for applied in found.applied.values() for one in applied)
    repro = load(folder / "repro.yaml")
    assert repro.seed == 9
    assert [(spec.fault, spec.every_ns) for spec in repro.nemesis] == [("partition", None), ("pause", None)]
    assert all(spec.cuts or isinstance(spec.target, tuple) for spec in repro.nemesis)
    assert nodes_of(tmp_path) == []
    # The folder is enough to come to the same verdict again.
    code, stdout, _ = finish(start("check", folder, "--json", cwd=tmp_path))
    assert (code, json.loads(stdout)["claims"].keys()) == (0, document["claims"].keys())


def test_every_key_is_taken_once_more_at_the_end_however_busy_the_clients_were(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(CROWDED)
    code, stdout, stderr = finish(start("run", "s.yaml", "--json", cwd=tmp_path))
    assert code == 0, stderr
    history = tmp_path / json.loads(stdout)["run"]["folder"] / "history.jsonl"
    events = [json.loads(line) for line in history.read_text().splitlines()]
    final = next(event["index"] for event in events if event.get("value") == {"name": "final"})
    done = [(event["f"], event["type"]) for event in events[final:] if event["process"] != "nemesis"]
    calls = ("acquire", "release", "inspect")
    assert done == [(f, type) for f in calls for type in ("invoke", "ok")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_the_load_and_analyses_what_there_is(
    tmp_path: Path, long_run: subprocess.Popen[str], number: signal.Signals
) -> None:
    long_run.send_signal(number)
    code, stdout, stderr = finish(long_run, 30)
    document = json.loads(stdout)
    assert document["run"]["interrupted"] == number.name
    assert document["claims"]["linearizable"]["verdict"] == "valid"
    assert code == document["run"]["exit_code"]
    assert (code, document["verdict"]) == (2, "unknown"), stderr
    assert "stopping the load" in stderr
    check_again(tmp_path, f"{number.name} ended the run early")
    assert history_has(tmp_path, '"partition"', '"healed"')
    assert history_has(tmp_path, '"phase"', '"end"')
    assert nodes_of(tmp_path) == []


def test_the_second_signal_leaves_at_once(tmp_path: Path, long_run: subprocess.Popen[str]) -> None:
    os.kill(long_run.pid, signal.SIGINT)
    time.sleep(0.05)
    os.kill(long_run.pid, signal.SIGINT)
    began = time.monotonic()
    code, stdout, _ = finish(long_run, 30)
    assert time.monotonic() - began < 10
    assert code == 255
    assert json.loads(stdout)["verdict"] == "unknown"
    assert nodes_of(tmp_path) == []
    assert history_has(tmp_path, '"partition"', '"healed"')


def test_a_harness_that_is_killed_leaves_a_history_to_decide_and_no_node(
    tmp_path: Path, long_run: subprocess.Popen[str]
) -> None:
    long_run.kill()
    long_run.wait()
    until(lambda: not nodes_of(tmp_path), "every node is gone", 5)
    (history,) = tmp_path.glob("store/*/*/history.jsonl")
    check_again(tmp_path, "its harness was killed, or could not write its results")
    code, stdout, _ = finish(start("check", history, "--json", cwd=tmp_path))
    document = json.loads(stdout)
    assert (code, document["verdict"], "cut_short" in document) == (0, "valid", False), "of the record alone"


def test_a_repro_of_a_mutants_run_violates_the_same_claim_again(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(MUTANT)
    code, stdout, stderr = finish(start("suite", "m.yaml", "--json", "--junit", "j.xml", cwd=tmp_path))
    assert code == 0, stderr
    (run,) = json.loads(stdout)["runs"]
    assert run["status"] == "passed"
    assert (tmp_path / run["results"]["run"]["folder"] / "scenario.yaml").read_text() == MUTANT
    assert run["results"]["run"]["exit_code"] == 1
    assert 'failures="0"' in (tmp_path / "j.xml").read_text()
    repro = Path(run["results"]["run"]["folder"]) / "repro.yaml"
    code, stdout, _ = finish(start("repro", repro, "--times", "2", "--json", cwd=tmp_path))
    document = json.loads(stdout)
    assert code == 1
    assert (document["violated"], document["claims"]["fencing"]) == (2, 2)
    # Of the run that `latest` leads to when the command begins, however often it is moved.
    latest = "store/latest/repro.yaml"
    code, stdout, stderr = finish(start("repro", latest, "--bisect", "--times", "2", "--json", cwd=tmp_path))
    assert (code, json.loads(stdout)["violated"]) == (1, 2), stderr


def test_a_cluster_that_never_gets_ready_is_the_harness_failing(tmp_path: Path) -> None:
    scenario = SHORT.format(limit="3s", long="1s") + "system: tests.fencepost.stillborn:Stillborn\n"
    (tmp_path / "s.yaml").write_text(scenario)
    code, stdout, stderr = finish(start("run", "s.yaml", "--json", cwd=tmp_path))
    assert code == 255
    document = json.loads(stdout)
    assert document["verdict"] == "unknown"
    assert "the cluster did not get ready" in document["run"]["failure"]
    assert "I was born dead" in document["run"]["failure"]
    assert "harness.log" in stderr
    assert nodes_of(tmp_path) == []
    code, _, _ = finish(start("repro", "s.yaml", "--bisect", cwd=tmp_path))
    assert code == 125
