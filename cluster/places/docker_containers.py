"""What all containers of a run in Docker have in common: name, labels, and what they may not do."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from docker.models.containers import Container
from docker.types import LogConfig

from cluster.places.base import Limits
from cluster.places.docker_engine import FOLDER_LABEL, HARNESS_LABEL, NODE_LABEL, ROLE_LABEL, RUN_LABEL, Engine
from cluster.places.ownership import Harness

#: What a node's container may use. A lock node needs a tenth of it; a runaway one must not take the machine down.
NODE_MEMORY_BYTES = 512 * 1024 * 1024
NODE_PROCESSES_MAX = 256
NODE_CPUS = 1.0
CPU_PERIOD_US = 100_000

#: The kernel takes no smaller one.
QUOTA_US_MIN = 1_000

LOG_SIZE_MAX = "50m"
#: What a shell and Docker add to the number of the signal that ended a process.
SIGNAL_BASE = 128


class Containers:
    """Those of one run. `run` names it in the engine: in every label and name."""

    def __init__(self, engine: Engine, run: str, folder: Path, image: str) -> None:
        self.engine = engine
        self.run = run
        self.image = image
        self._folder = folder

    def name(self, use: str) -> str:
        return f"fencepost-{self.run}-{use}"

    def labels(self) -> dict[str, str]:
        return {RUN_LABEL: self.run, HARNESS_LABEL: str(Harness.this()), FOLDER_LABEL: str(self._folder)}

    def common(self, node: str, role: str) -> dict[str, Any]:
        """What a container for `node` is made with, whatever its role."""
        return {
            "image": self.image,
            "name": self.name(f"{node}-{role}"),
            "labels": self.labels() | {NODE_LABEL: node, ROLE_LABEL: role},
            "init": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": LOG_SIZE_MAX}),
        }

    async def inspect(self, container: Container, about: str = "State") -> Mapping[str, Any]:
        """The engine's word on a container: of its process, or of something else. Raises PlaceError."""
        assert container.id is not None
        answer = await self.engine.call(
            "a container could not be inspected", self.engine.client.api.inspect_container, container.id
        )
        part: Mapping[str, Any] = answer[about]
        return part


def limits(wanted: Limits) -> dict[str, Any]:
    """What a node's container is made with, or updated to."""
    # Memory in all, and together with swap: no more by way of swap. The period too, as the kernel knows a share by two
    # numbers.
    memory = NODE_MEMORY_BYTES if wanted.memory is None else wanted.memory
    quota_us = round((NODE_CPUS if wanted.cpu is None else min(wanted.cpu, NODE_CPUS)) * CPU_PERIOD_US)
    return {
        "cpu_period": CPU_PERIOD_US,
        "cpu_quota": max(QUOTA_US_MIN, quota_us),
        "mem_limit": memory,
        "memswap_limit": memory,
    }


def fate(state: Mapping[str, Any], memory_bytes: int = NODE_MEMORY_BYTES) -> str:
    """What became of a container's process, for people. `memory_bytes`: the limit under which it ran."""
    if state["Paused"]:
        return "is frozen"
    if state["Running"]:
        return "is running"
    code = state["ExitCode"]
    if state["OOMKilled"]:
        return f"was ended for want of memory (its limit was {memory_bytes // 1024} KiB)"
    if code > SIGNAL_BASE and code - SIGNAL_BASE in set(signal.Signals):
        return f"was ended by {signal.Signals(code - SIGNAL_BASE).name}"
    return f"exited with code {code}" + (f" ({state['Error']})" if state["Error"] else "")
