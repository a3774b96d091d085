"""A disk that fails on demand, under the real storage."""

from __future__ import annotations

import errno
import random
import threading
import time
from pathlib import Path

import pytest

from cluster.faulty.control import ControlFile, Order, Report
from cluster.faulty.files import FaultyFiles
from cluster.node.commands import Noop
from cluster.node.messages import Batch, HardState
from cluster.node.raftlog import Entry
from cluster.node.storage import Storage
from cluster.places.base import DiskMode


class Disk:
    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder = folder
        self.control = ControlFile(folder / "control", create=True)
        self._draws = random.Random(seed)
        self._serial = 0

    def open(self) -> Storage:
        return Storage(self.folder / "data", "n1", FaultyFiles(ControlFile(self.folder / "control"), self._draws))

    def order(self, mode: DiskMode | None, slow_ms: int = 0) -> None:
        self._serial += 1
        self.control.give(Order(self._serial, mode, slow_ms))


def batch(index: int) -> Batch:
    return Batch(HardState(1, None), (Entry(index, 1, Noop()),))


def found(folder: Path) -> int:
    storage = Storage(folder / "data", "n1")
    try:
        return len(storage.found.entries)
    finally:
        storage.close()


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_without_an_order_it_is_a_disk(disk: Disk) -> None:
    storage = disk.open()
    storage.write([batch(1), batch(2)])
    storage.close()
    assert found(disk.folder) == 2
    assert disk.control.report() == Report()


@pytest.mark.parametrize(("mode", "number"), [(DiskMode.FULL, errno.ENOSPC), (DiskMode.ERROR, errno.EIO)])
def test_a_write_that_fails_is_counted_and_what_was_there_stays(disk: Disk, mode: DiskMode, number: int) -> None:
    storage = disk.open()
    storage.write([batch(1)])
    disk.order(mode)
    with pytest.raises(OSError) as failure:  # noqa: PT011 (its number is looked at)
        storage.write([batch(2)])
    assert failure.value.errno == number
    assert disk.control.report() == Report(1, 1, 0)
    disk.order(None)
    storage.close()
    assert found(disk.folder) == 1


def test_a_stalled_write_waits_and_is_seen_to(disk: Disk) -> None:
    storage = disk.open()
    disk.order(DiskMode.STALL)
    writer = threading.Thread(target=storage.write, args=([batch(1)],))
    writer.start()
    deadline = time.monotonic() + 5
    while not disk.control.report().waiting:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    writer.join(0.1)
    assert writer.is_alive()
    disk.order(None)
    writer.join(5)
    assert not writer.is_alive()
    assert disk.control.report() == Report(1, 1, 0, False)
    storage.close()
    assert found(disk.folder) == 1


def test_what_was_synced_on_a_volatile_disk_is_there(disk: Disk) -> None:
    storage = disk.open()
    disk.order(DiskMode.VOLATILE, 1)
    for index in range(1, 20):
        storage.write([batch(index)])
    assert found_beside(disk) == 19
    assert disk.control.report().unsynced_bytes == 0
    storage.close()


class Killed(BaseException):
    pass


@pytest.mark.parametrize("seed", range(20))
def test_a_kill_before_the_sync_ends_loses_it_or_tears_it_and_nothing_before(tmp_path: Path, seed: int) -> None:
    disk = Disk(tmp_path, seed)
    storage = disk.open()
    storage.write([batch(1)])
    disk.order(DiskMode.VOLATILE, 1)
    kill_in_sync(storage)
    assert found_beside(disk) in (1, 2)


def kill_in_sync(storage: Storage) -> None:
    """Write entry 2, and end in the middle of its sync."""

    def killed(seconds: float) -> None:
        raise Killed(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cluster.faulty.files.time.sleep", killed)
        with pytest.raises(Killed):
            storage.write([batch(2)])


def test_every_fate_of_an_unsynced_write_comes_up(tmp_path: Path) -> None:
    counts: set[tuple[int, bool]] = set()
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        disk = Disk(folder, seed)
        storage = disk.open()
        storage.write([batch(1)])
        disk.order(DiskMode.VOLATILE, 1)
        kill_in_sync(storage)
        data = (folder / "data" / "log").read_bytes()
        (folder / "copy").mkdir()
        (folder / "copy" / "log").write_bytes(data)
        copy = Storage(folder / "copy", "n1")
        counts.add((len(copy.found.entries), copy.torn_bytes > 0))
        copy.close()
    assert counts >= {(1, False), (1, True), (2, False)}, "lost, torn, and there after all"


def found_beside(disk: Disk) -> int:
    """What a node would find after a kill now; the first storage still has its lock."""
    copy = disk.folder / "copy"
    copy.mkdir()
    (copy / "log").write_bytes((disk.folder / "data" / "log").read_bytes())
    storage = Storage(copy, "n1")
    try:
        return len(storage.found.entries)
    finally:
        storage.close()


def test_a_torn_record_of_the_control_file_is_no_order(disk: Disk) -> None:
    disk.order(DiskMode.ERROR)
    with (disk.folder / "control").open("r+b") as file:
        file.write(b"\x07")
    assert disk.control.order() == Order()
