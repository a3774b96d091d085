"""What every family of faults does, so that the nemesis needs to know none of them.

`prepare` looks and chooses, and changes nothing. `apply` changes the cluster and shows that it did. `undo` takes back
what this fault changed, and that alone: whatever else is active stays. `confirm` shows that it is undone, or says what
could not be shown. Between `apply` and `undo` other faults may come and go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from nemesis.schedule import Planned
from nemesis.spec import FaultSpec


class Skipped(Exception):
    """The fault was not applied, or can't be shown to have taken effect, and why."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault with its choices made: `detail` says everything for the history and the ledger, `explicit` asks for the
    very same again (its times are still the planned ones), `breaks` are the declared assumptions that it violates."""

    id: str
    kind: str
    targets: tuple[str, ...]
    detail: Mapping[str, Any]
    explicit: FaultSpec
    summary: str = field(compare=False)
    breaks: tuple[str, ...] = ()


class Family(Protocol):
    kind: str

    async def prepare(self, planned: Planned) -> Fault:
        """Raises Skipped."""

    async def apply(self, fault: Fault) -> str:
        """Returns the evidence. Raises Skipped when there is none; `undo` is called in either case."""

    async def undo(self, fault: Fault) -> None:
        """Idempotent. Raises PlaceError."""

    async def confirm(self, fault: Fault) -> str: ...


@runtime_checkable
class Foresees(Protocol):
    """A family that has to look at the cluster so long before its fault begins."""

    def notice_ns(self, planned: Planned) -> int: ...

    async def foresee(self, planned: Planned) -> None:
        """Leaves the cluster as it is. What could not be looked at is a reason for `prepare` to skip the fault."""
