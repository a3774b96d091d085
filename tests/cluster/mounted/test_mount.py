"""The real thing: mounted by FUSE, written to by other processes, and gone afterwards whoever died."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest

from cluster.faulty.control import ControlFile, Order
from cluster.mounted import mount
from cluster.mounted.mount import Mount
from cluster.places import leftovers
from cluster.places.base import DiskMode, PlaceError
from cluster.places.ownership import Harness

pytestmark = pytest.mark.skipif(
    mount.unsupported() is not None and not os.environ.get("CI"), reason=str(mount.unsupported())
)


class Disk:
    def __init__(self, run: Path) -> None:
        self.home = run / "nodes" / "n1"
        self.data = self.home / "data"
        self.data.mkdir(parents=True)
        (self.data / "old").write_text("was there")
        self.control = ControlFile(self.home / "disk", create=True)
        self.mount = Mount(self.data, self.home / "disk")

    def order(self, mode: DiskMode | None, slow_ms: int = 0) -> None:
        self.control.give(Order(self.control.order().serial + 1, mode, slow_ms))


@pytest.fixture
async def disk(tmp_path: Path) -> AsyncIterator[Disk]:
    disk = Disk(tmp_path)
    await disk.mount.start(tmp_path)
    yield disk
    disk.order(None)
    await disk.mount.end()
    assert [one for one in mount.mounts() if one.run == tmp_path] == []


async def elsewhere(script: str, *arguments: object) -> asyncio.subprocess.Process:
    """What uses the file system is not this process, which could wait for itself."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )


async def says(script: str, *arguments: object) -> str:
    process = await elsewhere(script, *arguments)
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    return out.decode().strip()


async def test_it_is_a_file_system(disk: Disk) -> None:
    script = """
import mmap, os, sys
os.chdir(sys.argv[1])
assert open("old").read() == "was there"
os.mkdir("sub")
with open("sub/f", "wb") as file:
    file.write(b"12345678")
    file.flush()
    os.fsync(file.fileno())
with open("sub/f", "ab") as file:
    file.write(b"9")
os.truncate("sub/f", 8)
os.link("sub/f", "hard")
os.symlink("sub/f", "soft")
os.rename("hard", "renamed")
os.chmod("renamed", 0o600)
os.utime("renamed", ns=(1_000, 2_000))
status = os.stat("renamed")
assert (status.st_size, status.st_nlink, status.st_mode & 0o777, status.st_mtime_ns) == (8, 2, 0o600, 2_000)
assert open("soft").read() == "12345678" and os.readlink("soft") == "sub/f"
file = os.open("renamed", os.O_RDWR)
with mmap.mmap(file, 8, prot=mmap.PROT_READ) as mapped:
    os.pwrite(file, b"abc", 0)
    assert mapped[:8] == b"abc45678", mapped[:8]
os.unlink("renamed")
assert os.pread(file, 8, 0) == b"abc45678"
os.close(file)
assert os.statvfs(".").f_blocks > 0
print(sorted(os.listdir(".")), os.listdir("sub"))
os.unlink("sub/f"); os.unlink("soft"); os.rmdir("sub")
"""
    assert await says(script, disk.data) == "['old', 'soft', 'sub'] ['f']"
    assert sorted(path.name for path in (disk.home / mount.BEHIND).iterdir()) == ["old"]


WRITE_AND_SYNC = """
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
try:
    os.write(file, b"x" * 1000)
    os.fsync(file)
    print("synced")
except OSError as problem:
    print(problem.errno)
"""


@pytest.mark.parametrize(
    ("mode", "number"), [(DiskMode.FULL, errno.ENOSPC), (DiskMode.ERROR, errno.EIO)], ids=["full", "error"]
)
async def test_a_disk_is_full_or_fails(disk: Disk, mode: DiskMode, number: int) -> None:
    assert await says(WRITE_AND_SYNC, disk.data / "old") == "synced"
    disk.order(mode)
    assert await says(WRITE_AND_SYNC, disk.data / "old") == str(number)
    report = disk.control.report()
    assert (report.serial, report.hits) == (disk.control.order().serial, 1)
    disk.order(None)
    assert await says(WRITE_AND_SYNC, disk.data / "old") == "synced"


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


async def test_a_disk_stalls_and_who_is_killed_can_die(disk: Disk) -> None:
    disk.order(DiskMode.STALL)
    waiting = await elsewhere(WRITE_AND_SYNC, disk.data / "a")
    doomed = await elsewhere(WRITE_AND_SYNC, disk.data / "old")
    await until(lambda: disk.control.report().hits >= 2)
    assert disk.control.report().waiting
    doomed.kill()
    assert await asyncio.wait_for(doomed.wait(), 10) == -signal.SIGKILL
    assert waiting.returncode is None
    disk.order(None)
    out, _ = await asyncio.wait_for(waiting.communicate(), 10)
    assert out == b"synced\n"
    assert not disk.control.report().waiting


