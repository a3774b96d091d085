"""The Docker engine stops and starts again in the middle: a second engine, in namespaces of its own, so that nobody
else's is touched. As root only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.places import docker_engine
from nemesis.ledger import unfinished
from tests.fencepost.test_every_fault import told
from tests.fencepost.test_runs import finish, start, until
from tests.own_engine import OwnEngine, own_engine

#: Three faults that last as long as the run, and would go on for minutes.
LASTING = """
name: lasting
place: docker
nodes: 2
seed: 7
time_limit: 240s
workload: {kind: mutex, clients: 2, keys: 2, rate: 50/s, lease: 500ms, hold: 5ms..20ms, timeout: 500ms}
nemesis:
  - {fault: partition, cuts: [[n1, n2]], at: 2s, for: 230s}
  - {fault: pause, target: [n1], at: 2100ms, for: 230s}
  - {fault: kill, target: [n2], at: 2200ms, for: 230s}
"""

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of an engine need root")]


@pytest.fixture(scope="module")
def own() -> Iterator[OwnEngine]:
    with own_engine() as own:
        yield own


def inside(own: OwnEngine, folder: Path, *words: str) -> subprocess.Popen[str]:
    """The command line where the engine is."""
    return start(*words, cwd=folder, env={"DOCKER_HOST": own.host}, within=own.inside([]))


def in_effect(own: OwnEngine, folder: Path) -> subprocess.Popen[str]:
    """A run with three faults in effect that would go on for minutes."""
    (folder / "s.yaml").write_text(LASTING)
    process = inside(own, folder, "run", "s.yaml", "--json")

    def three() -> bool:
        assert process.poll() is None, process.communicate()
        return [value["action"] for value in told(folder / "store" / "latest")].count("injected") == 3

    until(three, "three faults", 90)
    return process


def left(own: OwnEngine) -> list[str]:
    client = own.client()
    containers = [container.name for container in client.containers.list(all=True)]
    networks = [
        network.name for network in client.networks.list() if docker_engine.RUN_LABEL in network.attrs["Labels"]
    ]
    return containers + networks


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("command", ["heal", "clean"])
def test_what_a_killed_harness_left_is_removed_after_the_engine_was_started_again(
    own: OwnEngine, tmp_path: Path, command: str, number: signal.Signals
) -> None:
    process = in_effect(own, tmp_path)
    folder = (tmp_path / "store" / "latest").resolve()
    process.kill()
    process.communicate()
    assert len(left(own)) == 6
    own.stop(number)
    code, stdout, _ = finish(inside(own, tmp_path, command, "--json"))
    if command == "heal":
        assert code == 255, "nothing can be undone while there is no engine, and nothing is called healed"
        assert "Docker can't be reached" in json.loads(stdout)["failed"][0]
        assert len(unfinished(folder / "ledger.jsonl")) == 3
    own.start()
    code, stdout, stderr = finish(inside(own, tmp_path, command, "--json"), 120)
    assert code == 0, stderr
    assert f"4 containers and 2 networks of {folder}" in json.loads(stdout)["removed"]
    assert left(own) == []
    code, stdout, _ = finish(inside(own, tmp_path, "heal", "--json"))
    assert code == 0
    assert unfinished(folder / "ledger.jsonl") == []
    for node in ("n1", "n2"):
        assert "event=started" in (folder / "nodes" / node / "node.log").read_text()


def test_a_run_whose_engine_restarts_ends_and_says_so(own: OwnEngine, tmp_path: Path) -> None:
    process = in_effect(own, tmp_path)
    own.stop()
    own.start()
    code, stdout, stderr = finish(process, 120)
    document = json.loads(stdout)
    assert (code, document["verdict"]) == (255, "unknown"), stderr
    assert "the engine was stopped, or somebody ended its containers" in document["run"]["failure"]
    folder = tmp_path / document["run"]["folder"]
    assert (folder / "history.jsonl").exists()
    assert document["operations"]["ok"] > 0, "what was recorded until then is kept, and looked at"
    assert left(own) == []


def test_a_run_whose_engine_stays_away_ends_and_says_so(own: OwnEngine, tmp_path: Path) -> None:
    process = in_effect(own, tmp_path)
    own.stop()
    try:
        code, stdout, stderr = finish(process, 120)
        document = json.loads(stdout)
        assert (code, document["verdict"]) == (255, "unknown"), stderr
        # Whether it is seen while it ends its containers, or when it is gone.
        said = ("the engine was stopped, or somebody ended its containers", "the engine no longer answers")
        assert document["run"]["failure"].startswith(said)
    finally:
        own.start()
    code, stdout, _ = finish(inside(own, tmp_path, "heal", "--json"), 120)
    assert (code, left(own)) == (0, [])


@pytest.mark.timeout(600)
def test_a_run_whose_engine_hangs_ends_and_says_so(own: OwnEngine, tmp_path: Path) -> None:
    process = in_effect(own, tmp_path)
    own.pause()
    try:
        code, stdout, stderr = finish(process, 400)
        document = json.loads(stdout)
        assert (code, document["verdict"]) == (255, "unknown"), stderr
        assert "docker did not say within 15 s what it still has" in document["run"]["failure"]
    finally:
        own.resume()
    code, _, stderr = finish(inside(own, tmp_path, "heal", "--json"), 120)
    assert (code, left(own)) == (0, []), stderr
