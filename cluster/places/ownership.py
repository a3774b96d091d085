"""Whose is it: what says that a container, a network or a process belongs to a run, and whether its harness lives.

What a run makes outlives a harness that is killed. So everything bears who made it, from the moment that it exists, and
another process can tell what was left behind from what is in use. A harness is known by its machine, its pid and when
it started, since numbers are used again. One on another machine (or in another container, which sees other pids) can't
be judged from here.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster.places.reaper import identify

#: In the environment of every process that a place starts on this machine: the run's folder, and its harness.
FOLDER_VARIABLE = "FENCEPOST_FOLDER"
HARNESS_VARIABLE = "FENCEPOST_HARNESS"


@dataclass(frozen=True, slots=True)
class Harness:
    """`started` is in seconds since the epoch, as psutil computes it. `str` and `parse` are inverse."""

    machine: str
    pid: int
    started: float

    def __str__(self) -> str:
        return f"{self.pid} {self.started!r} {self.machine}"

    @staticmethod
    def parse(text: str) -> Harness | None:
        """None for what is no harness' name."""
        pid, _, rest = text.partition(" ")
        started, _, machine = rest.partition(" ")
        try:
            return Harness(machine, int(pid), float(started))
        except ValueError:
            return None

    @staticmethod
    def this() -> Harness:
        process = psutil.Process()
        return Harness(_machine(), process.pid, process.create_time())

    def alive(self) -> bool | None:
        """None when it can't be told from here."""
        if self.machine != _machine():
            return None
        process = identify(self.pid, self.started)
        try:
            # Nobody need have waited for one that was killed.
            return process is not None and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


def environment(folder: Path) -> dict[str, str]:
    """What a process of this harness bears: whose it is, and of which run."""
    return {FOLDER_VARIABLE: str(folder), HARNESS_VARIABLE: str(Harness.this())}


def _machine() -> str:
    """What has pids of its own: a machine, or a container on it."""
    try:
        pids = os.readlink("/proc/self/ns/pid")
    except OSError:
        pids = "pid"
    return f"{platform.node()} {pids}"
