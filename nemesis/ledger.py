"""The ledger: what was done to the cluster and not yet undone, for whoever has to heal it after the harness died.

JSON Lines, one entry before a fault is applied (`inject`) and one after it was undone (`healed`), each in the kernel
before `write` returns. A fault with the first and without the second may be in effect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """`detail` is all that is needed to undo the fault, beside its kind and targets."""

    fault: str
    kind: str
    action: Literal["inject", "healed"]
    targets: Sequence[str] = ()
    detail: Mapping[str, Any] = {}


def unfinished(path: Path) -> list[Entry]:
    """The faults that a ledger says may still be in effect. A last line that was not written to its end is left out:
    what it announces was not begun. Raises OSError, and ValueError for a file that is no ledger."""
    injected: dict[str, Entry] = {}
    text = path.read_bytes()
    for line in text[: text.rfind(b"\n") + 1].splitlines():
        entry = msgspec.json.decode(line, type=Entry)
        if entry.action == "inject":
            injected[entry.fault] = entry
        else:
            injected.pop(entry.fault, None)
    return list(injected.values())


class Ledger:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, entry: Entry) -> None:
        line = msgspec.json.encode(entry) + b"\n"
        while line:
            line = line[os.write(self._file, line) :]

    def close(self) -> None:
        os.close(self._file)
