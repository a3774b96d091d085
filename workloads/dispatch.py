"""The bookkeeping between a generator and whatever carries its ops out: who is free, who is which process, what is
recorded and when.

No clock, no socket, no waiting: the interpreter drives it in real time, the simulation in virtual time, and both
record the same histories for the same answers.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from checker.history import Event, EventType
from cluster.systems.base import Outcome
from workloads.generator import Context, Generator, Op, Wait, sooner


class WorkloadError(Exception):
    """A generator does not keep its contract (workloads.generator)."""


class Recorder(Protocol):
    """What records events; `checker.history.HistoryWriter.append` is one."""

    def __call__(
        self,
        process: int | str,
        type: EventType,
        f: str,
        *,
        key: str | None = None,
        value: dict[str, Any] | None = None,
        error: str | None = None,
        node: str | None = None,
    ) -> Event: ...


class Invocation(msgspec.Struct, frozen=True):
    """An op whose invocation is recorded, at `index` of the history, to be carried out now."""

    op: Op
    process: int
    node: str
    index: int


class Dispatcher:
    """Threads 0..count-1, thread i pinned to node i mod the number of nodes, over any number of generators, one
    after the other. `now` is nanoseconds since the start of the run, everywhere."""

    def __init__(self, threads: int, nodes: Sequence[str], record: Recorder) -> None:
        self._threads = tuple(range(threads))
        self._nodes = nodes
        self._record = record
        self._free = self._threads
        self._processes = list(self._threads)
        self._open: dict[int, Op] = {}
        self._resting: list[tuple[int, int]] = []  # (until, thread), a heap
        self._generator: Generator | None = None
        self._frozen: frozenset[int] = frozenset()

    @property
    def outstanding(self) -> Mapping[int, Op]:
        """The ops that were invoked and have not come back, by thread."""
        return self._open

    def node(self, thread: int) -> str:
        return self._nodes[thread % len(self._nodes)]

    @property
    def frozen(self) -> frozenset[int]:
        return self._frozen

    def freeze(self, threads: Collection[int]) -> None:
        """These begin nothing more until `thaw`; what they have begun may be completed."""
        self._frozen |= frozenset(threads)

    def thaw(self, threads: Collection[int]) -> None:
        self._frozen -= frozenset(threads)

    def start(self, generator: Generator) -> None:
        """From now on do what `generator` says."""
        self._generator = generator

    def poll(self, now: int) -> Invocation | Wait | None:
        """The next thing to do. None: the generator is over (operations may still be open). Raises
        WorkloadError."""
        while self._resting and self._resting[0][0] <= now:
            self._free = (*self._free, heapq.heappop(self._resting)[1])
        if self._generator is None:
            return None
        answer, self._generator = self._generator.op(self._context(now))
        if answer is None:
            self._generator = None
            return None
        if isinstance(answer, Op):
            return self._invoke(answer, now)
        if self._resting:
            answer = sooner(answer, Wait(self._resting[0][0]))
        if answer.until_ns is None and not self._open and not self._frozen:
            raise WorkloadError("the workload waits for an event while no operation is open")
        return answer

    def complete(self, thread: int, outcome: Outcome, now: int, *, rest_ns: int = 0) -> Event:
        """Record how the open op of `thread` ended; the thread is free again after `rest_ns`. An `info` retires its
        process."""
        op = self._open.pop(thread)
        event = self._record(
            self._processes[thread],
            outcome.type,
            op.f,
            key=op.key,
            value=outcome.value,
            error=outcome.error,
            node=self.node(thread),
        )
        if outcome.type == "info":
            self._processes[thread] += len(self._threads)
        if rest_ns > 0:
            heapq.heappush(self._resting, (now + rest_ns, thread))
        else:
            self._free = (*self._free, thread)
        self._tell(now, event)
        return event

    def _invoke(self, op: Op, now: int) -> Invocation:
        if op.thread not in self._awake():
            raise WorkloadError(f"the workload gives thread {op.thread} an operation while it is not free: {op}")
        process = self._processes[op.thread]
        node = self.node(op.thread)
        event = self._record(process, "invoke", op.f, key=op.key, value=op.value, node=node)
        self._free = tuple(thread for thread in self._free if thread != op.thread)
        self._open[op.thread] = op
        self._tell(now, event)
        return Invocation(op, process, node, event.index)

    def _tell(self, now: int, event: Event) -> None:
        if self._generator is not None:
            self._generator = self._generator.update(self._context(now), event)

    def _context(self, now: int) -> Context:
        return Context(now, self._threads, self._awake(), tuple(self._processes))

    def _awake(self) -> tuple[int, ...]:
        """The threads that are free and not frozen."""
        if not self._frozen:
            return self._free
        return tuple(thread for thread in self._free if thread not in self._frozen)
