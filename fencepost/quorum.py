"""Recovery with no more than a majority: the rest of the nodes is dead while the others have to serve.

A cluster that comes back only when everybody is back has lost what it was built for. So after the faults are healed,
all nodes but a drawn majority are killed; that majority has to serve within what recovery is allowed; then the others
are started again.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from cluster.places.base import Place


def drawn(nodes: Sequence[str], seed: int) -> tuple[str, ...]:
    """A majority of the nodes; the same for the same seed everywhere."""
    return tuple(sorted(random.Random(f"{seed}/quorum").sample(list(nodes), len(nodes) // 2 + 1)))


@asynccontextmanager
async def alone(place: Place, quorum: Sequence[str]) -> AsyncIterator[None]:
    """All other nodes are dead meanwhile. Raises PlaceError."""
    rest = [node for node in place.nodes if node not in quorum]
    try:
        for node in rest:
            await place.kill_node(node)
        yield
    finally:
        for node in rest:
            await place.start_node(node)
