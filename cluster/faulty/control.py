"""The file by which a testbed and a node's disk talk: what the disk is to do, and what came of it.

Two records, each written by one side alone with a single `pwrite`, each with a CRC, so that a reader that catches one
half-way looks again. The order carries a serial number, and the report the number of the order that it is about.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from cluster.places.base import DiskMode

_ORDER = struct.Struct("<III")
_REPORT = struct.Struct("<IQQI")
_CRC = struct.Struct("<I")
_REPORT_AT = 64

_MODES: tuple[DiskMode | None, ...] = (None, *DiskMode)

#: A record that is being replaced is whole again within microseconds.
_ATTEMPTS_MAX = 1000


class Order(NamedTuple):
    """`mode` None: work. `slow_ms`: how long a sync takes while the disk is volatile."""

    serial: int = 0
    mode: DiskMode | None = None
    slow_ms: int = 0


class Report(NamedTuple):
    """About order `serial`: the calls that met it, the bytes that were written and not synced, and whether a call is
    being kept waiting."""

    serial: int = 0
    hits: int = 0
    unsynced_bytes: int = 0
    waiting: bool = False


class ControlFile:
    """Either side's view. Raises OSError when the file can't be opened."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644)

    def order(self) -> Order:
        serial, mode, slow_ms = self._read(_ORDER, 0)
        return Order(serial, _MODES[mode], slow_ms)

    def give(self, order: Order) -> None:
        self._write(_ORDER.pack(order.serial, _MODES.index(order.mode), order.slow_ms), 0)

    def report(self) -> Report:
        serial, hits, unsynced_bytes, waiting = self._read(_REPORT, _REPORT_AT)
        return Report(serial, hits, unsynced_bytes, bool(waiting))

    def tell(self, report: Report) -> None:
        self._write(_REPORT.pack(*report), _REPORT_AT)

    def close(self) -> None:
        os.close(self._file)

    def _read(self, layout: struct.Struct, offset: int) -> tuple[int, ...]:
        """Zeros, if there is no record yet or it stays broken."""
        for _ in range(_ATTEMPTS_MAX):
            record = os.pread(self._file, layout.size + _CRC.size, offset)
            body = record[: layout.size]
            if not record.strip(b"\0"):
                break
            if _CRC.pack(zlib.crc32(body)) == record[layout.size :]:
                return layout.unpack(body)
        return (0,) * len(layout.unpack(bytes(layout.size)))

    def _write(self, body: bytes, offset: int) -> None:
        os.pwrite(self._file, body + _CRC.pack(zlib.crc32(body)), offset)
