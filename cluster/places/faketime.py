"""Wall clocks by libfaketime, for where a process' memory can't be written: steps only, and prepared from the start.

The library is that of the package `libfaketime` from PyPI, an extra. (Debian's breaks the waits of CPython.) It is
preloaded into the node, and reads by how much to lie from a file, at each call: 2 to 3 us. Programs that read the clock
past libc, as those in Go do, don't see it; then the fault is not shown to take effect, and is skipped.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from cluster.places.base import PlaceError

#: Starting an interpreter; on a loaded machine that takes longer.
TRIAL_BUDGET_S = 20.0
#: Says whether the library is there and harmless: the time is off by a day, and waits take no day.
_TRIAL = """
import sys, threading, time
sys.path[:] = []
began = time.monotonic()
time.sleep(0.01)
threading.Event().wait(0.01)
assert time.monotonic() - began < 60
print(time.time())
"""


def installed() -> bool:
    """Whether the package is there, which is cheap to know; it need not work (see `library`)."""
    return _file() is not None


def _file() -> Path | None:
    spec = importlib.util.find_spec("libfaketime")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "vendor" / "libfaketime" / "src" / "libfaketime.so.1"
    return path if path.is_file() else None


@functools.cache
def library() -> Path | None:
    """The library, if a Python here is fooled by it and still waits as it should."""
    path = _file()
    if path is None:
        return None
    environment = {**os.environ, **_environment(path), "FAKETIME": "-86400"}
    try:
        trial = subprocess.run(
            [sys.executable, "-I", "-c", _TRIAL],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TRIAL_BUDGET_S,
            check=True,
        )
        return path if abs(time.time() - 86_400 - float(trial.stdout)) < TRIAL_BUDGET_S + 60 else None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _environment(path: Path) -> dict[str, str]:
    preloaded = os.environ.get("LD_PRELOAD")
    return {
        "LD_PRELOAD": f"{path}:{preloaded}" if preloaded else str(path),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_RESET": "1",
    }


class FaketimeClock:
    """One node's wall clock, true until it is turned. `turn` and `right` are those of `cluster.places.vdso.VdsoClock`;
    they raise PlaceError."""

    def __init__(self, library: Path, file: Path) -> None:
        self._library = library
        self._file = file
        self._ahead_ns = 0
        self.right()

    @property
    def environment(self) -> Mapping[str, str]:
        """What the process has to be started with."""
        return {**_environment(self._library), "FAKETIME_TIMESTAMP_FILE": str(self._file)}

    def turn(self, step_ns: int, rate: float = 1.0) -> None:
        """`step_ns` is added to what the clock says now."""
        if rate != 1.0:
            raise PlaceError(
                "libfaketime moves a clock by steps; for rates the process' memory would have to be written"
            )
        self._set(self._ahead_ns + step_ns)

    def right(self) -> None:
        self._set(0)

    def _set(self, ahead_ns: int) -> None:
        draft = self._file.with_name(f"{self._file.name}.draft")
        try:
            draft.write_text(f"{ahead_ns / 1e9:+.6f}\n")
            draft.replace(self._file)
        except OSError as problem:
            raise PlaceError(f"the wall clock can't be turned: {self._file}: {problem.strerror}") from problem
        self._ahead_ns = ahead_ns
