"""Whatever ends the harness, no node outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cluster.places.reaper import identify

#: A harness: three nodes, one of them paused, one with a child in a session of its own; then it waits to be killed.
HARNESS = """
import asyncio, sys
from pathlib import Path
from cluster.places.local import LocalPlace
from cluster.systems.base import Launch
from tests.cluster.standin import Standin

class Parent(Standin):
    def launch(self, node):
        launch = super().launch(node)
        if node.id != "n3":
            return launch
        return Launch(["/bin/sh", "-c", 'setsid sleep 300 & echo $! > child; exec "$@"', "sh", *launch.argv])

async def main():
    place = LocalPlace(Parent(), ("n1", "n2", "n3"), Path("."))
    await place.start()
    for node in place.nodes:
        while not await place.system.ready(place.address(node), 1):
            await asyncio.sleep(0.02)
    await place.pause_node("n2")
    pids = [entry.process.pid for entry in place._nodes.values()]
    print(*pids, Path("child").read_text().strip(), place._reaper._process.pid, flush=True)
    if sys.argv[1] == "raise":
        raise RuntimeError("a fault of the harness")
    await asyncio.sleep(300)

asyncio.run(main())
"""

REPOSITORY = Path(__file__).parents[3]


def _harness(folder: Path, mode: str) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, mode],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert harness.stdout is not None
    started = []
    for pid in harness.stdout.readline().split():
        try:
            started.append(psutil.Process(int(pid)))
        except psutil.NoSuchProcess:
            assert mode == "raise", f"{pid} is already gone"
    return harness, started


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_gone(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while (alive := [process for process in processes if _alive(process)]) and time.monotonic() < deadline:
        time.sleep(0.02)
    return alive


@pytest.mark.parametrize("way", ["process", "group"])
def test_killing_the_harness_ends_its_nodes(tmp_path: Path, way: str) -> None:
    harness, started = _harness(tmp_path, "wait")
    try:
        assert len(started) == 5  # three nodes, a node's child, the reaper
        assert started[1].status() == psutil.STATUS_STOPPED
        assert all(_alive(process) for process in started)
        if way == "process":
            harness.kill()
        else:
            os.killpg(harness.pid, signal.SIGKILL)
        assert _wait_gone(started, 3.0) == []
    finally:
        harness.kill()
        harness.communicate()


def test_a_harness_that_ends_without_closing_leaves_nothing(tmp_path: Path) -> None:
    harness, started = _harness(tmp_path, "raise")
    harness.communicate(timeout=10)
    assert harness.returncode == 1
    assert _wait_gone(started, 3.0) == []


def test_a_number_that_was_used_again_is_another_process() -> None:
    own = psutil.Process()
    assert identify(own.pid, own.create_time()) == own
    assert identify(own.pid, own.create_time() - 60) is None
    finished = subprocess.Popen(["/bin/true"])
    created = psutil.Process(finished.pid).create_time()
    finished.wait()
    assert identify(finished.pid, created) is None
