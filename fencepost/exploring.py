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
        "answers-before-fsync": Setting(
            Bounds(clients=1, timeouts=2, crashes=1, beats=1, requests=1, slow_disks=True), led=True
        ),
        "applies-twice": Setting(
            Bounds(nodes=1, clients=1, timeouts=2, crashes=1, requests=1, snapshot_every=2),
        ),
        "believed-unconfirmed": Setting(Bounds(nodes=2, requests=1, beats=2, patience=1), led=True),
        "commit-with-minority": Setting(Bounds(clients=1, timeouts=2, requests=1, beats=2), led=True),
        "counter-from-held-locks": Setting(
            Bounds(nodes=1, clients=1, timeouts=3, crashes=2, requests=2, gone=1, snapshot_every=2),
        ),
        "counter-not-in-snapshot": Setting(
            Bounds(nodes=1, clients=1, timeouts=2, crashes=1, requests=2, leases=1, snapshot_every=2),
        ),
        "every-node-grants": Setting(Bounds(nodes=2, timeouts=2, requests=0)),
        "expire-ignores-token": Setting(Bounds(nodes=1, timeouts=1, requests=2, leases=1, gone=1)),
        "ghost-clean-up-any-holder": Setting(Bounds(nodes=1, timeouts=1, requests=2, leases=1, gone=1)),
        "grant-before-commit": Setting(Bounds(nodes=2, requests=1, beats=2), led=True),
        "held-from-memory": Setting(Bounds(nodes=1, timeouts=1, requests=3, slow_disks=True)),
        "keeps-conflicts": Setting(Bounds(clients=1, timeouts=2, beats=2, requests=1), led=True),
        "no-consistency-check": Setting(Bounds(clients=1, timeouts=3, beats=2, requests=1), led=True),
        "no-noop": Setting(
            Bounds(nodes=1, clients=1, timeouts=2, crashes=1, requests=2, reads=True, slow_disks=True),
        ),
        "not-held-from-projection": Setting(
            Bounds(nodes=1, clients=1, timeouts=1, requests=3, leases=1, reads=True, slow_disks=True),
        ),
        "reads-before-term-start": Setting(
            Bounds(nodes=1, clients=1, timeouts=2, crashes=1, requests=2, reads=True, slow_disks=True),
        ),
        "reads-without-quorum": Setting(
            Bounds(nodes=1, timeouts=2, crashes=1, requests=3, reads=True, slow_disks=True),
        ),
        "release-ignores-token": Setting(Bounds(nodes=1, timeouts=1, requests=3, leases=1)),
        "term-not-persisted": Setting(Bounds(clients=0, timeouts=2, crashes=1, requests=0)),
        "two-grants-in-flight": Setting(Bounds(nodes=2, requests=2, beats=2), led=True),
        "vote-not-persisted": Setting(Bounds(clients=0, timeouts=2, crashes=1, requests=0)),
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
