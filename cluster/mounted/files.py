"""The file system: everything goes to a folder behind it, and fails as a control file says.

Rules.

1. Names are on disk at once: creating, renaming and removing files can't be lost. Contents can, until they are synced.
2. While the disk stalls, whoever writes or syncs waits, and whoever makes names does not; a process that is killed
   meanwhile gets its answer, as it could not end otherwise.
3. Losing what was not synced is an order of its own (`lose`): a file system outlives the process that wrote, and can't
   tell its death from a close.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cluster.faulty.control import ControlFile, Order, Report
from cluster.mounted.unsynced import Unsynced
from cluster.places.base import DiskMode

#: How often a call that is kept waiting looks whether it may go on.
STALL_POLL_S = 0.01

_KILLED = 1 << (signal.SIGKILL - 1)


class FaultyFolder:
    """What FUSE asks of a file system: paths begin with a slash, file handles are descriptors of ours, and OSError says
    what went wrong. `caller` tells the thread that asks, where a call may have to wait."""

    use_ns = True

    def __init__(self, folder: Path, control: ControlFile, unsynced: Unsynced, caller: Callable[[], int]) -> None:
        self._folder = str(folder)
        self._control = control
        self._unsynced = unsynced
        self._caller = caller
        self._report = Report()
        self._waiting = 0
        self._lock = threading.Lock()

    def lose(self) -> int:
        """What was written and not synced is gone; how many bytes that was."""
        lost = self._unsynced.lose()
        with self._lock:
            self._report = self._report._replace(serial=self._control.order().serial, unsynced_bytes=lost)
            self._control.tell(self._report)
        return lost

    # ---- files

    def create(self, path: str, mode: int) -> int:
        self._find_room()
        return os.open(self._real(path), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, mode)

    def open(self, path: str, flags: int) -> int:
        # The kernel says where each piece goes, and a file that is written must be read, too, to undo that.
        flags &= ~(os.O_APPEND | os.O_CREAT | os.O_EXCL | getattr(os, "O_DIRECT", 0))
        if flags & os.O_ACCMODE == os.O_WRONLY:
            flags = flags & ~os.O_ACCMODE | os.O_RDWR
        truncates = bool(flags & os.O_TRUNC)
        file = os.open(self._real(path), flags & ~os.O_TRUNC | os.O_CLOEXEC)
        if truncates:
            self._truncate(file, 0)
        return file

    def read(self, path: str, size: int, offset: int, file: int) -> bytes:
        return os.pread(file, size, offset)

    def write(self, path: str, data: bytes, offset: int, file: int) -> int:
        order = self._obey()
        if order.mode in (DiskMode.FULL, DiskMode.ERROR):
            self._tell(order, hits=1)
            raise _error(errno.ENOSPC if order.mode is DiskMode.FULL else errno.EIO)
        if order.mode is DiskMode.VOLATILE:
            written = self._unsynced.write(file, data, offset)
            self._tell(order, hits=1)
            return written
        return os.pwrite(file, data, offset)

    def truncate(self, path: str, length: int, file: int | None = None) -> int:
        opened = os.open(self._real(path), os.O_RDWR | os.O_CLOEXEC) if file is None else file
        try:
            self._truncate(opened, length)
        finally:
            if file is None:
                os.close(opened)
        return 0

    def _truncate(self, file: int, length: int) -> None:
        if self._obey().mode is DiskMode.VOLATILE:
            self._unsynced.truncate(file, length)
        else:
            os.ftruncate(file, length)

    def fsync(self, path: str, datasync: int, file: int) -> int:
        order = self._obey()
        if order.mode is DiskMode.ERROR:
            self._tell(order, hits=1)
            raise _error(errno.EIO)
        if order.mode is DiskMode.VOLATILE:
            self._tell(order, hits=1)
            self._sleep(order.slow_ms / 1000)
        os.fdatasync(file)
        self._unsynced.synced(file)
        if order.mode is DiskMode.VOLATILE:
            self._tell(order, hits=1)
        return 0

    def flush(self, path: str, file: int) -> int:
        return 0

    def release(self, path: str, file: int) -> int:
        os.close(file)
        return 0

    # ---- names

    def getattr(self, path: str, file: int | None = None) -> dict[str, Any]:
        status = os.lstat(self._real(path)) if file is None else os.fstat(file)
        whole = {name: getattr(status, name) for name in ("st_mode", "st_nlink", "st_uid", "st_gid", "st_size")}
        times = {name: getattr(status, f"{name}_ns") for name in ("st_atime", "st_mtime", "st_ctime")}
        return {**whole, **times, "st_blocks": status.st_blocks, "st_ino": status.st_ino}

    def readdir(self, path: str, file: int) -> Iterable[str]:
        return [".", "..", *os.listdir(self._real(path))]

    def mkdir(self, path: str, mode: int) -> int:
        self._find_room()
        os.mkdir(self._real(path), mode)
        return 0

    def rmdir(self, path: str) -> int:
        os.rmdir(self._real(path))
        return 0

    def unlink(self, path: str) -> int:
        os.unlink(self._real(path))
        return 0

    def rename(self, old: str, new: str) -> int:
        os.rename(self._real(old), self._real(new))
        return 0

    def link(self, target: str, source: str) -> int:
        os.link(self._real(source), self._real(target))
        return 0

    def symlink(self, target: str, source: str) -> int:
        os.symlink(source, self._real(target))
        return 0

    def readlink(self, path: str) -> str:
        return os.readlink(self._real(path))

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._real(path), mode)
        return 0

    def chown(self, path: str, uid: int, gid: int) -> int:
        os.chown(self._real(path), uid, gid, follow_symlinks=False)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> int:
        os.utime(self._real(path), ns=times) if times else os.utime(self._real(path))
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        says = os.statvfs(self._real(path))
        names = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_namemax")
        return {name: getattr(says, name) for name in names}

    # ---- the control file

    def _find_room(self) -> None:
        """There is no room for another name. (It need not wait: the kernel has locked the folder for it, and nobody
        else would get at a file there, nor could be killed.)"""
        order = self._control.order()
        if order.mode is DiskMode.FULL:
            self._tell(order, hits=1)
            raise _error(errno.ENOSPC)

    def _obey(self) -> Order:
        """The order that holds now, once it lets calls through."""
        order = self._control.order()
        if order.mode is not DiskMode.STALL:
            if order.mode is not DiskMode.VOLATILE and self._unsynced.total:
                self._unsynced.keep()  # the fault is over, and nobody died of it
            return order
        caller = self._caller()
        self._tell(order, hits=1, waits=1)
        try:
            while (now := self._control.order()).mode is DiskMode.STALL:
                _let_die(caller)
                time.sleep(STALL_POLL_S)
        finally:
            self._tell(self._control.order(), hits=0, waits=-1)
        return now

    def _sleep(self, seconds: float) -> None:
        caller = self._caller()
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            _let_die(caller)
            time.sleep(min(STALL_POLL_S, left))

    def _tell(self, order: Order, *, hits: int, waits: int = 0) -> None:
        with self._lock:
            self._waiting += waits
            before = self._report.hits if self._report.serial == order.serial else 0
            self._report = Report(order.serial, before + hits, self._unsynced.total, self._waiting > 0)
            self._control.tell(self._report)

    def _real(self, path: str) -> str:
        return self._folder + path


def _let_die(thread: int) -> None:
    """A thread that was killed waits for its answer all the same. Raises OSError for it."""
    try:
        with open(f"/proc/{thread}/status") as status:
            pending = next((line.split()[1] for line in status if line.startswith("SigPnd:")), "0")
    except OSError:
        pending = "0"
    if int(pending, 16) & _KILLED:
        raise _error(errno.EINTR)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
