"""What checking a run while it lasts costs the run: the testbed's own clients against a lock in memory that answers at
once, as fast as they can; unwatched, watched by a process aside (as `fencepost run --stop-at-first` does it), and with
each event checked in line (as in virtual time). They take turns.

python -m bench.online [--operations N] [--rounds N]

Goal: a run of a million operations is slowed down by less than 10%. The processor's time is that of the run's process;
the rate is what came of it on this machine, with whatever else it did.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from checker.history import Event, HistoryWriter
from checker.online import Alarm, Monitor
from cluster.systems.base import LockClient, Outcome
from fencepost.watching import Aside, InLine
from workloads import kinds
from workloads.interpreter import Interpreter
from workloads.spec import WorkloadSpec

NODES = ("n1", "n2", "n3", "n4", "n5")
CLIENTS = 30
KEYS = 10
LIMIT_NS = 3_600_000_000_000

#: Of the answers this many never come, as far as their clients know.
UNKNOWN_SHARE = 0.01


class Locks:
    """The lock service: correct, and in memory. Every so many-th call takes effect and is never answered."""

    def __init__(self) -> None:
        self.held: dict[str, int] = {}
        self._granted = 0
        self._calls = 0

    def answer(self, outcome: Outcome) -> Outcome:
        self._calls += 1
        return Outcome("info", error="timeout") if self._calls % round(1 / UNKNOWN_SHARE) == 0 else outcome

    def acquire(self, key: str) -> Outcome:
        if key in self.held:
            return Outcome("fail", error="held")
        self._granted += 1
        self.held[key] = self._granted
        outcome = self.answer(Outcome("ok", {"token": self._granted}))
        if outcome.type == "info":
            del self.held[key]  # its lease is over
        return outcome

    def release(self, key: str, token: int) -> Outcome:
        if self.held.get(key) != token:
            return Outcome("fail", error="not-held")
        del self.held[key]
        return self.answer(Outcome("ok"))


class Client:
    def __init__(self, locks: Locks) -> None:
        self._locks = locks

    async def acquire(self, key: str, lease_ms: int, wait_ms: int) -> Outcome:
        return self._locks.acquire(key)

    async def release(self, key: str, token: int) -> Outcome:
        return self._locks.release(key, token)

    async def inspect(self, key: str) -> Outcome:
        return self._locks.answer(Outcome("ok", {"token": self._locks.held.get(key)}))

    async def close(self) -> None:
        pass


class Watch(StrEnum):
    NOT = "unwatched"
    ASIDE = "a process aside"
    IN_LINE = "in line"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.online", description=__doc__)
    parser.add_argument("--operations", type=int, default=10_000, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each kind")
    chosen = parser.parse_args([] if arguments is None else arguments)
    costs: dict[Watch, list[float]] = {watch: [] for watch in Watch}
    rates: dict[Watch, list[float]] = {watch: [] for watch in Watch}
    for turn in range(chosen.rounds):
        for watch in Watch:
            seconds, cpu_s, count = _run(chosen.operations, watch, turn)
            costs[watch].append(cpu_s / count * 1e6)
            rates[watch].append(count / seconds)
    print(f"online: runs of {chosen.operations:,} operations, {CLIENTS} clients, medians of {chosen.rounds} turns each")
    cost, rate = statistics.median(costs[Watch.NOT]), statistics.median(rates[Watch.NOT])
    for watch in Watch:
        more, less = statistics.median(costs[watch]) / cost - 1, 1 - statistics.median(rates[watch]) / rate
        words = "" if watch is Watch.NOT else f": {more:+.1%} of the processor, {-less:+.1%} of the rate"
        numbers = f"{statistics.median(costs[watch]):6.1f} us an operation, {statistics.median(rates[watch]):7,.0f}/s"
        print(f"  {watch:<16} {numbers}{words}")


def _run(operations: int, watch: Watch, seed: int) -> tuple[float, float, int]:
    """Seconds, seconds of the processor, and how many operations it was."""
    monitor = Monitor(clock_error=0.01, tokens_span_keys=True)
    with tempfile.TemporaryDirectory() as folder:
        history = Path(folder) / "history.jsonl"
        aside = Aside(history, _fail, clock_error=0.01, tokens_span_keys=True)
        observe = {Watch.NOT: None, Watch.ASIDE: aside.observe, Watch.IN_LINE: InLine(monitor, _fail).observe}[watch]
        started, used = time.perf_counter(), time.process_time()
        count = asyncio.run(_load(operations, observe, seed, history))
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - used
        aside.close()
        return seconds, cpu_s, count


def _fail(alarm: Alarm) -> None:
    raise AssertionError(alarm.words())


async def _load(operations: int, observe: Callable[[Event], object] | None, seed: int, history: Path) -> int:
    spec = WorkloadSpec(
        "mutex", CLIENTS, KEYS, 1e6, lease_ms=1, hold_ms=(0, 0), operations=-(-operations // CLIENTS), reads=0.1
    )
    workload = kinds.build(spec, seed, LIMIT_NS)
    locks = Locks()
    started_ns = time.monotonic_ns()
    writer = HistoryWriter(history, lambda: time.monotonic_ns() - started_ns)
    count = 0

    def record(*fields: object, **more: object) -> Event:
        nonlocal count
        event = writer.append(*fields, **more)  # type: ignore[arg-type]
        count += event.type == "invoke"
        if observe is not None:
            observe(event)
        return event

    async def connect(_: str) -> LockClient:
        return Client(locks)

    clients = Interpreter(
        connect=connect,
        nodes=NODES,
        threads=CLIENTS,
        record=record,
        clock=lambda: time.monotonic_ns() - started_ns,
        calls=workload.calls,
    )
    try:
        await clients.run(workload.main)
        await clients.close()
    finally:
        writer.close()
    return count


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
