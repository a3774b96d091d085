"""Whole runs in Docker: the demo, and what is left and undone when the harness is killed in the middle."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.places import docker_engine
from cluster.places.docker_engine import AGENT_ROLE
from fencepost.quantities import format_duration, parse_duration_ns
from tests.docker_engine import containers, engine, left, until
from tests.fencepost.test_runs import ROOT, finish, history_has, start

#: The demo's 45 seconds become 18.
DEMO_SCALE = 0.4
MS = 1_000_000

#: Three faults that last as long as the run, and would go on for a minute.
LASTING = """
name: lasting
place: docker
nodes: 3
seed: 7
time_limit: 60s
workload: {kind: mutex, clients: 3, keys: 2, rate: 50/s, lease: 500ms, hold: 5ms..20ms, timeout: 500ms}
nemesis:
  - {fault: partition, cuts: [[n1, n2], [n2, n1]], at: 0s, for: 50s}
  - {fault: pause, target: [n1], at: 1s, for: 50s}
  - {fault: kill, target: [n3], at: 1500ms, for: 50s}
"""


def shortened(demo: Path) -> dict[str, Any]:
    """The demo, with all its faults, in less time."""
    scenario: dict[str, Any] = yaml.safe_load(demo.read_text())

    def scaled(duration: str) -> str:
        return format_duration(round(parse_duration_ns(duration) * DEMO_SCALE / MS) * MS)

    scenario["time_limit"] = scaled(scenario["time_limit"])
    for fault in scenario["nemesis"]:
        fault.update({field: scaled(fault[field]) for field in ("at", "every", "for") if field in fault})
    scenario["coverage"]["operations"] = int(scenario["coverage"]["operations"] * DEMO_SCALE / 2)
    return scenario


def actions(folder: Path) -> list[dict[str, Any]]:
    """What the nemesis did in a run, in order."""
    events = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [event["value"] for event in events if event["process"] == "nemesis" and "action" in event["value"]]


def run_of(folder: Path) -> str:
    """The name that the engine knows a run's things by."""
    (estate,) = [estate for estate in docker_engine.estates(engine()) if estate.folder == folder]
    return estate.run


def test_the_demo_is_valid_in_docker_and_every_fault_has_evidence(tmp_path: Path) -> None:
    engine()
    scenario = shortened(ROOT / "workloads" / "scenarios" / "demo.yaml")
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(scenario))
    code, stdout, stderr = finish(start("run", "demo.yaml", "--place", "docker", "--json", cwd=tmp_path), 120)
    document = json.loads(stdout)
    assert (code, document["verdict"]) == (0, "valid"), stderr
    assert document["coverage"]["faults"] == len(scenario["nemesis"])
    folder = (tmp_path / document["run"]["folder"]).resolve()
    events = actions(folder)
    for action in ("injected", "healed"):
        told = [value["evidence"] for value in events if value["action"] == action]
        assert len(told) == len(scenario["nemesis"])
        assert not [evidence for evidence in told if "not shown" in evidence or "no probe passed" in evidence]
    assert {path.name for path in (folder / "nodes").iterdir() if path.is_dir()} == {"n1", "n2", "n3", "n4", "n5"}
    for node in ("n1", "n2", "n3", "n4", "n5"):
        assert "event=started" in (folder / "nodes" / node / "node.log").read_text()
    assert not [estate for estate in docker_engine.estates(engine()) if estate.folder == folder]


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Path]:
    """The folder of a run whose harness was killed with three faults in effect."""
    engine()
    (tmp_path / "s.yaml").write_text(LASTING)
    process = start("run", "s.yaml", "--json", cwd=tmp_path)
    run = None
    try:
        until(
            lambda: (
                all(history_has(tmp_path, f'"{kind}"', '"injected"') for kind in ("partition", "pause", "kill"))
                or process.poll() is not None
            ),
            "three faults",
            60,
        )
        assert process.poll() is None, process.communicate()
        folder = (tmp_path / "store" / "latest").resolve()
        run = run_of(folder)
        code, _, stderr = finish(start("heal", cwd=tmp_path))
        assert code == 254
        assert f"its harness is alive (process {process.pid}) and heals what it does by itself" in stderr
        assert left(run) == ["6 containers and 2 networks"]
        process.kill()
        process.communicate()
        yield folder
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
        if run is not None:
            docker_engine.remove(engine(), run)


