"""Turning the wall clock of real processes, busy ones among them, and of one that is not CPython."""

from __future__ import annotations

import email.utils
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.places import vdso
from cluster.places.vdso import VdsoClock, VdsoError

S = 1_000_000_000

pytestmark = pytest.mark.skipif(not vdso.supported(), reason="only Linux on x86-64 can do this")

#: Three threads that read the clock all the time, so that some thread stands in the function more often than not.
BUSY = """
import sys, threading, time
def read():
    while True:
        time.time()
for _ in range(3):
    threading.Thread(target=read, daemon=True).start()
print("ready", flush=True)
for _ in sys.stdin:
    print(time.time_ns(), time.clock_gettime_ns(5), time.monotonic_ns(), flush=True)
"""


class Child:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def ahead_s(self) -> tuple[float, float, float]:
        """How far its wall clock, the coarse one and its monotonic one are ahead of ours."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        wall, coarse, monotonic = map(int, self.process.stdout.readline().split())
        now, steady = time.time_ns(), time.monotonic_ns()
        return (wall - now) / S, (coarse - now) / S, (monotonic - steady) / S


@pytest.fixture
def child() -> Iterator[Child]:
    child = Child()
    yield child
    child.process.kill()
    child.process.wait()
    for pipe in (child.process.stdin, child.process.stdout):
        assert pipe is not None
        pipe.close()


def about(seconds: float) -> object:
    return pytest.approx(seconds, abs=0.3)


def test_jumps_add_up_and_are_taken_back(child: Child) -> None:
    clock = VdsoClock(child.process.pid)
    assert child.ahead_s() == (about(0), about(0), about(0))
    clock.turn(3600 * S)
    assert child.ahead_s() == (about(3600), about(3600), about(0))
    clock.turn(-7200 * S)
    assert child.ahead_s() == (about(-3600), about(-3600), about(0))
    clock.right()
    clock.right()
    assert child.ahead_s() == (about(0), about(0), about(0))


def test_a_rate_counts_from_when_it_was_set(child: Child) -> None:
    clock = VdsoClock(child.process.pid)
    clock.turn(0, 5.0)
    time.sleep(0.5)
    ahead_s = child.ahead_s()[0]
    assert 1.9 <= ahead_s < 4
    clock.turn(0, 1.0)
    first = child.ahead_s()[0]
    time.sleep(0.2)
    assert child.ahead_s()[0] == pytest.approx(first, abs=0.1), "what it is ahead stays"
    clock.right()
    assert child.ahead_s()[0] == about(0)


def test_ours_and_the_machines_clock_stay_as_they_are(child: Child) -> None:
    before = time.time() - time.monotonic()
    VdsoClock(child.process.pid).turn(3600 * S)
    assert time.time() - time.monotonic() == pytest.approx(before, abs=0.5)


def test_busy_processes_survive_thousands_of_changes(child: Child) -> None:
    clock = VdsoClock(child.process.pid)
    for number in range(2000):
        clock.turn(S if number % 2 else -S)
    for number in range(100):
        clock.turn(0, 1.5 if number % 2 else 1.0)
    clock.right()
    assert child.process.poll() is None
    assert child.ahead_s()[0] == about(0)


def test_many_busy_processes_survive_being_patched() -> None:
    for _ in range(8):
        child = Child()
        try:
            VdsoClock(child.process.pid).turn(60 * S)
            assert child.ahead_s()[0] == about(60)
        finally:
            child.process.kill()
            child.process.communicate()


def test_c_functions_are_turned_too(child: Child) -> None:
    VdsoClock(child.process.pid)  # not patched by looking alone
    assert child.ahead_s()[0] == about(0)
    script = (
        "import ctypes, sys; libc = ctypes.CDLL(None); libc.time.restype = ctypes.c_long\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "tv = (ctypes.c_long * 2)(); libc.gettimeofday(tv, None); print(libc.time(None), tv[0], tv[1], flush=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    VdsoClock(process.pid).turn(3600 * S)
    out, _ = process.communicate("\n", timeout=10)
    seconds, tv_seconds, microseconds = map(int, out.split())
    assert seconds - time.time() == pytest.approx(3600, abs=2)
    assert tv_seconds - time.time() == pytest.approx(3600, abs=2)
    assert 0 <= microseconds < 1_000_000


def test_a_process_that_is_gone_is_named(child: Child) -> None:
    clock = VdsoClock(child.process.pid)
    child.process.kill()
    child.process.wait()
    with pytest.raises(VdsoError, match=str(child.process.pid)):
        clock.turn(S)
    with pytest.raises(VdsoError, match=str(child.process.pid)):
        VdsoClock(child.process.pid)


def test_a_second_controller_is_refused(child: Child) -> None:
    VdsoClock(child.process.pid).turn(S)
    with pytest.raises(VdsoError, match="patched already"):
        VdsoClock(child.process.pid)


def test_other_machines_are_refused(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(VdsoError, match="x86-64, not on aarch64"):
        VdsoClock(child.process.pid)


@pytest.mark.skipif(shutil.which("etcd") is None, reason="no etcd here (Debian: etcd-server)")
def test_a_program_in_go_is_turned(tmp_path: Path) -> None:
    ports = []
    for _ in range(2):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            ports.append(sock.getsockname()[1])
    client, peer = (f"http://127.0.0.1:{port}" for port in ports)
    argv = ["etcd", "--data-dir", str(tmp_path / "etcd"), "--listen-client-urls", client]
    argv += ["--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
    argv += ["--initial-cluster", f"default={peer}"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert _ahead_of(client) == pytest.approx(0, abs=2)
        clock = VdsoClock(process.pid)
        clock.turn(3600 * S)
        assert _ahead_of(client) == pytest.approx(3600, abs=2)
        for number in range(100):
            clock.turn(S if number % 2 else -S, 1.0 if number % 3 else 2.0)
        clock.right()
        assert _ahead_of(client) == pytest.approx(0, abs=2)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def _ahead_of(url: str) -> float:
    """What a server's Date header says, less our time."""
    deadline = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(f"{url}/version", timeout=3) as answer:
                return email.utils.parsedate_to_datetime(answer.headers["Date"]).timestamp() - time.time()
        except urllib.error.URLError:
            assert time.monotonic() < deadline, "etcd did not come up"
            time.sleep(0.1)
