"""Telling whose something is, and whether that harness lives."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import psutil
import pytest

from cluster.places.ownership import Harness


def test_this_process_lives() -> None:
    assert Harness.this().alive() is True


@pytest.mark.parametrize("harness", [Harness.this(), Harness("a machine pid:[1]", 7, 1234.56789)])
def test_what_is_written_is_read(harness: Harness) -> None:
    assert Harness.parse(str(harness)) == harness


@pytest.mark.parametrize("text", ["", "None", "12", "12 x m", "x 1.0 m"])
def test_what_is_no_harness_is_none(text: str) -> None:
    assert Harness.parse(text) is None


def test_a_pid_that_is_used_again_is_another() -> None:
    assert replace(Harness.this(), started=Harness.this().started - 60).alive() is False


def test_one_on_another_machine_can_not_be_judged() -> None:
    assert replace(Harness.this(), machine="elsewhere").alive() is None


def test_a_killed_process_is_dead_before_and_after_it_is_waited_for() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    harness = replace(Harness.this(), pid=process.pid, started=psutil.Process(process.pid).create_time())
    assert harness.alive() is True
    process.kill()
    while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert harness.alive() is False
    process.communicate()
    assert harness.alive() is False
