"""What runs have left on this machine, whatever the place, and how to be rid of it.

A run that ends, in whichever way its harness can still act, leaves nothing. One whose harness was killed leaves what
bears its marks: containers and networks in Docker; processes here, if their reaper was killed too; processes, rules and
a folder on hosts, of which a record is kept here.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from cluster.mounted import mount
from cluster.places.base import PlaceError
from cluster.places.ownership import FOLDER_VARIABLE, HARNESS_VARIABLE, Harness
from cluster.places.ssh import estates
from cluster.places.ssh.hosts import Host
from cluster.words import counted

#: SIGKILL acts within milliseconds, unless the process is in an uninterruptible system call.
KILL_BUDGET_S = 5.0


@dataclass(frozen=True, slots=True)
class Leftover:
    """All of one run at one place. `remove` raises PlaceError when something stays; it returns what could not be saved
    of its logs."""

    place: str
    what: str
    harness: Harness | None
    folder: Path | None
    remove: Callable[[], list[str]] = field(compare=False)

    def alive(self) -> bool | None:
        """Whether its harness lives; None when that can't be told from here."""
        return None if self.harness is None else self.harness.alive()

    def describe(self) -> str:
        return f"{self.what} of {self.folder or 'an unknown run'}"


def find(folder: Path | None = None) -> tuple[list[Leftover], str | None]:
    """What there is, in use or not; and why Docker could not be asked, if so. On hosts: what is recorded, of this
    user's runs and of the one with this folder."""
    found = [*_processes(), *_mounts(), *map(_on_hosts, estates.find(folder))]
    try:
        found += _containers()
    except PlaceError as problem:
        return found, str(problem)
    return found, None


def _processes() -> list[Leftover]:
    groups: dict[tuple[str, str], list[psutil.Process]] = {}
    own = os.getpid()
    for process in psutil.process_iter():
        # Other people's processes can't be looked into, and are not ours.
        with contextlib.suppress(psutil.Error, OSError):
            environment = process.environ()
            harness = environment.get(HARNESS_VARIABLE)
            if harness is not None and process.pid != own and process.status() != psutil.STATUS_ZOMBIE:
                groups.setdefault((environment.get(FOLDER_VARIABLE, ""), harness), []).append(process)
    return [
        Leftover(
            "local",
            f"{len(processes)} {'process' if len(processes) == 1 else 'processes'}",
            Harness.parse(harness),
            Path(folder) if folder else None,
            functools.partial(_kill, processes),
        )
        for (folder, harness), processes in groups.items()
    ]


def _mounts() -> list[Leftover]:
    """Whose file system is dead, as that of one which lives is among the processes."""
    groups: dict[tuple[Path, Harness | None], list[Path]] = {}
    for mounted in mount.mounts():
        groups.setdefault((mounted.run, mounted.harness), []).append(mounted.point)
    return [
        Leftover("local", counted(len(points), "mount"), harness, folder, functools.partial(_unmount, points))
        for (folder, harness), points in groups.items()
    ]


def _unmount(points: list[Path]) -> list[str]:
    for point in points:
        mount.restore(point)
    return []


def _kill(processes: list[psutil.Process]) -> list[str]:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    deadline = time.monotonic() + KILL_BUDGET_S
    while alive := [process for process in processes if _lives(process)]:
        if time.monotonic() > deadline:
            numbers = ", ".join(str(process.pid) for process in alive)
            raise PlaceError(f"did not end within {KILL_BUDGET_S:g} s after SIGKILL: process {numbers}")
        time.sleep(0.02)
    return []


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _on_hosts(estate: estates.Estate) -> Leftover:
    return Leftover("ssh", estate.what, estate.harness, estate.folder, functools.partial(estates.remove, estate))


def find_on(hosts: Sequence[Host]) -> tuple[list[Leftover], list[str]]:
    """What there is on these hosts, whoever's it is; and what went wrong at those that could not be asked."""
    found, problems = estates.left_on(hosts)
    return [_on_hosts(estate) for estate in found], problems


def _containers() -> list[Leftover]:
    try:
        from cluster.places import docker_engine
    except ImportError as problem:
        raise PlaceError(f"the library to talk to Docker is missing: {problem}") from problem
    client = docker_engine.connect()

    def removal(estate: docker_engine.Estate) -> Callable[[], list[str]]:
        def remove() -> list[str]:
            problems = []
            if estate.folder is not None and estate.folder.is_dir():
                problems = docker_engine.collect_logs(estate, estate.folder)
            docker_engine.remove(client, estate.run)
            return problems

        return remove

    return [
        Leftover("docker", estate.what, estate.harness, estate.folder, removal(estate))
        for estate in docker_engine.estates(client)
    ]
