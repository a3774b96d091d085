"""The built-in families of faults."""

from __future__ import annotations

from cluster.places.base import Place
from nemesis import kinds
from nemesis.clients import ClientPartitions
from nemesis.clocks import ClockBound, Clocks
from nemesis.damage import Cuts as FileCuts
from nemesis.damage import Files, Flips, Restores
from nemesis.disks import MODES, Disks
from nemesis.family import Family
from nemesis.links import Resets, ShapedLinks, Shapings
from nemesis.membership import Memberships
from nemesis.partition import Cuts, Flappings, Partitions
from nemesis.processes import CrashLoops, Holds, Kills, Pauses, Stops
from nemesis.starvation import Starvations
from nemesis.transfers import Transfers

SHAPED = (kinds.DELAY, kinds.THROTTLE, kinds.STALL, kinds.LARGE_PACKETS, kinds.DUPLICATE, kinds.REORDER, kinds.CORRUPT)


def built_in(place: Place, clock_bound: ClockBound) -> list[Family]:
    """One of each; what a place can't do is refused before it is asked of them."""
    nodes, cuts, holds, shapings = place.nodes, Cuts(place), Holds(), Shapings(place)
    broken_disks: dict[str, str] = {}
    undamaged: dict[str, Files] = {}
    return [
        Partitions(place, nodes, cuts),
        Flappings(place, nodes, cuts),
        *(ShapedLinks(kind, place, nodes, shapings) for kind in SHAPED),
        Resets(place, nodes),
        Kills(place, nodes, holds),
        Stops(place, nodes, holds),
        CrashLoops(place, nodes, holds),
        Pauses(place, nodes, holds),
        ClientPartitions(place, nodes),
        Clocks(place, nodes, clock_bound),
        *(Disks(kind, place, nodes, holds, broken_disks) for kind in MODES),
        Flips(place, nodes, holds, undamaged),
        FileCuts(place, nodes, holds, undamaged),
        Restores(place, nodes, holds, undamaged),
        Transfers(place, nodes),
        Starvations(place, nodes, holds),
        Memberships(place, nodes, holds),
    ]
