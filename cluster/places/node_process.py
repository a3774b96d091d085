"""A node's process on the machine that this runs on: its life, its end, its wall clock.

The process leads a group of its own, and signals go to the group.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import psutil

from cluster.places.base import ClockSetting, PlaceError, ProcessState
from cluster.places.node_log import NodeLog
from cluster.places.vdso import VdsoClock, VdsoError
from cluster.systems.base import Launch

#: SIGTERM asks a node to stop cleanly; one that takes longer than this is killed.
STOP_BUDGET_S = 3.0
#: SIGKILL and SIGSTOP act within milliseconds unless the process is in an uninterruptible system call.
SIGNAL_BUDGET_S = 5.0
#: The kernel shows a stop in /proc a moment after the signal was sent.
STATE_POLL_S = 0.002

T = TypeVar("T")


class NodeProcess:
    """`log` is where it writes. `options` are for whoever starts it: a user, a group, a folder. Every method that
    changes something is idempotent, and raises PlaceError."""

    def __init__(self, node: str, log: NodeLog, **options: Any) -> None:
        self.log = log
        self._node = node
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._identity: psutil.Process | None = None
        self._doomed = False  # told to end; it may be alive for a moment yet
        self._wall: VdsoClock | None = None  # of the current process, once it was turned
        self._lock = asyncio.Lock()  # one change at a time

    @property
    def pid(self) -> int | None:
        """Of the last process; None: there was none yet."""
        return None if self._process is None else self._process.pid

    async def start(
        self,
        launch: Callable[[], Launch],
        environment: Mapping[str, str],
        started: Callable[[psutil.Process], object] | None = None,
    ) -> None:
        """Start the node if it is dead; `launch` is asked for the command then, and `started` is told of the process.
        `environment` is all that it gets beside what the command brings."""
        async with self._lock:
            if self._doomed:
                # Whoever told it to end was interrupted before it had; what dies now can't count as running.
                await self._kill()
            if self.state() is not ProcessState.DEAD:
                return
            command = launch()
            self.log.begin()
            with self.log.path.open("ab") as log:
                self._doomed, self._wall = False, None
                try:
                    self._process = await asyncio.create_subprocess_exec(
                        *command.argv,
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env={**environment, **command.env},
                        start_new_session=True,
                        **self._options,
                    )
                except OSError as problem:
                    raise PlaceError(f"{self._node} could not be started: {command.argv[0]}: {problem}") from problem
            # A child that nobody has waited for keeps its number, so this is that process even if it has ended already.
            with contextlib.suppress(psutil.NoSuchProcess):
                self._identity = psutil.Process(self._process.pid)
                if started is not None:
                    started(self._identity)

    async def kill(self) -> None:
        async with self._lock:
            await self._kill()

    async def stop(self) -> None:
        async with self._lock:
            self._doomed = True
            # A stopped process takes SIGTERM only when it goes on.
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            if not await self.ended(STOP_BUDGET_S):
                await self._kill()

    async def pause(self) -> None:
        async with self._lock:
            self.signal(signal.SIGSTOP)
            await self._until(lambda: self.state() is not ProcessState.RUNNING, "did not stop on SIGSTOP")
            if self.state() is ProcessState.DEAD:
                raise PlaceError(f"a dead node can't be paused: {await self.account()}")

    async def resume(self) -> None:
        async with self._lock:
            self.signal(signal.SIGCONT)
            await self._until(lambda: self.state() is not ProcessState.PAUSED, "did not go on on SIGCONT")

    @contextlib.asynccontextmanager
    async def kept_down(self) -> AsyncIterator[None]:
        """Nobody starts the node while something is done to its data. Raises PlaceError if it runs."""
        async with self._lock:
            if self.state() is not ProcessState.DEAD:
                raise PlaceError(f"{self._node} runs: its data can't be replaced")
            yield

    def state(self) -> ProcessState:
        if self._process is None or self._process.returncode is not None or self._identity is None:
            return ProcessState.DEAD
        try:
            status = self._identity.status()
        except psutil.NoSuchProcess:
            return ProcessState.DEAD
        if status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) or not self._identity.is_running():
            return ProcessState.DEAD
        return ProcessState.PAUSED if status == psutil.STATUS_STOPPED else ProcessState.RUNNING

    async def account(self) -> str:
        if self.state() is ProcessState.DEAD:
            # The kernel shows its end a moment before the exit code has come to us.
            await self.ended(SIGNAL_BUDGET_S)
        return f"{self._node} {self._fate()}; {self.log.tail()}"

    async def ended(self, budget_s: float) -> bool:
        """Wait for the process to end, for `budget_s` at most."""
        if self._process is None:
            return True
        try:
            # Not `wait_for`, which forgets that it was cancelled if the process ends in the same moment.
            async with asyncio.timeout(budget_s):
                await self._process.wait()
        except TimeoutError:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        """Signal the process' group, if the process is alive."""
        if self.state() is not ProcessState.DEAD and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    async def turn_wall_clock(self, setting: ClockSetting) -> None:
        async with self._lock:
            if self._process is None or self.state() is ProcessState.DEAD:
                raise PlaceError(f"{self._node} is dead, and has no clock")
            if self._wall is None:
                self._wall = await _patching(partial(VdsoClock, self._process.pid))
            await _patching(partial(self._wall.turn, setting.step_ns, setting.rate))

    async def true_wall_clock(self) -> None:
        async with self._lock:
            # A process that was started since then has the true time.
            if self._wall is not None and self.state() is not ProcessState.DEAD:
                await _patching(self._wall.right)

    async def _kill(self) -> None:
        self._doomed = True
        self.signal(signal.SIGKILL)
        if not await self.ended(SIGNAL_BUDGET_S):
            raise PlaceError(f"{self._node} did not end {SIGNAL_BUDGET_S:g}s after SIGKILL")

    async def _until(self, condition: Callable[[], bool], complaint: str) -> None:
        deadline = time.monotonic() + SIGNAL_BUDGET_S
        while not condition():
            if time.monotonic() > deadline:
                raise PlaceError(f"{self._node} {complaint} within {SIGNAL_BUDGET_S:g}s")
            await asyncio.sleep(STATE_POLL_S)

    def _fate(self) -> str:
        if self._process is None:
            return "was never started"
        code = self._process.returncode
        if code is None:
            return f"is {self.state()} (pid {self._process.pid})"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name} (pid {self._process.pid})"
        return f"exited with code {code} (pid {self._process.pid})"


async def _patching(step: Callable[[], T]) -> T:
    """Do it in a thread, since processes are stopped and waited for. Ends when it is done, also when cancelled: nobody
    else may turn the clock meanwhile."""
    task = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
    except VdsoError as problem:
        raise PlaceError(str(problem)) from problem
