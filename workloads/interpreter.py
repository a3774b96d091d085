"""Drives real clients over a generator, in real time.

One loop decides and records; workers, one for each thread, only carry calls out. The loop's rules, in this order:

1. Completions first. What has come back is recorded before the next op is chosen, so a generator never decides on
   less than is known, and a window in the history is never wider than it was.
2. An invocation is recorded before its call starts, a completion after its call ended. Whatever the clocks do, the
   order of the file is an order that was possible.
3. Then the generator is asked, and the loop sleeps until the moment that the generator named or until a call comes
   back. It never polls.

What a call may end in:
- its outcome. An `info` retires the process: the connection is closed, and the thread goes on under a new number,
  over a new connection;
- no connection: the call was never sent, so this is a `fail` that says nothing; the thread rests before it tries
  again, longer each time;
- an exception, which a client never raises for what a service did: the harness is at fault. Nobody knows what became
  of the call, so it is recorded as `info`; the run ends with everything recorded, and HarnessError says why.

At the end, calls that are open have `drain_s` to come back. The rest are given up and recorded as `info`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from cluster.systems.base import LockClient, NodeUnreachable, Outcome, TagsRequests
from workloads.dispatch import Dispatcher, Invocation, Recorder, WorkloadError
from workloads.generator import Generator, Nothing, Op

Connect = Callable[[str], Awaitable[LockClient]]
Call = Callable[[Op], Awaitable[Outcome]]

#: The error of a call that was never sent; clients use the same word when they notice it themselves.
NOT_CONNECTED = "not-connected"
ABANDONED = "abandoned"
REST_MS_MIN = 50
REST_MS_MAX = 1000
#: Closing a connection to a node that is paused or cut off may hang; nobody waits longer for it.
CLOSE_S_MAX = 1.0

_NS_PER_MS = 1_000_000


class HarnessError(Exception):
    """The testbed itself failed, not the service under test; the history up to then is whole."""


@dataclass(slots=True)
class _Worker:
    """One thread's client. `refused` counts connections that could not be opened since the last that could."""

    node: str
    client: LockClient | None = None
    tagged: TagsRequests | None = None
    refused: int = 0
    call: asyncio.Task[None] | None = None


class _Completion(msgspec.Struct, frozen=True):
    thread: int
    outcome: Outcome
    rest_ms: int = 0
    failure: BaseException | None = None


@dataclass(slots=True)
class _Inbox:
    """What has come back, and the bell that wakes the loop."""

    completions: deque[_Completion] = field(default_factory=deque)
    bell: asyncio.Event = field(default_factory=asyncio.Event)


