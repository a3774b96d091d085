"""Leaves no node behind when the harness dies, however it dies.

The harness can be killed with SIGKILL, alone or with its process group, and then runs no clean-up. So a small process
in a session of its own holds the reading end of a pipe whose only writing end is the harness'. The kernel closes that
end when the harness is gone; the reaper then kills every node that it was told of, stopped ones too, and ends. It is
told of a node after the node was started; for what was started in between, and for processes that nodes started
themselves, it also looks for the run's mark in the environment of every process.

Run as `python -m cluster.places.reaper MARK`; says "ready" on stdout, then reads lines "PID CREATE_TIME". A last line
"done" says that the harness has ended its nodes itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil

#: The environment variable that marks the processes of one place.
MARK_VARIABLE = "FENCEPOST_PLACE"

#: psutil computes a create time from the boot time, which a correction of the wall clock may move a little.
CREATE_TIME_TOLERANCE_S = 1.0

#: A process that was just forked bears its parent's environment until it has executed its program.
SWEEPS_AFTER_CRASH = 3
SWEEP_INTERVAL_S = 0.2

#: Starting an interpreter takes 0.1 s here; on a loaded machine more.
START_BUDGET_S = 20.0
STOP_BUDGET_S = 5.0

_DONE = "done"


class Reaper:
    """The harness' side: starts the reaper's process and tells it what to kill."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Returns when the reaper is watching. Raises OSError when it can't be started."""
        argv = [sys.executable, "-P", "-m", "cluster.places.reaper", self.mark]
        root = str(Path(__file__).parents[2])  # where `cluster` is imported from, installed or not
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(  # noqa: ASYNC220 (a fork; asyncio's own pipes would be closed with the loop)
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(asyncio.to_thread(self._process.stdout.readline), START_BUDGET_S)
        except TimeoutError:
            line = b""
        if line.strip() != b"ready":
            self._process.kill()
            raise OSError(f"{' '.join(argv)} did not come up within {START_BUDGET_S:g}s")

    def watch(self, process: psutil.Process) -> None:
        """Have `process` killed if the harness dies."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{process.pid} {process.create_time()!r}\n".encode())
        self._process.stdin.flush()

    async def stop(self) -> None:
        """Let the reaper end; it kills what is still alive of what it watches."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.write(f"{_DONE}\n".encode())
            process.stdin.close()
        try:
            await asyncio.to_thread(process.wait, STOP_BUDGET_S)
        except subprocess.TimeoutExpired:
            process.kill()
            await asyncio.to_thread(process.wait)
        process.stdout.close()


def identify(pid: int, create_time: float) -> psutil.Process | None:
    """The process `pid` if it is still the one that was created then: numbers are used again."""
    try:
        process = psutil.Process(pid)
        return process if abs(process.create_time() - create_time) <= CREATE_TIME_TOLERANCE_S else None
    except psutil.Error:
        return None


def _bears(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARK_VARIABLE) == mark
    except (psutil.Error, OSError):
        return False


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.Error):
        process.kill()


def main(mark: str) -> None:
    # Whoever signals the harness' whole group, terminal or user must not take the reaper with it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    print("ready", flush=True)
    watched: dict[int, psutil.Process] = {}
    sweeps = SWEEPS_AFTER_CRASH
    for line in sys.stdin:
        if line.strip() == _DONE:
            sweeps = 1
            break
        pid, _, create_time = line.partition(" ")
        process = identify(int(pid), float(create_time))
        if process is not None:
            watched[process.pid] = process
    for process in watched.values():
        _kill(process)
    for sweep in range(sweeps):
        if sweep > 0:
            time.sleep(SWEEP_INTERVAL_S)
        for process in psutil.process_iter():
            if _bears(process, mark):
                _kill(process)


if __name__ == "__main__":
    main(sys.argv[1])
