"""Work in several processes of this machine, with the same results as in one, in the same order.

Processes are forked, so they share what is in memory at that moment, such as the columns of a history, and only results
travel. Where the system has no fork, or one process is enough, everything is done here.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def usable() -> int:
    """How many processes can run at the same time here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_processes(
    work: Callable[..., T], tasks: Sequence[Sequence[object]], jobs: int, shared: Sequence[object] = ()
) -> list[T]:
    """`work(*shared, *task)` of each task; what is `shared` does not travel. Whatever it raises is raised here."""
    jobs = min(jobs, len(tasks))
    if jobs < 2 or "fork" not in multiprocessing.get_all_start_methods():
        return [work(*shared, *task) for task in tasks]
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, context, _begin, (shared,)) as pool:
        return [future.result() for future in [pool.submit(_do, work, task) for task in tasks]]


_shared: Sequence[object] = ()


def _begin(shared: Sequence[object]) -> None:
    global _shared
    _shared = shared


def _do(work: Callable[..., T], task: Sequence[object]) -> T:
    return work(*_shared, *task)
