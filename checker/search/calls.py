"""Operations as the search sees them: of any object, not only of locks with tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: The end of a call whose outcome nobody knows. Larger than any position.
OPEN = 1 << 62


@dataclass(frozen=True, slots=True)
class Call:
    """One operation: `f(value)` by `process`, from event `start` to event `end`, which gave `result`.

    `outcome` is "ok", "fail" (with the reason in `error`) or "info": then it may have taken effect at any time after
    its start or never, and nobody knows its result. `line` is where it was invoked in the file that it came from.
    """

    process: int | str
    f: str
    value: Any
    result: Any
    outcome: str
    start: int
    end: int
    key: Any = None
    error: str | None = None
    line: int | None = None

    @property
    def owner(self) -> Any:
        """Whom a lock takes for its holder: the client that the value names, else the process."""
        if isinstance(self.value, Mapping) and "client" in self.value:
            return self.value["client"]
        return self.process

    def words(self) -> str:
        """One line: `process 3 acquire, [12-15] ok`."""
        named = "" if self.value is None else f"({self.value!r})"
        until = "on, unknown outcome" if self.end == OPEN else f"{self.end}] {self.outcome}"
        shown = f" {self.result!r}" if self.outcome == "ok" and self.result is not None else ""
        shown += f" {self.error}" if self.error else ""
        where = f" (line {self.line})" if self.line else ""
        return f"process {self.process} {self.f}{named}, [{self.start}-{until}{shown}{where}"


def by_key(calls: Iterable[Call]) -> dict[Any, list[Call]]:
    """The calls of each key, in the order of their starts."""
    found: dict[Any, list[Call]] = {}
    for call in sorted(calls, key=lambda call: call.start):
        found.setdefault(call.key, []).append(call)
    return found
