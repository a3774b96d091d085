"""A node's container in Docker: its life, its end, its wall clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import psutil
from docker.models.containers import Container
from docker.types import Mount

from cluster.places.base import ClockSetting, Limits, PlaceError, ProcessState, Usage
from cluster.places.docker_containers import (
    CPU_PERIOD_US,
    NODE_MEMORY_BYTES,
    NODE_PROCESSES_MAX,
    Containers,
    fate,
    limits,
)
from cluster.places.docker_engine import NODE_ROLE
from cluster.places.docker_networks import NodeNetwork
from cluster.places.node_log import NodeLog
from cluster.places.vdso import VdsoClock, VdsoError
from cluster.systems.base import Launch, NodeView, System

T = TypeVar("T")

#: The node's folder of the run, as its container sees it.
HOME = PurePosixPath("/node")

STOP_BUDGET_S = 3
END_BUDGET_S = 10.0
STATE_POLL_S = 0.02

LOG_NAME = "node.log"
#: What a node prints goes to its folder, where it can be read while it runs.
_INTO_LOG = f'exec "$@" >>{HOME / LOG_NAME} 2>&1'

#: Tells a node's process from others that have the same number elsewhere.
NODE_VARIABLE = "FENCEPOST_NODE"


class DockerNode:
    """`home` is its folder of the run, on this machine; `user` whom it runs as. Everything here raises PlaceError."""

    def __init__(
        self, containers: Containers, system: System, view: NodeView, network: NodeNetwork, home: Path, user: str
    ) -> None:
        self.network = network
        self.log = NodeLog(home / LOG_NAME)
        self._containers = containers
        self._system = system
        self._view = view
        self._home = home
        self._user = user
        self._container: Container | None = None
        self._wall: VdsoClock | None = None  # of the current process
        self._limits = Limits()
        self._started = False
        self._doomed = False  # told to end; it may be alive for a moment yet
        self._lock = asyncio.Lock()  # one change of a node at a time

    @property
    def _name(self) -> str:
        return self._view.id

    async def start(self) -> None:
        async with self._lock:
            if self._doomed:
                # Whoever told it to end was interrupted before it had; what dies now can't count as running.
                await self._kill()
            if await self.state() is not ProcessState.DEAD:
                return
            if self._container is None:
                launch = self._system.launch(self._view)  # not in a thread: a system need not expect those
                self._container = await self._containers.engine.call(
                    f"{self._name} could not be made", self._create, launch
                )
            self._doomed, self._wall = False, None
            self.log.begin()
            await self._containers.engine.call(f"{self._name} could not be started", self._container.start)
            self._started = True

    def _create(self, launch: Launch) -> Container:
        return self._containers.engine.client.containers.create(
            **self._containers.common(self._name, NODE_ROLE),
            command=["sh", "-c", _INTO_LOG, "sh", *launch.argv],
            environment={**launch.env, NODE_VARIABLE: self._containers.name(self._name)},
            network_mode=f"container:{self.network.container.id}",
            mounts=[Mount(str(HOME), str(self._home), type="bind")],
            working_dir=str(HOME),
            user=self._user,
            pids_limit=NODE_PROCESSES_MAX,
            **limits(self._limits),
        )

    async def join_next(self) -> None:
        """From its next start on it waits to be added to the others' cluster. It is dead."""
        async with self._lock:
            self._view = replace(self._view, join=True)
            if self._container is not None:
                # What a container runs is set when it is made.
                await self._containers.engine.call(f"{self._name} could not be removed", self._container.remove)
                self._container = None

    async def kill(self) -> None:
        async with self._lock:
            await self._kill()

    async def stop(self) -> None:
        async with self._lock:
            self._doomed = True
            state = await self.state()
            if state is ProcessState.DEAD:
                return
            if state is ProcessState.PAUSED:
                await self._change("thawed", lambda container: container.unpause())
            await self._change("stopped", lambda container: container.stop(timeout=STOP_BUDGET_S))

    async def pause(self) -> None:
        async with self._lock:
            if await self.state() is ProcessState.RUNNING:
                await self._change("frozen", lambda container: container.pause())
            if await self.state() is ProcessState.DEAD:
                raise PlaceError(f"a dead node can't be paused: {await self.account()}")

    async def resume(self) -> None:
        async with self._lock:
            if await self.state() is ProcessState.PAUSED:
                await self._change("thawed", lambda container: container.unpause())

    async def state(self) -> ProcessState:
        if self._container is None:
            return ProcessState.DEAD
        state = await self._containers.inspect(self._container)
        if state["Paused"]:
            return ProcessState.PAUSED
        return ProcessState.RUNNING if state["Running"] else ProcessState.DEAD

    async def account(self) -> str:
        if self._container is None or not self._started:
            return f"{self._name} was never started; it logged nothing"
        state = await self._containers.inspect(self._container)
        return f"{self._name} {fate(state, self._limits.memory or NODE_MEMORY_BYTES)}; {self.log.tail()}"

    # ---- its limits

    async def starve(self, wanted: Limits) -> None:
        """Also of a dead node, which then starts with them."""
        async with self._lock:
            self._limits = wanted
            if self._container is not None:
                await self._containers.engine.call(
                    f"{self._name} could not be given other limits", lambda: self._update(limits(wanted))
                )

    def _update(self, values: Mapping[str, Any]) -> None:
        assert self._container is not None
        self._container.update(**values)

    async def usage(self) -> Usage:
        if await self.state() is ProcessState.DEAD or self._container is None:
            raise PlaceError(f"{self._name} is dead, and uses nothing")
        says = await self._containers.engine.call(
            f"what {self._name} uses could not be asked for",
            partial(self._container.stats, stream=False, one_shot=True),
        )
        assert isinstance(says, dict)
        config = await self._containers.inspect(self._container, "HostConfig")
        memory = int(says["memory_stats"].get("limit", NODE_MEMORY_BYTES))
        quota = limits(Limits())["cpu_quota"]
        return Usage(
            int(says["cpu_stats"]["cpu_usage"]["total_usage"]),
            Limits(
                config["CpuQuota"] / CPU_PERIOD_US if config["CpuQuota"] != quota else None,
                memory if memory != NODE_MEMORY_BYTES else None,
            ),
        )

    # ---- its wall clock

    async def turn_wall_clock(self, setting: ClockSetting) -> None:
        async with self._lock:
            if await self.state() is ProcessState.DEAD:
                raise PlaceError(f"{self._name} is dead, and has no clock")
            if self._wall is None:
                self._wall = await _patching(partial(VdsoClock, await self._pid()))
            await _patching(partial(self._wall.turn, setting.step_ns, setting.rate))

    async def true_wall_clock(self) -> None:
        async with self._lock:
            # A process that was started since then has the true time.
            if self._wall is not None and await self.state() is not ProcessState.DEAD:
                await _patching(self._wall.right)

    async def _pid(self) -> int:
        """The node's process as this machine numbers it. Raises PlaceError when it can't be seen from here."""
        assert self._container is not None
        init = (await self._containers.inspect(self._container))["Pid"]
        try:
            # The container's first process is the engine's init; whatever else runs there is the node.
            (process,) = psutil.Process(init).children()
            named = process.environ().get(NODE_VARIABLE)
        except (psutil.Error, ValueError, OSError) as problem:
            raise PlaceError(
                f"the process of {self._name} can't be reached from here ({problem}); as root, it can"
            ) from None
        if named != self._containers.name(self._name):
            raise PlaceError(f"the process of {self._name} can't be seen from here: the engine runs on another machine")
        return process.pid

    # ---- details

    async def _kill(self) -> None:
        self._doomed = True
        if await self.state() is ProcessState.DEAD:
            return
        await self._change("killed", lambda container: container.kill())
        deadline = time.monotonic() + END_BUDGET_S
        while await self.state() is not ProcessState.DEAD:
            if time.monotonic() > deadline:
                raise PlaceError(f"{self._name} did not end {END_BUDGET_S:g}s after SIGKILL")
            await asyncio.sleep(STATE_POLL_S)

    async def _change(self, done: str, work: Callable[[Container], object]) -> None:
        """Do something to the container. That it died meanwhile by itself is no failure."""
        assert self._container is not None
        try:
            await self._containers.engine.call(f"{self._name} could not be {done}", work, self._container)
        except PlaceError:
            if await self.state() is not ProcessState.DEAD:
                raise


async def _patching(step: Callable[[], T]) -> T:
    """Do it in a thread, since processes are stopped and waited for; to its end whoever is cancelled meanwhile."""
    try:
        return await asyncio.shield(asyncio.to_thread(step))
    except VdsoError as problem:
        raise PlaceError(str(problem)) from problem
