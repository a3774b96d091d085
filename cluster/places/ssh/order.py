"""What an agent is told when it starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Order:
    """`home` is the node's folder, `user` the number of whom the node runs as, `listen` where it is going to listen.
    `filters` are names of packet filters that may be used; none: no cuts. `controls`: names of the files by which the
    node's faults are told (`cluster.places.controls`)."""

    secret: str
    run: str
    node: str
    home: str
    user: int
    listen: tuple[str, int]
    filters: Sequence[str]
    controls: Sequence[str]
