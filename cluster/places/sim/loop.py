"""An event loop whose time is virtual: it never waits, but jumps to whatever is due next.

Problem. The testbed's own code (clients, nemesis, monitor, conductor) is asyncio code. To run it deterministically, and
faster than time passes, its clock, its timers and its network must be simulated while its code stays as it is.

Rules, and why they give the same run every time:

1. One heap holds everything that will happen, ordered by virtual time and, within one moment, by when it was asked for.
   Nothing else wakes anything up: there is no selector, no thread, no clock of the machine.
2. Before time moves, everything that is ready now runs, in the order in which it became ready.
3. Nodes, links and disks are plain callbacks in that heap (`at`); only the testbed's own code pays for tasks.
4. Tasks have the order of their making as their hash. asyncio keeps tasks in sets, and the default hash is an address:
   a task group, for one, would cancel its tasks in an order that differs from process to process.

Connections are made by whoever sets `connector`.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar, TypeVarTuple, Unpack

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NS = 1_000_000_000

#: More events than this at one moment are a circle.
AT_ONCE_MAX = 1_000_000

#: Opens a connection to (host, port) for a protocol.
Connector = Callable[[str, int, asyncio.Protocol], Awaitable[asyncio.Transport]]


class Stuck(RuntimeError):
    """Somebody waits, and nothing is left that could ever happen."""


class _Call:
    """What is going to be called; as `asyncio.Handle`, for a third of what that costs."""

    __slots__ = ("_args", "_callback", "_cancelled", "_context", "_when")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self._when, self._callback, self._args = when, callback, args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self._cancelled = True

    def cancelled(self) -> bool:
        return self._cancelled


class _Task(asyncio.Task[T]):
    """A task whose hash is its number (rule 4)."""

    def __init__(self, coroutine: Any, *, number: int, **more: Any) -> None:
        self._number = number
        super().__init__(coroutine, **more)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.AbstractEventLoop):
    """`now` is the virtual time in nanoseconds."""

    def __init__(self) -> None:
        self.now = 0
        self.connector: Connector | None = None
        self._events: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = 0
        self._tasks = 0
        self._ready: deque[_Call] = deque()
        self._stopping = self._running = self._closed = False
        self._failure: BaseException | None = None

    # ---- time

    def time(self) -> float:
        return self.now / NS

    def at(self, when_ns: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        """Call `callback` then; it can't be taken back."""
        self._order += 1
        heapq.heappush(self._events, (when_ns, self._order, callback, args))

    def after(self, delay_ns: int, callback: Callable[[Unpack[Ts]], object], *args: *Ts) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + delay_ns, self._order, callback, args))

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        call = _Call(when, callback, args, context)
        self.at(max(self.now, round(when * NS)), self._fire, call)
        return call

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        call = _Call(0.0, callback, args, context)
        self._ready.append(call)
        return call

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> _Call:
        return self.call_soon(callback, *args, context=context)

    def _fire(self, call: _Call) -> None:
        """A timer that was cancelled has stayed in the heap until its time, and is passed over."""
        if not call._cancelled:
            self._ready.append(call)

    # ---- running

    def run_forever(self) -> None:
        if self._running or self._closed:
            raise RuntimeError("this loop is running already, or closed")
        self._running, self._stopping = True, False
        asyncio._set_running_loop(self)
        ready, events = self._ready, self._events
        at_once = 0
        try:
            while not self._stopping:
                while ready:
                    call = ready.popleft()
                    if not call._cancelled:
                        self._run(call)
                    if self._stopping:
                        return
                if self._failure is not None:
                    raise self._failure
                if not events:
                    raise Stuck("nothing is left to happen, and somebody still waits")
                when, _, callback, args = heapq.heappop(events)
                if when > self.now:
                    self.now, at_once = when, 0
                elif (at_once := at_once + 1) > AT_ONCE_MAX:
                    raise Stuck(f"time stands still at {self.now} ns: {callback} is called again and again")
                callback(*args)
        finally:
            self._running = False
            asyncio._set_running_loop(None)

    def _run(self, call: _Call) -> None:
        try:
            call._context.run(call._callback, *call._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as problem:
            self.default_exception_handler({"exception": problem, "message": "a callback failed"})

    def run_until_complete(self, future: Generator[Any, None, T] | Awaitable[T]) -> T:
        task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)  # type: ignore[arg-type]
        task.add_done_callback(self._done)
        try:
            self.run_forever()
        except BaseException:
            if task.done() and not task.cancelled():
                task.exception()  # what is raised here instead is the reason
            raise
        finally:
            task.remove_done_callback(self._done)
        return task.result()

    def _done(self, future: asyncio.Future[Any]) -> None:
        self._stopping = True

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._events.clear()
        self._ready.clear()

    async def shutdown_asyncgens(self) -> None:
        """None are watched: the testbed has none that outlive their caller."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none: a thread would bring the machine's time into the run."""

    # ---- tasks, futures, errors

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **more: Any,
    ) -> asyncio.Task[T]:
        self._tasks += 1
        name = f"task {self._tasks}" if name is None else name
        return _Task(coro, number=self._tasks, loop=self, name=name, context=context, **more)

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """There is no debug mode."""

    def get_exception_handler(self) -> None:
        return None

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback that fails is a fault of the testbed: it ends the run."""
        problem = context.get("exception")
        if isinstance(problem, BaseException) and "never retrieved" not in str(context.get("message")):
            self._failure = self._failure or problem

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.default_exception_handler(context)

    # ---- the outside world

    def add_signal_handler(self, sig: int, callback: Callable[..., object], *args: Any) -> None:  # type: ignore[override]
        signal.signal(sig, lambda *_: self.call_soon(callback, *args))

    def remove_signal_handler(self, sig: int) -> bool:
        signal.signal(sig, signal.default_int_handler if sig == signal.SIGINT else signal.SIG_DFL)
        return True

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        """Raises OSError."""
        if self.connector is None:
            raise ConnectionRefusedError(f"nothing is simulated at {host}:{port}")
        protocol = protocol_factory()
        return await self.connector(host, port, protocol), protocol
