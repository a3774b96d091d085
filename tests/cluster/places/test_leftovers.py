"""Finding processes that a killed harness left, and ending them and no others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.places import leftovers
from cluster.places.leftovers import Leftover
from cluster.places.ownership import HARNESS_VARIABLE, Harness, environment

DEAD = replace(Harness.this(), started=1.0)


@pytest.fixture
def sleepers(tmp_path: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Processes of a dead harness and of this one, and one that bears nothing."""
    marks = {
        "left": environment(tmp_path / "left") | {HARNESS_VARIABLE: str(DEAD)},
        "left too": environment(tmp_path / "left") | {HARNESS_VARIABLE: str(DEAD)},
        "used": environment(tmp_path / "used"),
        "foreign": {},
    }
    started = {}
    for name, mark in marks.items():
        process = subprocess.Popen(
            [sys.executable, "-c", "print('up', flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **mark},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        started[name] = process
    try:
        yield started
    finally:
        for process in started.values():
            process.kill()
            process.communicate()


def found(folder: Path) -> list[Leftover]:
    return [leftover for leftover in leftovers.find()[0] if leftover.folder == folder]


def test_processes_are_found_by_run_and_ended(sleepers: dict[str, subprocess.Popen[bytes]], tmp_path: Path) -> None:
    (left,) = found(tmp_path / "left")
    assert (left.place, left.what, left.harness, left.alive()) == ("local", "2 processes", DEAD, False)
    (used,) = found(tmp_path / "used")
    assert (used.what, used.alive()) == ("1 process", True)
    assert left.remove() == []
    assert found(tmp_path / "left") == []
    assert [sleepers[name].wait(5) for name in ("left", "left too")] == [-9, -9]
    assert sleepers["used"].poll() is sleepers["foreign"].poll() is None


@pytest.mark.usefixtures("sleepers")
def test_without_docker_the_rest_is_found_and_the_reason_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    groups, without_docker = leftovers.find()
    assert tmp_path / "left" in {leftover.folder for leftover in groups}
    assert without_docker is not None
    assert without_docker.startswith("Docker can't be reached")
    assert "DOCKER_HOST" in without_docker
