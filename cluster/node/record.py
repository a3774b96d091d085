"""What a node has applied, written down for whoever checks it from outside: `lockd serve --applied FILE`.

One JSON object a line, appended life after life. The first line of a life names the clock of its times; then come, in
their order, the terms that the node led, the requests with a tag that it put into its log, and the entries that it
applied, with their results.

Whatever the core wants done is written down before it is done: an entry before its proposal is sent, a result before
anybody is told of it, before a snapshot has it. It is handed to the kernel, not synced. So a process that is killed
takes with it only what nobody else can know, and at most the last line is torn; the next life begins on a new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from cluster.node.commands import Command, Result
from cluster.node.core import Applied
from cluster.node.steward import Proposed


class Began(msgspec.Struct, frozen=True, gc=False):
    """A life begins; times are those of the clock that is named so (see `machine_clock`)."""

    began: str
    at: int


class Leads(msgspec.Struct, frozen=True, gc=False):
    """The node was elected in this term."""

    leads: int


class Proposal(msgspec.Struct, frozen=True, gc=False):
    """The request with this tag is the entry at index `proposed` of `term`, if that is committed."""

    proposed: int
    term: int
    tag: str


class Entry(msgspec.Struct, frozen=True, gc=False):
    """An entry that was applied, and a time by which it was."""

    index: int
    term: int
    command: Command
    result: Result
    at: int


class Failed(msgspec.Struct, frozen=True, gc=False):
    """The node found that it can't go on, and why."""

    failed: str


class Line(msgspec.Struct, frozen=True, gc=False):
    """Any of these, for reading: it has the fields of one."""

    began: str | None = None
    leads: int | None = None
    proposed: int | None = None
    index: int | None = None
    term: int = 0
    tag: str = ""
    command: Command | None = None
    result: Result | None = None
    at: int | None = None
    failed: str | None = None


encode = msgspec.json.Encoder().encode_lines
decode = msgspec.json.Decoder(Line).decode


def machine_clock() -> str:
    """Names CLOCK_MONOTONIC of this process: two processes in which it has the same name read the same clock. Empty
    where that can't be told. A node's lease clock may be turned by a test; this one is the machine's."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    try:
        return f"{boot} {os.readlink('/proc/self/ns/time')}"
    except OSError:
        return boot  # a kernel from before there were several


class Record:
    """The one writer of a node's file. Every method raises OSError; the node has to stop then, for what it does next
    would be missing."""

    def __init__(self, path: Path) -> None:
        """A life begins."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        size = os.fstat(self._file).st_size
        torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        self._write((b"\n" if torn else b"") + encode([Began(machine_clock(), time.monotonic_ns())]))
        self._led = 0

    def add(self, proposed: Sequence[Proposed], applied: Sequence[Applied], led: int) -> None:
        """`led` is the term that the node leads; 0, none."""
        if led != self._led:
            self._led = led
            if led:
                self._write(encode([Leads(led)]))
        if proposed or applied:
            self._write(encode(lines(proposed, applied, time.monotonic_ns())))

    def fail(self, why: str) -> None:
        self._write(encode([Failed(why)]))

    def close(self) -> None:
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]


def lines(proposed: Iterable[Proposed], applied: Iterable[Applied], at: int) -> list[Proposal | Entry]:
    return [
        *(Proposal(one.index, one.term, one.tag) for one in proposed),
        *(Entry(one.index, one.term, one.command, one.result, at) for one in applied),
    ]
