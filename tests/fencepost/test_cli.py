"""The command line as a user meets it: another process, its exit code, and what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from checker.history import Event
from tests.fencepost.synthetic import chaos

ROOT = Path(__file__).parents[2]

TINY = """
name: x
place: sim
nodes: 1
time_limit: 2s
workload: {kind: mutex, clients: 1, keys: 1, rate: 5/s, lease: 500ms, hold: 5ms..20ms, timeout: 500ms}
"""

KEYS = {"verdict", "claims", "operations", "coverage", "seconds"}


def fencepost(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from fencepost.cli import main; main()", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, check=False)
    assert "Traceback" not in result.stderr + result.stdout
    return result


def written(path: Path, events: list[Event]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("good") / "history.jsonl", chaos(operations=300))


@pytest.fixture(scope="module")
def violated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("bad") / "history.jsonl", chaos(operations=900, violate=True))


def test_check_exits_with_its_verdict_and_prints_it(good: Path, violated: Path) -> None:
    result = fencepost("check", good)
    assert (result.returncode, result.stderr) == (0, "")
    assert "VALID" in result.stdout
    result = fencepost("check", violated)
    assert result.returncode == 1
    assert "INVALID: violated" in result.stdout
    assert "mutual-exclusion" in result.stdout


def test_check_prints_exactly_one_json_document(violated: Path, tmp_path: Path) -> None:
    result = fencepost("check", violated, "--json", "--report", tmp_path / "r.html")
    document: dict[str, Any] = json.loads(result.stdout)
    assert document.keys() >= KEYS
    assert document["verdict"] == "invalid"
    assert document["claims"]["mutual-exclusion"]["findings"][0]["message"]
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_check_looks_only_at_the_claims_that_it_is_asked_for(violated: Path) -> None:
    result = fencepost("check", violated, "--claims", "fencing, resource", "--json")
    assert result.returncode == 0
    assert set(json.loads(result.stdout)["claims"]) == {"fencing", "resource"}


def test_a_history_cut_in_its_last_line_is_decided_on_what_is_there(good: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(good.read_bytes()[:-30])
    result = fencepost("check", cut)
    assert result.returncode == 0
    assert "is cut after" in result.stdout


BROKEN = {
    "empty": b"",
    "one newline": b"\n",
    "binary": bytes(range(256)) * 50,
    "not json": b"hello\nworld\n",
    "json but no event": b"[1,2]\n{}\n",
    "completion without invoke": b'{"index":0,"time":1,"process":3,"type":"ok","f":"release","key":"a"}\n',
    "a hole": b'{"index":0,"time":1,"process":3,"type":"invoke","f":"acquire","key":"a","value":{"lease_ms":1}}\n'
    b'{"index":5,"time":2,"process":3,"type":"ok","f":"acquire","key":"a","value":{"token":1}}\n',
    "deep": b"[" * 100_000 + b"\n",
    "nulls": b"\0" * 1000,
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_what_is_no_history_is_a_clear_message_and_254(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(content)
    for extra in ([], ["--json"]):
        result = fencepost("check", path, *extra)
        assert result.returncode == 254, result
        assert result.stdout == ""
        assert str(path) in result.stderr
        assert len(result.stderr) < 500


def test_a_missing_file_a_bare_folder_and_an_unwritable_report_are_254(good: Path, tmp_path: Path) -> None:
    assert fencepost("check", tmp_path / "none").returncode == 254
    result = fencepost("check", tmp_path)
    assert result.returncode == 254
    assert "a history or the folder of a run is needed" in result.stderr
    result = fencepost("check", good, "--report", tmp_path / "no" / "r.html")
    assert result.returncode == 254
    assert "r.html" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["check"],
        ["check", "HISTORY", "--claims", "fancy"],
        ["check", "HISTORY", "--claims", ","],
        ["check", "HISTORY", "--clock-error", "much"],
        ["check", "HISTORY", "--clock-error", "150%"],
        ["check", "HISTORY", "--clock-error", "5"],
        ["check", "HISTORY", "--clock-error", "-1"],
        ["check", "HISTORY", "--clock-error", "nan"],
        ["check", "HISTORY", "--nonsense"],
        ["nonsense"],
        ["run", "none.yaml"],
        ["run", "none.yaml", "--seed", "x"],
        ["run", "none.yaml", "--time-limit", "soon"],
        ["suite"],
        ["suite", "EMPTY"],
        ["suite", "HISTORY", "--junit", "no/such/folder.xml"],
        ["repro", "none.yaml"],
        ["repro", "none.yaml", "--times", "0"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line_is_254(good: Path, tmp_path: Path, arguments: list[str]) -> None:
    replaced = [{"HISTORY": str(good), "EMPTY": str(tmp_path)}.get(word, word) for word in arguments]
    result = fencepost(*replaced, cwd=tmp_path)
    assert result.returncode == 254, result
    assert result.stdout == ""
    assert result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_bad_scenario_names_file_line_and_field(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\ntime_limit: 5s\nworkload: {kind: mutex, clients: two}\n")
    for command in ("run", "repro"):
        result = fencepost(command, path, cwd=tmp_path)
        assert result.returncode == 254
        assert f"{path}:3: workload.clients: found 'two'" in result.stderr
    result = fencepost("suite", path, "--json", cwd=tmp_path)
    assert result.returncode == 254
    assert json.loads(result.stdout)["runs"][0]["status"] == "bad-file"


def test_a_store_that_cannot_be_written_takes_no_summary_with_it(tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(TINY)
    (tmp_path / "store").write_text("a file")
    result = fencepost("suite", "a.yaml", "b.yaml", "--summary", "s.json", "--junit", "j.xml", cwd=tmp_path)
    assert result.returncode == 255, result.stderr
    runs = json.loads((tmp_path / "s.json").read_text())["runs"]
    assert [run["status"] for run in runs] == ["harness", "harness"]
    assert "cannot make a run's folder in store" in runs[0]["message"]
    assert 'errors="2"' in (tmp_path / "j.xml").read_text()
    assert fencepost("run", "a.yaml", cwd=tmp_path).returncode == 254


@pytest.mark.parametrize("command", [[], ["image"], ["mutants"]])
def test_what_commands_do_is_told_in_whole_sentences(command: list[str]) -> None:
    lines = fencepost(*command, "--help").stdout.partition("Commands:")[2].partition("Exit codes")[0].splitlines()
    told = [line for line in lines if line.strip()]
    assert told
    assert [line for line in told if not line.endswith((".", "?"))] == []
    assert [line for line in told if line.endswith("...")] == []


@pytest.mark.parametrize("started", ["name", "path"])
def test_printed_commands_can_be_typed_as_they_are(tmp_path: Path, started: str) -> None:
    script = tmp_path / "some where" / "fencepost"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nfrom fencepost.cli import main\nmain()\n")
    script.chmod(0o755)
    (tmp_path / "s.yaml").write_text(TINY)
    program = "some where/fencepost" if started == "path" else "fencepost"
    path = [str(script.parent)] if started == "name" else []
    env = {**os.environ, "PATH": os.pathsep.join([*path, "/usr/bin", "/bin"]), "PYTHONPATH": str(ROOT)}

    def ran(command: str) -> str:
        result = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60, check=False
        )
        assert result.returncode == 0, result
        return result.stdout

    again = [line.split(maxsplit=1)[1] for line in ran(f"'{program}' run s.yaml").splitlines() if line[:6] == "again "]
    assert len(again) == 2
    for command in again:
        assert command.startswith("'some where/fencepost' " if started == "path" else "fencepost ")
        ran(command)


def test_help_and_version_are_0_and_help_tells_the_exit_codes() -> None:
    assert fencepost("--version").stdout.startswith("fencepost ")
    for command in ([], ["run"], ["check"], ["suite"], ["repro"]):
        result = fencepost(*command, "--help")
        assert result.returncode == 0
        assert "254" in result.stdout


INTERRUPTED = """
import os, signal, sys

