"""Which links a fault of links is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cluster.places.base import Link, Place
from nemesis import shapes
from nemesis.family import Skipped
from nemesis.schedule import Planned
from nemesis.spec import PARTITION, SHAPES, FaultSpec
from nemesis.targets import LEADER_TARGETS, NoTarget, choose, find_leader


@dataclass(frozen=True, slots=True)
class Aim:
    """`around` are the nodes that the links were chosen by; `shape` is for words."""

    around: tuple[str, ...]
    links: frozenset[Link]
    shape: str

    def detail(self) -> dict[str, object]:
        return {"shape": self.shape, "cuts": [list(link) for link in self.listed()]}

    def listed(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted((link.source, link.target) for link in self.links))

    def explicit(self, spec: FaultSpec) -> FaultSpec:
        """The same again, by its links."""
        return replace(spec, shape=None, target=None, cuts=self.listed())

    def words(self, kind: str, nodes: Sequence[str]) -> str:
        return f"{kind} {self.shape}" + (f" {','.join(self.around)}" if len(self.around) < len(nodes) else "")


async def take_aim(place: Place, nodes: Sequence[str], planned: Planned) -> Aim:
    """Raises Skipped when there is nobody to hit."""
    spec = planned.spec
    if spec.cuts is not None:
        links = frozenset(Link(*link) for link in spec.cuts)
        touched = {node for link in links for node in link}
        return Aim(tuple(node for node in nodes if node in touched), links, "cuts")
    draws = planned.draws()
    leader = await find_leader(place, nodes) if _target(spec) in LEADER_TARGETS else None
    try:
        around = choose(_target(spec), nodes, nodes, leader.node if leader else None, draws)
    except NoTarget as nobody:
        raise Skipped(str(nobody)) from nobody
    if spec.shape is None:
        links = frozenset(Link(a, b) for a in nodes for b in nodes if a != b and (a in around or b in around))
        return Aim(around, links, "all links of")
    return Aim(around, shapes.build(spec.shape, nodes, around, draws), spec.shape)


def _target(spec: FaultSpec) -> str | Sequence[str]:
    if spec.shape == "isolated-leader":
        return "leader"
    if spec.target is not None:
        return spec.target
    assert spec.shape is not None or spec.fault != PARTITION
    return next(iter(SHAPES[spec.shape].targets), "all") if spec.shape is not None else "all"


def links_of(detail: object) -> frozenset[Link]:
    """The links in a fault's detail."""
    assert isinstance(detail, list)
    return frozenset(Link(source, target) for source, target in detail)
