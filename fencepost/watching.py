"""Checks a run while it lasts, and tells it when it has seen enough.

In virtual time that is done event by event, so that the same seed stops at the same event. Elsewhere a process of its
own reads the history as it grows (`checker.follow`): a run that is watched is as fast as one that is not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from checker.events import Event
from checker.online import Alarm, Monitor
from cluster.systems.base import python_here

#: What the process may take at the end for what it has not read yet.
END_BUDGET_S = 10.0

#: Hears of an alarm.
Found = Callable[[Alarm], None]

logger = logging.getLogger(__name__)


class InLine:
    """Looks at every event. One that fails changes no run: the check afterwards decides."""

    def __init__(self, monitor: Monitor, found: Found) -> None:
        self._monitor: Monitor | None = monitor
        self._found = found

    def observe(self, event: Event) -> None:
        if self._monitor is None:
            return
        try:
            alarm = self._monitor.observe(event)
        except Exception:
            logger.exception("the monitor failed; the run goes on without it")
            self._monitor = None
            return
        if alarm is not None:
            self._monitor = None
            self._found(alarm)

    def close(self) -> None:
        """Nothing is left to be done."""


class Aside:
    """Follows the history in another process, from the first event on."""

    def __init__(self, history: Path, found: Found, *, clock_error: float, tokens_span_keys: bool) -> None:
        self._found = found
        self._command = [str(history), "--clock-error", str(clock_error)]
        self._command += ["--tokens-span-keys"] if tokens_span_keys else []
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None

    def observe(self, event: Event) -> None:
        """The first one starts it: then there is a loop to tell."""
        if self._process is not None:
            return
        python = python_here()
        self._process = subprocess.Popen(
            [*python.command, "checker.follow", *self._command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **python.env},
            start_new_session=True,
        )
        loop = asyncio.get_running_loop()
        self._listener = threading.Thread(target=self._listen, args=(self._process, loop), daemon=True)
        self._listener.start()

    def _listen(self, process: subprocess.Popen[bytes], loop: asyncio.AbstractEventLoop) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        said = process.stdout.readline()
        if said:
            alarm = msgspec.json.decode(said, type=Alarm)
            with contextlib.suppress(RuntimeError):  # the run is over by now
                loop.call_soon_threadsafe(self._found, alarm)
        complaint = process.stderr.read().decode("utf-8", "replace").strip()
        if complaint:
            logger.error("the monitor failed; the run goes on without it: %s", complaint.splitlines()[-1])

    def close(self) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(END_BUDGET_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