def blocked(run: str) -> list[str]:
    """The agents that block somebody."""
    found = []
    for node, agent in containers(run, AGENT_ROLE).items():
        rules = agent.exec_run(["nft", "list", "table", "inet", "fencepost"]).output.decode()
        if re.search(r"elements = \{ \d", rules):
            found.append(node)
    return sorted(found)


def test_heal_undoes_what_a_killed_harness_left(killed: Path, tmp_path: Path) -> None:
    run = run_of(killed)
    assert blocked(run) == ["n1", "n2"]
    until(lambda: not blocked(run), "the cut ends by itself", 15)
    code, stdout, stderr = finish(start("heal", "--json", cwd=tmp_path))
    assert code == 0, stderr
    document = json.loads(stdout)
    assert document["removed"] == [f"6 containers and 2 networks of {killed}"]
    assert document["healed"] == ["f1", "f2", "f3"]
    assert document["kept"] == document["failed"] == []
    assert left(run) == []
    for node in ("n1", "n2", "n3"):
        assert "event=started" in (killed / "nodes" / node / "node.log").read_text()
    code, stdout, _ = finish(start("heal", killed, cwd=tmp_path))
    assert (code, stdout) == (0, "nothing was left to heal\n")


def test_heal_and_clean_work_after_the_engine_was_stopped(killed: Path, tmp_path: Path) -> None:
    """An engine that stops ends its containers, and does not start them again."""
    run = run_of(killed)
    for container in (estate := docker_engine.estates(engine(), run)[0]).containers:
        if container.status != "exited":
            container.kill()
    assert len(estate.containers) == 6
    code, stdout, stderr = finish(start("clean", "--json", cwd=tmp_path))
    assert code == 0, stderr
    assert f"6 containers and 2 networks of {killed}" in json.loads(stdout)["removed"]
    assert left(run) == []
    code, stdout, _ = finish(start("heal", killed, cwd=tmp_path))
    assert code == 0
    assert [line.split()[:2] for line in stdout.splitlines() if line.startswith("healed")] == [
        ["healed", "f1"],
        ["healed", "f2"],
        ["healed", "f3"],
    ]


def test_without_an_engine_a_run_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    (tmp_path / "s.yaml").write_text(LASTING)
    code, stdout, stderr = finish(start("run", "s.yaml", "--json", cwd=tmp_path))
    assert code == 255
    assert json.loads(stdout)["run"]["failure"].startswith("Docker can't be reached: ")
    assert "Start its engine" in stderr
    code, _, stderr = finish(start("image", "build", cwd=tmp_path))
    assert code == 255
    assert stderr.startswith("fencepost: Docker can't be reached: ")


def test_doctor_tells_what_there_is_and_what_would_enable_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine()
    code, stdout, stderr = finish(start("doctor", "--json", cwd=tmp_path))
    assert code == 0, stderr
    document = json.loads(stdout)
    checks = {check["name"]: check for check in document["checks"]}
    assert checks["docker"]["ok"]
    assert checks["image"]["ok"]
    assert document["scenarios"]["unable"] == {}
    assert all(check["remedy"] for check in checks.values() if not check["ok"])
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
    code, stdout, _ = finish(start("doctor", cwd=tmp_path))
    assert code == 0
    assert re.search(r"^docker +no +Docker can't be reached", stdout, re.MULTILINE)
    assert "install and start Docker" in stdout


def test_doctor_leaves_the_machine_as_it_was() -> None:
    def state() -> list[str]:
        tables = ["nft", "list", "tables"], ["ip", "link"], ["iptables-save", "-t", "filter"]
        return [subprocess.run(command, capture_output=True, text=True, check=False).stdout for command in tables]

    before = state()
    code, _, _ = finish(start("doctor", cwd=Path(os.curdir)))
    assert code == 0
    # Other runs may come and go, and Docker's rules with them; ours must not be among them.
    assert "fencepost" not in "".join(state()[0:1]).lower() or "fencepost" in before[0].lower()
    assert "FENCEPOST" not in state()[2]
