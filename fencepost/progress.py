"""What is shown while a run goes on: live on a terminal, a plain line every few seconds elsewhere.

It is fed with the events of the history as they are recorded, and with the phases that have no event; so it shows
what a reader of the history would know, and can be tested with a list of events.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from checker.history import NEMESIS, Event

#: Rates are those of the last so many seconds.
RATE_WINDOW_S = 2.0
LINE_EVERY_S = 5.0
OUTCOMES = ("ok", "fail", "info")
_STYLES = {"ok": "green", "fail": "yellow", "info": "magenta"}


class Progress:
    """The state of a run as its events tell it. `clock` is in seconds; `limit_s` is the scenario's time limit."""

    def __init__(self, title: str, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.phase = "starting"
        self.counts = dict.fromkeys(OUTCOMES, 0)
        self.leader: str | None = None
        self.term: int | None = None
        self.faults: dict[str, str] = {}
        self._title = title
        self._limit_s = limit_s
        self._clock = clock
        self._began = clock()
        self._main_began: float | None = None
        self._recent: dict[str, deque[float]] = {outcome: deque() for outcome in OUTCOMES}

    def enter(self, phase: str) -> None:
        self.phase = phase
        if phase == "main":
            self._main_began = self._clock()

    def event(self, event: Event) -> None:
        if event.process == NEMESIS:
            self._nemesis(event)
        elif event.type != "invoke":
            self.counts[event.type] += 1
            self._recent[event.type].append(self._clock())

    def _nemesis(self, event: Event) -> None:
        value = event.value or {}
        if event.f == "leader":
            self.leader, self.term = value.get("node"), value.get("term")
        elif event.f == "phase":
            if value.get("name") != "end":
                self.enter(str(value.get("name")))
        elif (fault := value.get("fault")) is not None:
            if value.get("action") in ("skipped", "healed"):
                self.faults.pop(str(fault), None)
            else:
                targets = ", ".join(map(str, value.get("targets") or ()))
                self.faults[str(fault)] = f"{event.f} of {targets}" if targets else event.f

    def rate(self, outcome: str) -> float:
        """Completions per second, lately."""
        now, recent = self._clock(), self._recent[outcome]
        while recent and recent[0] < now - RATE_WINDOW_S:
            recent.popleft()
        window = min(RATE_WINDOW_S, max(now - (self._main_began or now), 0.1))
        return len(recent) / window

    @property
    def elapsed_s(self) -> float:
        """Of the main phase; of the whole run before it."""
        return self._clock() - (self._began if self._main_began is None else self._main_began)

    def line(self) -> str:
        """All of it in one plain line."""
        rates = ", ".join(f"{outcome} {self.counts[outcome]} ({self.rate(outcome):.0f}/s)" for outcome in OUTCOMES)
        return " · ".join(
            [
                self._elapsed_words(),
                self.phase,
                rates,
                f"leader {self._leader_words()}",
                f"faults: {self._fault_words()}",
            ]
        )

    def _elapsed_words(self) -> str:
        limit = f" of {self._limit_s:g} s" if self.phase == "main" else " s"
        return f"{self.elapsed_s:.1f}{limit}"

    def _leader_words(self) -> str:
        return "not known" if self.leader is None else f"{self.leader}, term {self.term}"

    def _fault_words(self) -> str:
        return "; ".join(list(self.faults.values())) or "none"

    def __rich__(self) -> RenderableType:
        done = 0.0 if self._main_began is None else min(self.elapsed_s, self._limit_s)
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(self._title, style="bold"),
            Text(self.phase, style="cyan"),
            ProgressBar(total=self._limit_s, completed=done, width=32),
            Text(self._elapsed_words()),
        )
        rates = Text()
        for outcome in OUTCOMES:
            rates.append(f"{outcome} ", style=_STYLES[outcome])
            rates.append(f"{self.counts[outcome]:,}", style="bold")
            rates.append(f"  {self.rate(outcome):,.0f}/s     ", style="dim")
        body = Table.grid(padding=(0, 2))
        body.add_row(Text("operations", style="dim"), rates)
        body.add_row(Text("leader", style="dim"), Text(self._leader_words()))
        faults = Text(self._fault_words(), style="red" if self.faults else "dim", overflow="fold")
        body.add_row(Text("faults", style="dim"), faults)
        whole = Table.grid()
        whole.add_row(head)
        whole.add_row(body)
        return whole


@contextmanager
def shown(progress: Progress, console: Console) -> Iterator[None]:
    """Show the progress until the context ends."""
    if console.is_terminal:
        with Live(progress, console=console, refresh_per_second=5, transient=True):
            yield
        return
    over = threading.Event()

    def lines() -> None:
        while not over.wait(LINE_EVERY_S):
            console.print(progress.line(), markup=False, highlight=False, soft_wrap=True)

    thread = threading.Thread(target=lines, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
