"""A process that wants a whole core, under a quota of ours: what the kernel says that it used."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from cluster.places.cpu_quota import CpuQuota, cpu_time_ns


@pytest.fixture
def greedy() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process.pid
    process.kill()
    process.wait()


def signalled(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


async def share_of_a_core(pid: int, seconds: float) -> float:
    began, used = time.monotonic_ns(), cpu_time_ns(pid)
    await asyncio.sleep(seconds)
    return (cpu_time_ns(pid) - used) / (time.monotonic_ns() - began)


@pytest.mark.parametrize("share", [0.03, 0.08])
async def test_a_process_gets_its_share_and_no_more(greedy: int, share: float) -> None:
    quota = CpuQuota(
        share, lambda: greedy, lambda: signalled(greedy, signal.SIGSTOP), lambda: signalled(greedy, signal.SIGCONT)
    )
    quota.start()
    got = await share_of_a_core(greedy, 1.5)
    assert got < share * 1.5 + 0.02
    await quota.end()
    assert psutil.Process(greedy).status() != psutil.STATUS_STOPPED
    assert await share_of_a_core(greedy, 1.0) > 1.1 * got, "it has what the machine gives it"


@pytest.fixture
def idle() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.communicate()


async def test_an_idle_process_is_never_stopped(idle: int) -> None:
    stops: list[int] = []
    quota = CpuQuota(0.05, lambda: idle, lambda: stops.append(1), lambda: None)
    quota.start()
    await asyncio.sleep(0.5)
    await quota.end()
    assert stops == []


async def test_there_need_be_no_process() -> None:
    quota = CpuQuota(0.5, lambda: None, lambda: None, lambda: None)
    quota.start()
    await asyncio.sleep(0.05)
    await quota.end()
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_time_ns(2**22 + 1)