class Interpreter:
    """The clients of one run, for one generator after another.

    `connect` opens a client of a node, or raises NodeUnreachable. `record` and `clock` are those of the run's history
    (nanoseconds since the start of the run). `calls` carries out functions that are not the lock service's.
    Process numbers go on from one generator to the next.
    """

    def __init__(
        self,
        *,
        connect: Connect,
        nodes: Sequence[str],
        threads: int,
        record: Recorder,
        clock: Callable[[], int],
        calls: Mapping[str, Call] | None = None,
        drain_s: float = 5.0,
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._calls = calls or {}
        self._drain_s = drain_s
        self._dispatcher = Dispatcher(threads, nodes, record)
        self._workers = [_Worker(self._dispatcher.node(thread)) for thread in range(threads)]
        self._inbox = _Inbox()
        self._closing: set[asyncio.Task[None]] = set()
        self._holding: set[int] = set()
        self._kept: list[_Completion] = []  # of frozen threads
        self._stopped = False
        self._failure: BaseException | None = None

    async def run(self, generator: Generator) -> None:
        """Do what the generator says until it is over, `stop` was called, or the harness failed (HarnessError). No
        operation is open when it returns, however it ends."""
        self._dispatcher.start(generator)
        try:
            going = True
            while going and not self._stopped and self._failure is None:
                going = await self._step()
            await self._drain()
        except WorkloadError as problem:
            raise HarnessError(str(problem)) from problem
        finally:
            await self._abandon()
        if self._failure is not None:
            raise HarnessError(f"a client failed: {self._failure!r}") from self._failure

    def stop(self) -> None:
        """End the current run soon, and every later one at once."""
        self._stopped = True
        self._inbox.bell.set()

    # ---- freezing clients: as nemesis.clients.Freezer asks for it

    @property
    def threads(self) -> Sequence[int]:
        return range(len(self._workers))

    def holding(self) -> Collection[int]:
        """The threads that hold a lock as far as they know: granted, and no release begun."""
        return self._holding

    def frozen(self) -> Collection[int]:
        return self._dispatcher.frozen

    def freeze(self, threads: Collection[int]) -> None:
        """As if the processes of these threads were stopped: they begin nothing, and what comes back to them stays
        unknown, until `thaw`."""
        self._dispatcher.freeze(threads)

    def thaw(self, threads: Collection[int]) -> None:
        self._dispatcher.thaw(threads)
        kept, self._kept = self._kept, []
        for done in kept:
            self._hand_in(done)
        self._inbox.bell.set()

    async def close(self) -> None:
        """Close every connection."""
        for worker in self._workers:
            self._disconnect(worker)
        if self._closing:
            await asyncio.wait(self._closing)

    async def _step(self) -> bool:
        """One turn of the loop; False when the generator is over."""
        self._record_completions()
        step = self._dispatcher.poll(self._clock())
        if step is None:
            return False
        if isinstance(step, Invocation):
            if step.op.f == "release":
                self._holding.discard(step.op.thread)
            worker = self._workers[step.op.thread]
            worker.call = asyncio.create_task(self._carry_out(worker, step))
            # The call starts now, not after further invocations: its window stays as narrow as it can be.
            await asyncio.sleep(0)
        else:
            await self._sleep_until(step.until_ns)
        return True

    async def _sleep_until(self, until_ns: int | None) -> None:
        """Until then, or until the bell rings."""
        bell = self._inbox.bell
        timer = None
        if until_ns is not None:
            delay_s = max(0.0, (until_ns - self._clock()) / 1e9)
            timer = asyncio.get_running_loop().call_later(delay_s, bell.set)
        try:
            await bell.wait()
        finally:
            if timer is not None:
                timer.cancel()
        bell.clear()

    def _record_completions(self) -> None:
        completions = self._inbox.completions
        while completions:
            self._complete(completions.popleft())

    def _complete(self, done: _Completion) -> None:
        self._failure = self._failure or done.failure
        worker = self._workers[done.thread]
        worker.call = None
        if done.outcome.type == "info":
            self._disconnect(worker)
            self._holding.discard(done.thread)
        elif done.outcome.type == "ok" and self._dispatcher.outstanding[done.thread].f == "acquire":
            self._holding.add(done.thread)
        self._dispatcher.complete(done.thread, done.outcome, self._clock(), rest_ns=done.rest_ms * _NS_PER_MS)

    async def _drain(self) -> None:
        """Let open calls come back, for a bounded time."""
        deadline_ns = self._clock() + int(self._drain_s * 1e9)
        self._record_completions()
        while self._dispatcher.outstanding and self._clock() < deadline_ns:
            await self._sleep_until(deadline_ns)
            self._record_completions()

    async def _abandon(self) -> None:
        """Give up what is still open: an `info` each, of which a generator that may have failed hears nothing."""
        self._dispatcher.start(Nothing())
        calls = [worker.call for worker in self._workers if worker.call is not None]
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls)
        self._record_completions()  # some may have come back in the meantime
        self._kept.clear()
        for thread in tuple(self._dispatcher.outstanding):
            self._complete(_Completion(thread, Outcome("info", error=ABANDONED)))

    async def _carry_out(self, worker: _Worker, invoked: Invocation) -> None:
        try:
            done = await self._perform(worker, invoked)
        except Exception as problem:
            done = _Completion(invoked.op.thread, Outcome("info", error=f"harness: {problem!r}"), failure=problem)
        self._hand_in(done)

    def _hand_in(self, done: _Completion) -> None:
        if done.thread in self._dispatcher.frozen:
            self._kept.append(done)
            return
        self._inbox.completions.append(done)
        self._inbox.bell.set()

    async def _perform(self, worker: _Worker, invoked: Invocation) -> _Completion:
        op = invoked.op
        call = self._calls.get(op.f)
        if call is not None:
            return _Completion(op.thread, await call(op))
        if worker.client is None:
            try:
                worker.client = await self._connect(worker.node)
            except NodeUnreachable:
                rest_ms = min(REST_MS_MAX, REST_MS_MIN << min(worker.refused, 10))
                worker.refused += 1
                return _Completion(op.thread, Outcome("fail", error=NOT_CONNECTED), rest_ms)
            worker.refused = 0
            worker.tagged = worker.client if isinstance(worker.client, TagsRequests) else None
        if worker.tagged is not None:
            # So the nodes' own records can be brought together with the history.
            worker.tagged.tag = str(invoked.index)
        outcome = await _ask(worker.client, op)
        if outcome.type == "fail" and outcome.error == NOT_CONNECTED:
            # The client noticed only now that its connection had been lost before.
            self._disconnect(worker)
        return _Completion(op.thread, outcome)

    def _disconnect(self, worker: _Worker) -> None:
        """Close the worker's client without waiting for it."""
        client, worker.client, worker.tagged = worker.client, None, None
        if client is not None:
            closing = asyncio.create_task(_close(client))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)


async def _ask(client: LockClient, op: Op) -> Outcome:
    value = op.value or {}
    key = op.key or ""
    match op.f:
        case "acquire":
            call = client.acquire(key, value["lease_ms"], value["wait_ms"])
            return await (call if "abandon_ms" not in value else _abandon(client, call, value["abandon_ms"]))
        case "release":
            return await client.release(key, value["token"])
        case "inspect":
            return await client.inspect(key)
    raise ValueError(f"no client can do {op.f!r}")


async def _abandon(client: LockClient, call: Coroutine[Any, Any, Outcome], after_ms: int) -> Outcome:
    """Close the connection in the middle of a call, unless it comes back before that."""
    task = asyncio.create_task(call)
    await asyncio.wait({task}, timeout=after_ms / 1000)
    if not task.done():
        await _close(client)
    return await task


async def _close(client: LockClient) -> None:
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await client.close()
    except Exception:
        # The connection is given up; how it went down is of no interest.
        return
