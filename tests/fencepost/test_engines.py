"""Engines: work runs on a real Dask cluster of processes, survives the loss of a worker, and is counted once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost import engines, fuzz
from fencepost import scenario as scenarios
from fencepost.exits import Exit
from fencepost.fuzz import Ran, Tally

FOLDER = Path(__file__).parents[2] / "workloads" / "scenarios"


@contextmanager
def process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python -m ARGUMENTS`, killed at the end if it still runs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(
        [sys.executable, "-m", *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as running:
        try:
            yield running
        finally:
            running.kill()


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler without workers."""
    told = tmp_path / "scheduler.json"
    with process(
        "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
        "--scheduler-file", str(told),
    ) as running:  # fmt: skip
        deadline = time.monotonic() + 60
        while not (told.exists() and told.stat().st_size):
            assert running.poll() is None, "the scheduler ended"
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield json.loads(told.read_text())["address"].replace("tcp://", engines.DASK)


def worker(scheduler: str, folder: Path) -> AbstractContextManager[subprocess.Popen[bytes]]:
    address = scheduler.replace(engines.DASK, "tcp://")
    return process(
        "distributed.cli.dask_worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny",
        "--no-dashboard", "--local-directory", str(folder),
    )  # fmt: skip


def test_a_dask_worker_that_is_killed_costs_nothing_and_nothing_is_counted_twice(
    scheduler: str, tmp_path: Path
) -> None:
    plan = replace(scenarios.load(FOLDER / "mutex-kills.yaml"), time_limit_ns=4 * 10**9, nemesis=())
    engine = engines.named(scheduler)
    seen: Counter[int] = Counter()
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(scheduler, tmp_path / str(number))) for number in range(2)]
        with engine.open() as pool:
            deadline = time.monotonic() + 60
            while engine.width(pool) < len(workers):
                assert time.monotonic() < deadline
                time.sleep(0.1)

        def observe(tally: Tally, ran: Ran) -> None:
            seen[ran.seed] += 1
            if tally.runs == 3:
                os.kill(workers[0].pid, signal.SIGKILL)

        tally = fuzz.fuzz(
            fuzz.jobs([plan], range(12)), engine.open, engine.width, keep_going=True, for_s=None, observe=observe
        )
        assert workers[0].wait(10) == -signal.SIGKILL
        assert workers[1].poll() is None
    assert (tally.exit, tally.runs, tally.failed) == (Exit.VALID, 12, [])
    assert seen == Counter(range(12))


def test_a_scheduler_without_workers_is_named(scheduler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "CONNECT_S", 0.5)
    with pytest.raises(engines.EngineError, match=r"has no workers: start some with `dask worker tcp://127"):
        engines.named(scheduler).open()


def test_a_scheduler_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "CONNECT_S", 0.3)
    with pytest.raises(engines.EngineError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        engines.named("dask://127.0.0.1:1").open()


@pytest.mark.parametrize("text", ["dask://", "dask://host", "ray://host:1", "host:8786", "dask://host:port"])
def test_what_is_no_engine_is_refused(text: str) -> None:
    with pytest.raises(engines.EngineError, match=r"such as dask://10\.0\.0\.7:8786"):
        engines.named(text)


def test_a_number_of_processes_is_no_matter_of_a_scheduler() -> None:
    with pytest.raises(engines.EngineError, match="leave out the number of processes"):
        engines.named("dask://host:1", 3)