module = sys.argv[1]

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from fencepost.cli import main
sys.argv = ["fencepost", "run", "none.yaml"]
main()
"""


@pytest.mark.parametrize("module", ["fencepost.commands", "typer", "rich.console", "fencepost.runner", "yaml"])
def test_ctrl_c_while_something_is_loaded_is_quiet(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert result.returncode == 255
    assert result.stderr == "fencepost: interrupted\n"


def test_what_only_prints_a_line_loads_no_more_than_that_needs() -> None:
    loaded = "import sys; from fencepost import cli\ntry: cli.main()\nfinally: print(*sys.modules, file=sys.stderr)"
    for argument in ("--version", "--help"):
        command = [sys.executable, "-c", loaded, argument]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert not {"yaml", "checker", "cluster.places", "docker", "jinja2"} & set(result.stderr.split())


def test_each_of_several_mistakes_is_told_in_the_same_way(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("time_limit: soon\nworkload: {kind: mutex, clients: two}\n")
    result = fencepost("run", "bad.yaml", cwd=tmp_path)
    lines = result.stderr.splitlines()
    assert len(lines) > 2
    assert all(line.startswith(("bad.yaml:1: time_limit: ", "bad.yaml:2: workload.")) for line in lines), lines


@pytest.mark.parametrize("share", ["5", "100%", "1", "-0.1", "nan", "much"])
def test_a_wrong_clock_error_names_the_option_and_what_would_do(good: Path, share: str) -> None:
    assert fencepost("check", good, f"--clock-error={share}").stderr == (
        f"fencepost: --clock-error: found '{share}'; expected a percentage, such as 1%, or a share from 0 to 1,"
        " such as 0.01, and less than 100%\n"
    )


def test_a_verdict_on_nothing_comes_with_a_warning(good: Path, tmp_path: Path) -> None:
    result = fencepost("check", good, "--claims", "coverage")
    assert result.returncode == 0
    assert "warning     nothing was checked of coverage" in result.stdout
    phase = b'{"index":0,"time":0,"process":"nemesis","type":"info","f":"phase","value":{"name":"main"}}\n'
    (tmp_path / "calm.jsonl").write_bytes(phase)
    for engine in ("python", "columns"):
        result = fencepost("check", tmp_path / "calm.jsonl", "--engine", engine)
        assert result.returncode == 0
        assert "warning     nothing was checked of what clients saw" in result.stdout
    assert "warning" not in fencepost("check", good).stdout


SCENARIO = """
name: elsewhere
system: nowhere_at_all:Locks
nodes: 3
time_limit: 60s
assumptions: {clock_error: 7%}
workload: {kind: mutex, clients: 4, keys: 3, rate: 200/s, lease: 2s, hold: 50ms..500ms}
checks: [fencing]
coverage: {kills: 1, operations: 100}
nemesis:
  - {fault: kill, target: one, at: 1s, for: 1s}
