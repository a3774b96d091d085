"""What the testbed asks of a place: run nodes, break and mend processes and links, clean up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from cluster.systems.base import Address, System


class Link(NamedTuple):
    """The direction of traffic from one node to another."""

    source: str
    target: str

    @property
    def reverse(self) -> Link:
        return Link(self.target, self.source)


class ProcessState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Capability(StrEnum):
    """What a place can do to nodes; a scenario that needs more is refused before the run starts."""

    CUT_LINKS = "cut-links"
    KILL = "kill"
    PAUSE = "pause"


class Place(Protocol):
    """Where the nodes of one run live. Every method that changes something is idempotent."""

    name: str
    capabilities: frozenset[Capability]
    system: System
    nodes: Sequence[str]

    async def start(self) -> None:
        """Lay out and start every node; does not wait for readiness. Raises PlaceError."""

    def address(self, node: str) -> Address:
        """Where clients of this node connect; stays the same when the node restarts."""

    async def start_node(self, node: str) -> None:
        """Start a node that is dead, with the data that it left."""

    async def kill_node(self, node: str) -> None:
        """SIGKILL; returns when the process is gone."""

    async def stop_node(self, node: str) -> None:
        """SIGTERM, and SIGKILL if it does not end in time."""

    async def pause_node(self, node: str) -> None: ...

    async def resume_node(self, node: str) -> None: ...

    async def state(self, node: str) -> ProcessState:
        """The process as the operating system sees it: the evidence for kill and pause."""

    async def account(self, node: str) -> str:
        """For error messages: the node's state, how it ended if it did, and the last lines that it wrote."""

    async def set_cuts(self, links: Iterable[Link]) -> None:
        """Replace the set of links that let nothing through. Bytes of a cut link wait, as TCP makes them wait
        behind a rule that drops packets, and go on when it is mended."""

    async def probe_link(self, link: Link, timeout: float) -> bool:
        """Whether something sent along this link arrives within `timeout` seconds: the evidence for cuts."""

    async def close(self) -> None:
        """Stop every node, collect logs into the run's folder, remove everything that the place made."""


class PlaceError(Exception):
    """The place could not do its part (no port, no program, no permission): a failure of the harness."""


class PlaceFactory(Protocol):
    #: Known before a place is made, so that a scenario can be refused in time.
    capabilities: frozenset[Capability]

    def __call__(self, system: System, nodes: Sequence[str], folder: Path) -> Place:
        """`folder` is the run's; node data and logs go to `folder/nodes/<node>/`."""
