"""What a scenario says about its clients, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One call of one client, not before `at_ns`. `value` is the operation's, such as lease_ms and wait_ms. `grant` is
    how the list calls the grant that an acquire may bring, or the one whose token the call is about."""

    at_ns: int
    client: int
    do: str
    key: str
    value: tuple[tuple[str, Any], ...] = ()
    grant: str | None = None


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """The clients of one run.

    `kind` is a name of `workloads.kinds`; `rate` is in operations per second over all clients, an upper limit (a
    client sends nothing while it waits for an answer or holds a lock). Client i is pinned to node i mod the number
    of nodes.
    """

    kind: str
    clients: int
    keys: int
    rate: float
    lease_ms: int
    #: How long a holder keeps its lock, drawn evenly from this range.
    hold_ms: tuple[int, int]
    #: How long an acquire may queue at the service; 0 asks for an answer at once.
    wait_ms: int = 0
    #: Share (0 to 1) of the holders that outlive their lease: paused holders, who notice too late or never.
    overrun: float = 0.0
    #: Share (0 to 1) of the turns that only look (at the lock or at the resource) and take nothing.
    reads: float = 0.1
    #: How long a client waits for an answer, on top of `wait_ms`, before it calls the outcome unknown.
    timeout_ms: int = 2000
    #: The most operations that one client makes before the end; None: as many as fit into the time.
    operations: int | None = None
    #: Only for kinds that write to a resource: how long a write is on its way to it.
    write_delay_ms: tuple[int, int] = (0, 20)
    #: What clients do, instead of what the kind draws.
    steps: tuple[Step, ...] | None = None

    def key_name(self, number: int) -> str:
        """The name of a key, numbered from 1 to `keys`."""
        return f"k{number}"

    def key_names(self) -> tuple[str, ...]:
        return tuple(self.key_name(number) for number in range(1, self.keys + 1))
