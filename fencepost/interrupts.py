"""Ctrl-C, SIGTERM and SIGHUP during a run, and the watchdog over all of it.

The first signal ends the load: the run heals, collects, and analyses what there is. The second asks to heal and leave
at once, without analysis. A third, and a run that is stuck beyond all its budgets, end the process on the spot: the
place's own guard then ends the nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from fencepost.exits import Exit

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

logger = logging.getLogger(__name__)


class Interrupts:
    """The signals that a run got. `stop` is set by the first; the second cancels the run's body.

    `enough` says why the run itself saw no sense in going on.
    """

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.first: str | None = None
        self.enough: str | None = None
        self.hurried = False
        self._body: asyncio.Task[None] | None = None

    async def over(self, body: Coroutine[Any, Any, None]) -> None:
        """Run the body and handle signals meanwhile; on the main thread."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) for number in SIGNALS}
        self._body = asyncio.create_task(body)
        for number in SIGNALS:
            loop.add_signal_handler(number, self._got, number)
        try:
            await self._body
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def suffice(self, reason: str) -> None:
        """End the load as a signal does, for a reason of the run's own."""
        if self.enough is None:
            self.enough = reason
            logger.warning("%s: the load ends, faults are healed, what there is will be analysed", reason)
            self.stop.set()

    def _got(self, number: signal.Signals) -> None:
        name = number.name
        if self.first is None:
            self.first = name
            logger.warning("%s: the load ends, faults are healed, what there is will be analysed", name)
            print(f"\n{name}: stopping the load, healing, analysing what there is; once more to leave", file=sys.stderr)
            self.stop.set()
        elif not self.hurried:
            self.hurried = True
            logger.warning("%s again: heal and leave", name)
            print(f"\n{name}: healing and leaving", file=sys.stderr)
            if self._body is not None:
                self._body.cancel()
        else:
            os._exit(Exit.HARNESS)


@contextlib.contextmanager
def watchdog(budget_s: float, log: Path) -> Iterator[None]:
    """End the process if the context lasts longer than `budget_s` seconds, after writing to `log` where it hangs.

    A thread, since what hangs may be the event loop itself.
    """

    def bite() -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"watchdog: the run went {budget_s:.0f} s beyond its budget of time; it was here:\n")
            file.flush()
            faulthandler.dump_traceback(file)
        message = f"the harness failed: the run hung for more than {budget_s:.0f} s; where: {log}\n"
        os.write(sys.stderr.fileno(), message.encode())
        os._exit(Exit.HARNESS)

    timer = threading.Timer(budget_s, bite)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Outside of the phases that handle signals themselves, SIGTERM and SIGHUP end a run as Ctrl-C does."""

    def interrupt(number: int, frame: object) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