"""


def test_the_run_of_a_system_that_is_not_here_can_be_checked(good: Path, tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(good.read_bytes())
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    result = fencepost("check", tmp_path)
    assert result.returncode == 0, result
    assert "whether tokens of nowhere_at_all:Locks increase over all keys is not known here" in result.stdout
    assert "kills 1 of 1" in result.stdout
    assert "warning" not in fencepost("check", tmp_path, "--tokens-span-keys").stdout
    (tmp_path / "versions.json").write_text('{"system": {"tokens_span_keys": true}}')
    assert "warning" not in fencepost("check", tmp_path).stdout


LOCKS = """
from cluster.systems.lockd import Lockd

class Locks(Lockd):
    name = "locks"
    tokens_span_keys = True
"""


def test_a_system_is_found_beside_its_scenario_and_from_the_runs_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cli_test_locks.py").write_text(LOCKS)
    workload = "{kind: mutex, clients: 1, keys: 1, rate: 20/s, lease: 100ms, hold: 1ms}"
    text = f"system: cli_test_locks:Locks\ntime_limit: 500ms\nnodes: 1\nworkload: {workload}\n"
    (tmp_path / "mine" / "s.yaml").write_text(text)
    result = fencepost("run", "mine/s.yaml", "--seed", "8", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    folder = tmp_path / json.loads(result.stdout)["run"]["folder"]
    assert json.loads((folder / "versions.json").read_text())["system"] == {
        "name": "cli_test_locks:Locks",
        "version": "lockd 0.1.0",
        "tokens_span_keys": True,
        "folder": str((tmp_path / "mine").resolve()),
    }
    # What the command line said is in the run's scenario; the file was another one.
    assert "seed: 8\n" in (folder / "scenario.yaml").read_text()
    assert fencepost("repro", folder / "repro.yaml", cwd=tmp_path).returncode == 0
    assert fencepost("check", folder, cwd=tmp_path).returncode == 0
    (tmp_path / "mine" / "cli_test_locks.py").unlink()
    assert fencepost("check", folder, cwd=tmp_path).returncode == 0
    result = fencepost("repro", folder / "repro.yaml", cwd=tmp_path)
    assert result.returncode == 254
    assert "there is no module cli_test_locks; it has to be in the scenario's folder" in result.stderr


def test_the_runs_of_a_store_are_listed(tmp_path: Path) -> None:
    for second in (4, 5):
        folder = tmp_path / "store" / "mine" / f"2026-01-02T03-04-0{second}Z"
        folder.mkdir(parents=True)
        (folder / "scenario.yaml").write_text("")
        document = {"verdict": "invalid", "run": {"scenario": "my [locks]", "seed": 7, "exit_code": 1}}
        (folder / "results.json").write_text(json.dumps(document))
    result = fencepost("runs", "--most", "1", cwd=tmp_path)
    assert result.returncode == 0
    head, run, more = result.stdout.splitlines()
    assert head.split() == ["began", "scenario", "seed", "place", "verdict", "exit"]
    assert run.split() == ["2026-01-02T03-04-05Z", "my", "[locks]", "7", "-", "invalid", "1"]
    assert more == "and 1 more"
    document = json.loads(fencepost("runs", "--json", cwd=tmp_path).stdout)
    assert (document["all"], [run["seed"] for run in document["runs"]]) == (2, [7, 7])
    result = fencepost("runs", "--store", "none", cwd=tmp_path)
    assert result.returncode == 254
    assert "none: there is no such folder" in result.stderr
