"""The events that a history is made of, and the one that writes them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec

EventType = Literal["invoke", "ok", "fail", "info"]

NEMESIS = "nemesis"


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a history.

    `process` is a client's number, or a name ("nemesis") for events that are no client's. `node` is the node that
    the client is pinned to, where the recorder knows it; checkers use it for words, never for a decision.
    """

    index: int
    time: int
    process: int | str
    type: EventType
    f: str
    key: str | None = None
    value: dict[str, Any] | None = None
    error: str | None = None
    node: str | None = None


class HistoryError(ValueError):
    """The file or the list of events is no history. `line` counts from 1 and is None where no line is to blame."""

    def __init__(self, problem: str, *, line: int | None = None, path: str | None = None) -> None:
        self.problem = problem
        self.line = line
        self.path = path
        where = ", ".join([*([path] if path else []), *([f"line {line}"] if line else [])])
        super().__init__(f"{where}: {problem}" if where else problem)


class Recorder:
    """Numbers the events of a run and keeps none; `clock` gives nanoseconds since the start of the run and must not go
    back."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._next = 0

    def append(
        self,
        process: int | str,
        type: EventType,
        f: str,
        *,
        key: str | None = None,
        value: dict[str, Any] | None = None,
        error: str | None = None,
        node: str | None = None,
    ) -> Event:
        """The next event."""
        event = Event(self._next, self._clock(), process, type, f, key, value, error, node)
        self._next += 1
        return event

    def close(self) -> None:
        """Nothing is open."""


class HistoryWriter(Recorder):
    """Appends events to a history file; the one writer that orders all events of a run.

    Every event reaches the kernel before `append` returns, so a harness that is killed leaves a history that can
    be checked.
    """

    def __init__(self, path: Path, clock: Callable[[], int]) -> None:
        super().__init__(clock)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._encoder = msgspec.json.Encoder()

    def append(
        self,
        process: int | str,
        type: EventType,
        f: str,
        *,
        key: str | None = None,
        value: dict[str, Any] | None = None,
        error: str | None = None,
        node: str | None = None,
    ) -> Event:
        """Record one event and return it."""
        event = super().append(process, type, f, key=key, value=value, error=error, node=node)
        line = self._encoder.encode(event) + b"\n"
        while line:
            line = line[os.write(self._file, line) :]
        return event

    def close(self) -> None:
        os.close(self._file)
