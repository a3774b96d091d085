"""The calls of a history: invocations with their completions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from checker.history import NEMESIS, Event


class Ending(IntEnum):
    """How a call ended; the numbers are those of the page's data."""

    OK = 0
    FAIL = 1
    INFO = 2
    OPEN = 3


_ENDINGS = {"ok": Ending.OK, "fail": Ending.FAIL, "info": Ending.INFO}


@dataclass(slots=True)
class Call:
    invoke: Event
    completion: Event | None = None

    @property
    def ending(self) -> Ending:
        return Ending.OPEN if self.completion is None else _ENDINGS[self.completion.type]

    def asked(self, name: str) -> int | None:
        """A number that the invocation carries."""
        return _number(self.invoke, name)

    def answered(self, name: str) -> int | None:
        """A number that the completion carries."""
        return None if self.completion is None else _number(self.completion, name)


def pair(events: Iterable[Event]) -> list[Call]:
    """All calls in the order of their invocations.

    A picture is drawn of damaged histories too: a completion without its invocation is left out, and a process that
    invokes twice leaves its first call open.
    """
    calls: list[Call] = []
    running: dict[int | str, Call] = {}
    for event in events:
        if event.process == NEMESIS:
            continue
        if event.type == "invoke":
            call = running[event.process] = Call(event)
            calls.append(call)
        elif (call_ := running.pop(event.process, None)) is not None:
            call_.completion = event
    return calls


def _number(event: Event, name: str) -> int | None:
    value = (event.value or {}).get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
