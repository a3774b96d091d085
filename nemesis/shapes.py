"""The shapes of partitions, as sets of links to cut. Pure; `nemesis.spec.SHAPES` says how many nodes each needs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from cluster.places.base import Link

Cuts = frozenset[Link]


def majority(count: int) -> int:
    """The fewest nodes that are a majority of `count`."""
    return count // 2 + 1


def minority(count: int) -> int:
    """The most nodes that a cluster of `count` can lose and still have a majority."""
    return (count - 1) // 2


def build(shape: str, nodes: Sequence[str], around: Sequence[str], draws: random.Random) -> Cuts:
    """The cuts of `shape`; `around` is the resolved target: the node, or the group, that the shape is about."""
    match shape:
        case "one" | "isolated-leader":
            return isolate(nodes, around)
        case "majority-minority":
            return isolate(nodes, fill(nodes, around, minority(len(nodes)), draws))
        case "majorities-ring":
            return majorities_ring(draws.sample(nodes, len(nodes)))
        case "bridge":
            others = [node for node in nodes if node not in around]
            return bridge(around[0], draws.sample(others, len(others)))
        case "one-way":
            return one_way(nodes, around[0], outward=draws.random() < 0.5)
    raise ValueError(f"no shape {shape!r}")


def isolate(nodes: Sequence[str], group: Sequence[str]) -> Cuts:
    """The group and the rest hear nothing of each other."""
    return _between(group, [node for node in nodes if node not in group])


def fill(nodes: Sequence[str], group: Sequence[str], size: int, draws: random.Random) -> Sequence[str]:
    """The group, with nodes drawn to make it `size` if it is smaller."""
    others = [node for node in nodes if node not in group]
    return [*group, *draws.sample(others, max(0, size - len(group)))]


def majorities_ring(ring: Sequence[str]) -> Cuts:
    """Every node sees a majority, and no two see the same one: each sees its nearest neighbours around the ring, as
    many on either side as make up a majority with itself."""
    count = len(ring)
    reach = majority(count) // 2
    return frozenset(
        Link(source, target)
        for i, source in enumerate(ring)
        for j, target in enumerate(ring)
        if min((i - j) % count, (j - i) % count) > reach
    )


def bridge(middle: str, others: Sequence[str]) -> Cuts:
    """Two halves that hear nothing of each other, and one node in the middle that sees both."""
    assert middle not in others
    half = len(others) // 2
    return _between(others[:half], others[half:])


def one_way(nodes: Sequence[str], node: str, *, outward: bool) -> Cuts:
    """`outward`: nobody hears `node`, which hears everybody; else it hears nobody, and everybody hears it."""
    cuts = [Link(node, other) for other in nodes if other != node]
    return frozenset(cuts if outward else [link.reverse for link in cuts])


def _between(left: Iterable[str], right: Sequence[str]) -> Cuts:
    there = [Link(source, target) for source in left for target in right]
    return frozenset([*there, *(link.reverse for link in there)])
