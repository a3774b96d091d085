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
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import psutil

from cluster.places.base import ClockSetting, Limits, PlaceError, ProcessState, Usage
from cluster.places.cpu_quota import CpuQuota, cpu_time_ns
from cluster.places.faketime import FaketimeClock
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
    """`log` is where it writes. `wall`: how its wall clock is turned, if not by its vDSO. `options` are for whoever
    starts it: a user, a group, a folder. Every method that changes something is idempotent, and raises PlaceError."""

    def __init__(self, node: str, log: NodeLog, *, wall: FaketimeClock | None = None, **options: Any) -> None:
        self.log = log
        self._node = node
        self._faketime = wall
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        self._identity: psutil.Process | None = None
        self._doomed = False  # told to end; it may be alive for a moment yet
        self._wall: VdsoClock | None = None  # of the current process, once it was turned
        self._paused = False
        self._halted = False  # by its quota
        self._limits = Limits()
        self._quota: CpuQuota | None = None
        self._address_space: tuple[int, int] | None = None  # the limits before ours
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
            preload: Mapping[str, str] = {}
            if self._faketime is not None:
                self._faketime.right()
                preload = self._faketime.environment
            self.log.begin()
            with self.log.path.open("ab") as log:
                self._doomed, self._wall, self._paused, self._halted = False, None, False, False
                self._limits, self._address_space = replace(self._limits, memory=None), None
                try:
                    self._process = await asyncio.create_subprocess_exec(
                        *command.argv,
                        stdin=asyncio.subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env={**environment, **command.env, **preload},
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
            self._paused = self._halted = False
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            if not await self.ended(STOP_BUDGET_S):
                await self._kill()

    async def pause(self) -> None:
        async with self._lock:
            self._paused = True
            self.signal(signal.SIGSTOP)
            await self._until(lambda: self.state() is not ProcessState.RUNNING, "did not stop on SIGSTOP")
            if self.state() is ProcessState.DEAD:
                raise PlaceError(f"a dead node can't be paused: {await self.account()}")

    async def resume(self) -> None:
        async with self._lock:
            self._paused = self._halted = False
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
        # One that its quota has stopped runs, if seldom.
        stopped = status == psutil.STATUS_STOPPED and not (self._halted and not self._paused)
        return ProcessState.PAUSED if stopped else ProcessState.RUNNING

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
            if self._faketime is not None:
                self._faketime.turn(setting.step_ns, setting.rate)
                return
            if self._wall is None:
                self._wall = await _patching(partial(VdsoClock, self._process.pid))
            await _patching(partial(self._wall.turn, setting.step_ns, setting.rate))

    async def true_wall_clock(self) -> None:
        async with self._lock:
            # A process that was started since then has the true time.
            if self._faketime is not None:
                self._faketime.right()
            if self._wall is not None and self.state() is not ProcessState.DEAD:
                await _patching(self._wall.right)

    async def starve(self, limits: Limits) -> None:
        """Replace what the process may use. Memory is a limit on its address space: it gets no more than what is
        left, now, between what it has in memory and the limit."""
        async with self._lock:
            if self._quota is not None:
                quota, self._quota = self._quota, None
                await quota.end()
            self._limits = replace(self._limits, cpu=limits.cpu)
            self._limit_memory(limits.memory)
            if limits.cpu is not None:
                self._quota = CpuQuota(limits.cpu, self._running_pid, self._halt, self._unhalt)
                self._quota.start()

    def abandon(self) -> None:
        """The process has ended, and no other will be started."""
        if self._quota is not None:
            self._quota.abandon()

    def usage(self) -> Usage:
        if self._process is None or self.state() is ProcessState.DEAD:
            raise PlaceError(f"{self._node} is dead, and uses nothing")
        try:
            used = cpu_time_ns(self._process.pid)
            before = self._address_space
            limited = before is not None and psutil.Process(self._process.pid).rlimit(psutil.RLIMIT_AS)[0] != before[0]
        except (OSError, psutil.Error) as problem:
            raise PlaceError(f"{self._node} can't be looked at: {problem}") from problem
        return Usage(used, replace(self._limits, memory=self._limits.memory if limited else None))

    def _limit_memory(self, memory: int | None) -> None:
        if (memory is None and self._address_space is None) or self._process is None:
            return
        if self.state() is ProcessState.DEAD:
            if memory is not None:
                raise PlaceError(f"{self._node} is dead, and has no memory")
            return
        process = psutil.Process(self._process.pid)
        try:
            if self._address_space is None:
                self._address_space = process.rlimit(psutil.RLIMIT_AS)
            soft, hard = self._address_space
            if memory is not None:
                has = process.memory_info()
                soft = has.vms + max(0, memory - has.rss)
                soft = soft if hard == psutil.RLIM_INFINITY else min(soft, hard)
            process.rlimit(psutil.RLIMIT_AS, (soft, hard))
        except (OSError, psutil.Error) as problem:
            raise PlaceError(f"the memory of {self._node} can't be limited: {problem}") from problem
        self._limits = replace(self._limits, memory=memory)
        if memory is None:
            self._address_space = None

    def _running_pid(self) -> int | None:
        """None also while somebody else deals with the process: what stops or starts it must not be crossed."""
        busy = self._lock.locked() or self._paused or self._process is None or self.state() is ProcessState.DEAD
        return None if busy or self._process is None else self._process.pid

    def _halt(self) -> None:
        self._halted = True
        self.signal(signal.SIGSTOP)

    def _unhalt(self) -> None:
        if self._halted:
            if not self._paused:
                self.signal(signal.SIGCONT)
            self._halted = False

    async def _kill(self) -> None:
        self._doomed = True
        self._paused = self._halted = False
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
