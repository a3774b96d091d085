"""What could not be undone the first time is undone the second, and not taken for done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

import pytest

from cluster.places.base import Limits, Link, Place, PlaceError, Shaping
from nemesis.clients import ClientPartitions
from nemesis.family import Fault
from nemesis.links import Shapings
from nemesis.partition import Cuts
from nemesis.processes import Holds
from nemesis.spec import FaultSpec
from nemesis.starvation import Starvations

LINKS = frozenset({Link("n1", "n2")})
FAULT = Fault("f1", "any", ("n1",), {}, FaultSpec("starve", "one"), "it")


class Stubborn:
    """A place that mends nothing the first time it is asked; `done` is what it was last told to do."""

    nodes: Sequence[str] = ("n1", "n2")

    def __init__(self) -> None:
        self.done: Any = "broken"
        self._asked = 0

    def _mend(self, done: Any) -> None:
        self._asked += 1
        if self._asked == 1:
            raise PlaceError("the agent of n1 gave no answer")
        self.done = done

    async def set_cuts(self, links: Iterable[Link]) -> None:
        self._mend(list(links))

    async def shape_links(self, shapings: Mapping[Link, Shaping]) -> None:
        self._mend(list(shapings))

    async def reset_links(self, links: Collection[Link]) -> int: ...

    async def link_counts(self, link: Link) -> Any: ...

    def client_address(self, node: str) -> Any: ...

    async def cut_clients(self, nodes: Collection[str]) -> None:
        self._mend(list(nodes))

    async def starve_node(self, node: str, limits: Limits) -> None:
        self._mend([] if limits == Limits() else [limits])

    async def usage(self, node: str) -> Any: ...


def partition(place: Place) -> Callable[[], Awaitable[None]]:
    cuts = Cuts(place)
    cuts._active["f1"] = LINKS, None
    return lambda: cuts.drop("f1")


def shaping(place: Place) -> Callable[[], Awaitable[None]]:
    shapings = Shapings(place)
    shapings._active["f1"] = LINKS, Shaping(stall=True)
    return lambda: shapings.drop("f1")


def clients(place: Place) -> Callable[[], Awaitable[None]]:
    family = ClientPartitions(place, place.nodes)
    family._active["f1"] = ("n1",)
    return lambda: family.undo(FAULT)


def starvation(place: Place) -> Callable[[], Awaitable[None]]:
    family = Starvations(place, place.nodes, Holds())
    family._active["f1"] = ("n1",), Limits(cpu=0.1)
    return lambda: family.undo(FAULT)


@pytest.mark.parametrize("fault", [partition, shaping, clients, starvation])
async def test_a_fault_that_could_not_be_undone_is_tried_again(
    fault: Callable[[Place], Callable[[], Awaitable[None]]],
) -> None:
    place = Stubborn()
    undo = fault(cast(Place, place))
    with pytest.raises(PlaceError):
        await undo()
    await undo()
    assert place.done == []
    place.done = "asked once more"
    await undo()
    assert place.done == "asked once more", "there is nothing left to undo"