async def test_what_was_not_synced_is_lost(disk: Disk) -> None:
    script = """
import os, sys, time
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(file, b"s" * 100)
os.fsync(file)
os.write(file, b"u" * 100)
print("written", flush=True)
time.sleep(60)
"""
    disk.order(DiskMode.VOLATILE, 10)
    writer = await elsewhere(script, disk.data / "log")
    assert writer.stdout is not None
    assert await asyncio.wait_for(writer.stdout.readline(), 20) == b"written\n"
    assert disk.control.report().unsynced_bytes == 100
    writer.kill()
    await writer.wait()
    lost = await disk.mount.lose()
    assert disk.control.report().unsynced_bytes == lost
    assert await says("import sys; print(open(sys.argv[1]).read())", disk.data / "log") == "s" * 100 + "u" * (
        100 - lost
    )


async def test_what_was_not_synced_when_the_fault_ends_stays(disk: Disk) -> None:
    disk.order(DiskMode.VOLATILE)
    assert await says("import sys; print(open(sys.argv[1], 'w').write('12345'))", disk.data / "f") == "5"
    disk.order(None)
    assert await says(WRITE_AND_SYNC, disk.data / "old") == "synced"
    assert await disk.mount.lose() == 0
    assert (disk.home / mount.BEHIND / "f").read_text() == "12345"


async def test_the_files_are_in_their_place_in_the_end(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    await disk.mount.start(tmp_path)
    assert await says(WRITE_AND_SYNC, disk.data / "new") == "synced"
    await disk.mount.end()
    await disk.mount.end()
    assert sorted(path.name for path in disk.data.iterdir()) == ["new", "old"]
    assert not (disk.home / mount.BEHIND).exists()
    with pytest.raises(PlaceError, match="not mounted"):
        await disk.mount.lose()


async def test_what_can_not_be_mounted_says_so(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.mount = Mount(disk.data, disk.home / "no such file")
    with pytest.raises(PlaceError, match=r"could not be mounted: .*no such file"):
        await disk.mount.start(tmp_path)
    assert (disk.data / "old").read_text() == "was there"


HARNESS = """
import asyncio, sys
from pathlib import Path
from cluster.mounted.mount import Mount
async def main():
    home = Path(sys.argv[1]) / "nodes" / "n1"
    mount = Mount(home / "data", home / "disk")
    await mount.start(Path(sys.argv[1]))
    print(mount._process.pid, flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def harness(run: Path) -> tuple[asyncio.subprocess.Process, psutil.Process]:
    """A process that has mounted something, and that of the file system."""
    process = await elsewhere(HARNESS, run)
    assert process.stdout is not None
    return process, psutil.Process(int(await asyncio.wait_for(process.stdout.readline(), 30)))


async def test_nothing_is_mounted_any_more_when_the_harness_is_killed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    process, _ = await harness(tmp_path)
    process.kill()
    await process.wait()
    await until(lambda: not (disk.home / mount.BEHIND).exists())
    assert (disk.data / "old").read_text() == "was there"
    assert [one for one in mount.mounts() if one.run == tmp_path] == []


async def test_a_dead_file_system_is_found_and_removed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    process, files = await harness(tmp_path)
    files.kill()
    process.kill()
    await process.wait()
    with pytest.raises(OSError, match="not connected"):
        disk.data.iterdir().__next__()
    found = [one for one in leftovers.find(tmp_path)[0] if one.folder == tmp_path and "mount" in one.what]
    assert [(one.what, one.alive()) for one in found] == [("1 mount", False)]
    assert isinstance(found[0].harness, Harness)
    assert found[0].remove() == []
    assert (disk.data / "old").read_text() == "was there"
    assert not [one for one in leftovers.find(tmp_path)[0] if one.folder == tmp_path]


@pytest.mark.skipif(shutil.which("etcd") is None and not os.environ.get("CI"), reason="no etcd here")
async def test_etcd_waits_for_a_stalled_disk_and_goes_on(disk: Disk) -> None:
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        b.bind(("127.0.0.1", 0))
        clients, peers = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in (a, b))
    urls = ("--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", peers)
    more = ("--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}")
    etcd = await asyncio.create_subprocess_exec(
        *("etcd", "--data-dir", str(disk.data / "etcd"), *urls, *more),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    put = """
import sys, urllib.request
try:
    pair = b'{"key": "YQ==", "value": "Yg=="}'
    answer = urllib.request.urlopen(sys.argv[1] + "/v3/kv/put", pair, timeout=float(sys.argv[2])).read()
    print("put" if b"revision" in answer else "strange")
except OSError as problem:
    print("no answer")
"""
    try:
        deadline = time.monotonic() + 30
        while await says(put, clients, 2) != "put":
            assert time.monotonic() < deadline
        disk.order(DiskMode.STALL)
        assert await says(put, clients, 1) == "no answer"
        assert disk.control.report().waiting
        disk.order(None)
        assert await says(put, clients, 20) == "put"
    finally:
        disk.order(None)
        etcd.kill()
        await etcd.wait()
