"""Where work runs: processes of this machine, or the workers of a Dask cluster.

    engine = engines.named("dask://10.0.0.7:8786")   # None: this machine
    with engine.open() as pool:                      # a concurrent.futures.Executor
        futures = [pool.submit(function, argument) for argument in arguments]

Whatever is submitted must be a function of a module (it is looked up where it runs), a pure one: work that is lost with
its worker is done again. Dask does that by itself; of a local pool that is broken (`LOST`) a new one has to be opened.
Either way each future has one result. Workers must have the same version of fencepost; `open` looks.
"""

from __future__ import annotations

import importlib
import logging
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from multiprocessing import get_context
from typing import Any, Protocol

#: What a future raises whose worker, or whose whole pool, was lost; the work may be given to a newly opened pool.
LOST: tuple[type[BaseException], ...] = (BrokenExecutor, CancelledError)

DASK = "dask://"

#: How long the scheduler may take to answer, and then a first worker to be there.
CONNECT_S = 10.0

#: How often a Dask scheduler is asked for its workers at most.
WIDTH_S = 2.0


class EngineError(Exception):
    """There is nothing to run on; the message is for the user, and says what would do."""


class Deadly(RuntimeError):
    """One worker after the other died of this very piece of work."""


class Engine(Protocol):
    def open(self) -> Executor:
        """A new pool, to be shut down by the caller. Raises EngineError."""

    def width(self, pool: Executor) -> int:
        """How much can run in it at once."""


def named(text: str | None, jobs: int | None = None) -> Engine:
    """The engine of that name, `dask://HOST:PORT` of a scheduler; None: `jobs` processes here, one per core without.
    Raises EngineError."""
    if text is None:
        return Processes(jobs or os.cpu_count() or 1)
    host, colon, port = text.removeprefix(DASK).rpartition(":")
    if not text.startswith(DASK) or not host or not colon or not port.isdigit():
        raise EngineError(f"no engine {text!r}: expected the address of a Dask scheduler, such as dask://10.0.0.7:8786")
    if jobs is not None:
        raise EngineError("the scheduler knows its workers; leave out the number of processes")
    return Dask(f"tcp://{host}:{port}")


@dataclass(frozen=True, slots=True)
class Processes:
    """This machine's cores."""

    count: int

    def open(self) -> Executor:
        return ProcessPoolExecutor(self.count, mp_context=get_context("spawn"), initializer=_begin)

    def width(self, pool: Executor) -> int:
        return self.count


def _begin() -> None:
    """A worker says nothing by itself, and leaves Ctrl-C to the process that started it."""
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@dataclass(frozen=True, slots=True)
class Dask:
    """The workers of the scheduler at `address`."""

    address: str

    def open(self) -> Executor:
        try:
            distributed: Any = importlib.import_module("distributed")
        except ModuleNotFoundError as missing:
            raise EngineError(
                f"Dask isn't installed here ({missing.name} is missing): pip install 'fencepost[dask]'"
            ) from None
        try:
            client = distributed.Client(self.address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError) as problem:
            raise EngineError(
                f"no Dask scheduler answers at {self.address}: start one with `dask scheduler` ({_first_line(problem)})"
            ) from None
        try:
            client.wait_for_workers(1, timeout=CONNECT_S)
            self._compare(client.run(_version))
        except TimeoutError:
            client.close()
            raise EngineError(
                f"the Dask scheduler at {self.address} has no workers: start some with `dask worker {self.address}`"
            ) from None
        except EngineError:
            client.close()
            raise
        return _DaskPool(client)

    @staticmethod
    def _compare(versions: dict[str, str | None]) -> None:
        here = _version()
        for worker, version in sorted(versions.items()):
            if version != here:
                raise EngineError(f"the Dask worker {worker} has fencepost {version or 'not at all'}; here is {here}")

    def width(self, pool: Executor) -> int:
        assert isinstance(pool, _DaskPool)
        return pool.threads()


def _version() -> str | None:
    """Of fencepost, where this runs."""
    try:
        return metadata.version("fencepost")
    except metadata.PackageNotFoundError:
        return None


def _first_line(problem: BaseException | None) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)


class _DaskPool(Executor):
    """`distributed`'s own executor. It ends its client with itself, and tells of deadly work in our words."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._executor = client.get_executor(pure=False)
        self._threads, self._counted_at = 1, -WIDTH_S

    def threads(self) -> int:
        if time.monotonic() - self._counted_at >= WIDTH_S:
            self._threads = max(1, sum(self._client.nthreads().values()))
            self._counted_at = time.monotonic()
        return self._threads

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        ours: Future[Any] = Future()
        theirs: Future[Any] = self._executor.submit(fn, *args, **kwargs)
        ours.add_done_callback(lambda _: theirs.cancel())
        theirs.add_done_callback(lambda _: _hand_on(theirs, ours))
        return ours

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait=wait and not cancel_futures)
        self._client.close()


def _hand_on(theirs: Future[Any], ours: Future[Any]) -> None:
    if theirs.cancelled():
        ours.cancel()
        return
    if not ours.set_running_or_notify_cancel():
        return
    problem = theirs.exception()
    if type(problem).__name__ == "KilledWorker":
        ours.set_exception(Deadly(_first_line(problem)))
    elif problem is not None:
        ours.set_exception(problem)
    else:
        ours.set_result(theirs.result())
