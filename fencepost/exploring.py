"""`fencepost explore`: all states of a small cluster, and the bounds in which a mutant shows.

The bounds of a mutant are as narrow as its fault allows; a depth costs two to four times the one before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from cluster.explore import BeginningOutOfBounds, Bounds, Event, Explored, Space, elect, explore
from cluster.mutants import MUTANTS
from cluster.node.core import Core

__all__ = ["PLAIN", "SHOWS", "BeginningOutOfBounds", "Setting", "run", "setting_for"]


@dataclass(frozen=True, slots=True)
class Setting:
    """`led`: begin with a cluster that has a leader, whose first entry is applied everywhere; otherwise with nodes that
    have just started."""

    bounds: Bounds
    led: bool = False


#: What is explored without a word about bounds.
PLAIN = Setting(Bounds(timeouts=2, crashes=1, requests=2, leases=1, beats=3), led=True)

#: For mutants whose fault shows in so small a cluster, and soon.
SHOWS: Mapping[str, Setting] = MappingProxyType(
    {
        "believed-unconfirmed": Setting(Bounds(nodes=2, requests=1, beats=2, patience=1), led=True),
        "commit-with-minority": Setting(Bounds(clients=1, timeouts=2, requests=1, beats=2), led=True),
        "every-node-grants": Setting(Bounds(nodes=2, timeouts=2, requests=0)),
        "grant-before-commit": Setting(Bounds(nodes=2, requests=1, beats=2), led=True),
        "two-grants-in-flight": Setting(Bounds(nodes=2, requests=2, beats=2), led=True),
        "votes-twice": Setting(Bounds(timeouts=2, requests=0)),
    }
)


def setting_for(mutant: str | None) -> Setting:
    return PLAIN if mutant is None else SHOWS.get(mutant, PLAIN)


def run(
    setting: Setting,
    mutant: str | None,
    *,
    depth: int | None,
    for_s: float | None,
    observe: Callable[[Explored], None] = lambda _: None,
) -> tuple[Space, list[Event], Explored]:
    """Explore; gives the space, the events of the beginning, and what came of it. Raises Violation where the beginning
    itself violates something."""
    space = Space(setting.bounds, Core if mutant is None else MUTANTS[mutant].core_type)
    begin = elect(space) if setting.led else []
    return space, begin, explore(space, begin=begin, depth=depth, for_s=for_s, observe=observe)
