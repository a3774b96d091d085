"""A node's clock that can be turned from outside, for tests of what happens when clocks are wrong.

In production a node runs on `time.monotonic_ns`. Started with `--clock-file` it runs on a clock whose offset and rate
are in that file. The testbed writes the file, nodes map it into memory and look at it at every reading, which costs
half a microsecond; no signal, no system call.

The file holds one record: the machine's monotonic time at which it was written (the anchor), what this clock said then,
its rate since, and a CRC. One `pwrite` replaces it. A reader that catches it half-way sees a wrong CRC and looks again.

Like every monotonic clock it never goes back: a reader remembers what it said last. So a step back lets the clock stand
still until time has caught up, and a step forward is for good: to undo it would be a step back.

The anchor is CLOCK_MONOTONIC, the same for all processes of a machine, in containers too.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_BODY = struct.Struct("<qqd")
_CRC = struct.Struct("<I")
RECORD_BYTES = _BODY.size + _CRC.size


class ClockFileError(Exception):
    """The file can't be used; the message says why and what would do."""


class Setting(NamedTuple):
    """At `anchor_ns` of the machine's clock this clock said `says_ns`; since then it runs at `rate`."""

    anchor_ns: int
    says_ns: int
    rate: float

    def at(self, real_ns: int) -> int:
        since_ns = real_ns - self.anchor_ns
        return self.says_ns + (since_ns if self.rate == 1.0 else int(since_ns * self.rate))

    def pack(self) -> bytes:
        body = _BODY.pack(*self)
        return body + _CRC.pack(zlib.crc32(body))

    @classmethod
    def unpack(cls, record: bytes) -> Setting | None:
        """None: this is no record, or one that is being replaced."""
        body = record[: _BODY.size]
        if len(record) != RECORD_BYTES or _CRC.pack(zlib.crc32(body)) != record[_BODY.size :]:
            return None
        return cls(*_BODY.unpack(body))


class FileClock:
    """The reading side: call it for nanoseconds. Raises ClockFileError when there is no such file."""

    def __init__(self, path: Path, real: Callable[[], int] = time.monotonic_ns) -> None:
        self._real = real
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), RECORD_BYTES, prot=mmap.PROT_READ)
        except (OSError, ValueError) as problem:
            raise ClockFileError(f"clock file {path}: {problem}; the testbed makes it before the node") from problem
        self._record = b""
        self._setting = Setting(0, 0, 1.0)
        self._last_ns = 0

    def __call__(self) -> int:
        record = self._map[:RECORD_BYTES]
        if record != self._record:
            self._read(record)
        self._last_ns = max(self._last_ns, self._setting.at(self._real()))
        return self._last_ns

    def _read(self, record: bytes) -> None:
        # Replacing takes a microsecond; a file that stays broken leaves the clock as it was.
        for _ in range(1000):
            setting = Setting.unpack(record)
            if setting is not None:
                self._record, self._setting = record, setting
                return
            record = self._map[:RECORD_BYTES]


class ControlledClock:
    """The writing side: makes the file, with a clock that is right."""

    def __init__(self, path: Path, real: Callable[[], int] = time.monotonic_ns) -> None:
        self._real = real
        now = real()
        self.setting = Setting(now, now, 1.0)
        self._high_ns = now  # the most that it has said
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        os.pwrite(self._file, self.setting.pack(), 0)

    def says(self) -> int:
        """What a reader reads now, unless it stands still."""
        return self.setting.at(self._real())

    def turn(self, step_ns: int, rate: float) -> None:
        """Add `step_ns` to what the clock says, and let it run at `rate` from now on."""
        now = self._real()
        says = self.setting.at(now)
        self._high_ns = max(self._high_ns, says)
        self._set(Setting(now, says + step_ns, rate))

    def right(self) -> None:
        """Run at the true rate from now on, and no longer stand still."""
        now = self._real()
        self._set(Setting(now, max(self._high_ns, self.setting.at(now)), 1.0))

    def _set(self, setting: Setting) -> None:
        self.setting = setting
        os.pwrite(self._file, setting.pack(), 0)

    def close(self) -> None:
        os.close(self._file)
