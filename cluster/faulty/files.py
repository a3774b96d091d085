"""A disk that stalls, is full, fails, or forgets what was not synced.

The last one. Killing a process loses nothing that it has written: the kernel has it. So while the disk is volatile,
writes stay in this process' memory until their file is synced, and a kill before that loses them, as a power failure
does. To make that likely a sync takes its time; and where in it the bytes come to the disk is drawn: at its end, at its
beginning, or a first part of them at the beginning, cut anywhere, and the rest at the end. So a kill in the middle of a
sync finds nothing, everything, or a torn write.

Names are not forgotten: a rename is on disk at once.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections import defaultdict
from dataclasses import dataclass

from cluster.faulty.control import ControlFile, Order, Report
from cluster.node.files import Files
from cluster.places.base import DiskMode

#: How often a call that is kept waiting looks whether it may go on.
STALL_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes


class FaultyFiles(Files):
    def __init__(self, control: ControlFile, draws: random.Random) -> None:
        self._control = control
        self._draws = draws
        self._pending: defaultdict[int, list[_Write]] = defaultdict(list)
        self._report = Report()

    def write(self, file: int, data: bytes, offset: int) -> None:
        order = self._obey(DiskMode.STALL)
        if order.mode in (DiskMode.FULL, DiskMode.ERROR):
            self._hit(order)
            raise _error(errno.ENOSPC if order.mode is DiskMode.FULL else errno.EIO)
        if order.mode is DiskMode.VOLATILE:
            self._pending[file].append(_Write(offset, data))
            self._hit(order)
            return
        self._flush(file)
        super().write(file, data, offset)

    def sync(self, file: int) -> None:
        order = self._obey(DiskMode.STALL)
        if order.mode is DiskMode.ERROR:
            self._hit(order)
            raise _error(errno.EIO)
        if order.mode is DiskMode.VOLATILE:
            kept = sum(len(write.data) for write in self._pending[file])
            early = self._draws.choice((0, self._draws.randrange(kept + 1), kept))
            self._flush(file, early)
            self._hit(order)
            time.sleep(order.slow_ms / 1000)
        self._flush(file)
        super().sync(file)
        if order.mode is DiskMode.VOLATILE:
            self._hit(order)

    def close(self, file: int) -> None:
        self._flush(file)
        super().close(file)

    def _obey(self, waits: DiskMode) -> Order:
        """The order that holds now, once it lets calls through."""
        order = self._control.order()
        while order.mode is waits:
            self._hit(order, waiting=True)
            while (now := self._control.order()) == order:
                time.sleep(STALL_POLL_S)
            order = now
        if self._report.waiting:
            self._report = self._report._replace(waiting=False)
            self._control.tell(self._report)
        return order

    def _hit(self, order: Order, *, waiting: bool = False) -> None:
        hits = self._report.hits + 1 if self._report.serial == order.serial else 1
        unsynced_bytes = sum(len(write.data) for writes in self._pending.values() for write in writes)
        self._report = Report(order.serial, hits, unsynced_bytes, waiting)
        self._control.tell(self._report)

    def _flush(self, file: int, bytes_max: int | None = None) -> None:
        """Bring what is kept to the disk, or the first so many bytes of it."""
        kept = self._pending.pop(file, [])
        left = sum(len(write.data) for write in kept) if bytes_max is None else bytes_max
        rest: list[_Write] = []
        for write in kept:
            now = write.data[:left]
            if now:
                super().write(file, now, write.offset)
            if len(now) < len(write.data):
                rest.append(_Write(write.offset + len(now), write.data[len(now) :]))
            left -= len(now)
        if rest:
            self._pending[file] = rest


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
