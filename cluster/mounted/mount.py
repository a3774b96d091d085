"""The testbed's side: mounts over nodes' data folders, and how to be rid of them.

The files themselves are in the folder `behind`, beside the mount point; when all is over they take its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes.util
import importlib.util
import os
import shutil
import subprocess
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from cluster.places.base import PlaceError
from cluster.places.ownership import Harness, environment
from cluster.systems.base import python_here

FUSE_TYPE = "fuse.fencepost"
BEHIND = "behind"

#: Starting an interpreter takes 0.1 s here; on a loaded machine more.
START_BUDGET_S = 20.0
STEP_BUDGET_S = 5.0


def unsupported() -> str | None:
    """Why there can be no such mounts here, and what would help; None if there can."""
    if importlib.util.find_spec("mfusepy") is None:
        return "the library for FUSE is missing: pip install 'fencepost[fuse]'"
    if not (ctypes.util.find_library("fuse3") or ctypes.util.find_library("fuse")):
        return "libfuse is missing: apt-get install fuse3"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse can't be opened: modprobe fuse, and access to /dev/fuse"
    if not (shutil.which("fusermount3") or os.geteuid() == 0):
        return "there is no fusermount3: apt-get install fuse3"
    return None


class Mount:
    """Over one node's data folder. Raises PlaceError."""

    def __init__(self, data: Path, control: Path) -> None:
        self._data = data
        self._control = control
        self._process: asyncio.subprocess.Process | None = None
        self._log = data.parent / "mount.log"
        self._lock = asyncio.Lock()

    async def start(self, run: Path) -> None:
        """`run` is the run's folder. What is in the data folder now is in the mounted one."""
        behind = self._data.parent / BEHIND
        self._data.rename(behind)
        self._data.mkdir()
        name = urllib.parse.quote(str(Harness.this()), safe="")
        python = python_here()
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(*python.command, "cluster.mounted", str(self._control), str(behind), str(self._data), name),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **python.env, **environment(run)},
                start_new_session=True,
            )
        line = await self._line(START_BUDGET_S)
        if line != "ready":
            await self.end()
            said = self._log.read_text(errors="replace").strip().splitlines()
            raise PlaceError(f"{self._data} could not be mounted: {said[-1] if said else 'no word from FUSE'}")

    async def lose(self) -> int:
        """Undo what was written and not synced; how many bytes that was."""
        async with self._lock:
            if self._process is None or self._process.stdin is None:
                raise PlaceError(f"{self._data} is not mounted")
            try:
                self._process.stdin.write(b"lose\n")
                await self._process.stdin.drain()
            except OSError as problem:
                raise PlaceError(f"the file system at {self._data} has ended: {problem}") from problem
            word, _, count = (await self._line(STEP_BUDGET_S)).partition(" ")
            if word != "lost":
                raise PlaceError(f"the file system at {self._data} gave no answer")
            return int(count)

    async def _line(self, budget_s: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(budget_s):
                return (await self._process.stdout.readline()).decode().strip()
        except TimeoutError:
            return ""

    async def end(self) -> None:
        """Unmount, and put the files where they were. Idempotent."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STEP_BUDGET_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await asyncio.to_thread(restore, self._data)


def restore(data: Path) -> None:
    """Unmount what is mounted there, if anything is, and put the files back. Raises PlaceError."""
    behind = data.parent / BEHIND
    if data in {mounted.point for mounted in mounts()}:
        unmount(data)
        if data in {mounted.point for mounted in mounts()}:
            raise PlaceError(f"{data} could not be unmounted: fusermount3 -uz {data}, or umount -l as root")
    try:
        if behind.is_dir():
            data.rmdir()
            behind.rename(data)
    except OSError as problem:
        raise PlaceError(f"the files of {data} are in {behind}: they could not be put back ({problem})") from problem


def unmount(point: Path) -> None:
    """Also when it is in use, or its file system is dead."""
    commands = [["fusermount3", "-u", "-z", str(point)], ["umount", "-l", str(point)]]
    for command in commands:
        if shutil.which(command[0]) and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return


@dataclass(frozen=True, slots=True)
class Mounted:
    point: Path
    harness: Harness | None

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.point.parents[2]


def mounts() -> list[Mounted]:
    """Those of all runs on this machine."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:  # not Linux, where there is no such thing
        return []
    found = []
    for line in lines:
        left, _, right = line.partition(" - ")
        kind, source, *_ = right.split()
        if kind == FUSE_TYPE:
            point = left.split()[4].encode().decode("unicode_escape")
            found.append(Mounted(Path(point), Harness.parse(urllib.parse.unquote(source))))
    return found
