"""A limit on the CPU time of a running process, without root and without a control group: it is stopped whenever it has
used up its share, and goes on when it has earned some again.

What it has used is read from the kernel's clock of its CPU time. It earns its share of one core all the time, and keeps
no more than BURST_S of it, as the kernel's own quota does. What it started itself is stopped with it, and not counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

#: How much CPU time may be saved up: what the process runs for at a stretch.
BURST_S = 0.01
#: The kernel's own period is longer; a shorter one than this measures the scheduler.
REST_S_MIN = 0.002


def cpu_time_ns(pid: int) -> int:
    """What a process has used since it began. Raises OSError when there is none of that number."""
    # clock_getcpuclockid(3), which Python has no function for.
    return time.clock_gettime_ns((~pid << 3) | 2)


class CpuQuota:
    """`pid` says which process it is, if there is one now; `stop` and `go_on` act on it, and may be called again and
    again."""

    def __init__(
        self, share: float, pid: Callable[[], int | None], stop: Callable[[], object], go_on: Callable[[], object]
    ) -> None:
        self._share = share
        self._pid = pid
        self._stop = stop
        self._go_on = go_on
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep(), name="cpu quota")

    def abandon(self) -> None:
        """Leave the process as it is; for one that has ended for good."""
        if self._task is not None:
            self._task.cancel()

    async def end(self) -> None:
        """The process goes on. Idempotent."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait({task})
        self._go_on()

    async def _keep(self) -> None:
        burst_ns = BURST_S * 1e9
        saved_ns, at, known = burst_ns, time.monotonic_ns(), (-1, 0)  # the process and what it had used
        while True:
            pid = self._pid()
            try:
                used = -1 if pid is None else cpu_time_ns(pid)
            except OSError:
                used = -1
            now = time.monotonic_ns()
            saved_ns = min(burst_ns, saved_ns + (now - at) * self._share)
            at = now
            if pid is None or used < 0:
                await asyncio.sleep(BURST_S)
                continue
            if known[0] == pid:
                saved_ns -= used - known[1]
            known = pid, used
            if saved_ns <= 0:
                self._stop()
                await asyncio.sleep(max(REST_S_MIN, (burst_ns - saved_ns) / self._share / 1e9))
            else:
                self._go_on()
                await asyncio.sleep(max(REST_S_MIN, saved_ns / 1e9))
