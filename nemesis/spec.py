"""What a scenario may ask of the nemesis, and whether a given cluster can be asked for it.

A `FaultSpec` says when (`at`, `every`, `for`), what (`fault`) and where: `target` for faults of processes; for
partitions a `shape`, with `target` naming the node or group that the shape is about, or the very links as `cuts`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cluster.places.base import Capability

PARTITION = "partition"
KILL = "kill"
PAUSE = "pause"

#: Every kind of fault, with what a place must be able to do for it.
FAULTS: Mapping[str, Capability] = MappingProxyType(
    {PARTITION: Capability.CUT_LINKS, KILL: Capability.KILL, PAUSE: Capability.PAUSE}
)

#: How a target may be named, beside a list of nodes; the fewest nodes that it needs.
TARGETS: Mapping[str, int] = MappingProxyType(
    {"one": 1, "minority": 3, "majority": 1, "all": 1, "leader": 1, "follower": 2}
)

#: The named targets that are a single node.
SINGLE_TARGETS = frozenset({"one", "leader", "follower"})


@dataclass(frozen=True, slots=True)
class ShapeRule:
    """What a shape needs: the fewest nodes and why, and the named targets that it can be built around (the first is
    the default; none: the shape takes no target)."""

    nodes_min: int
    reason: str
    targets: tuple[str, ...] = ()
    list_max: int | None = 1  # the most nodes in an explicit list; None: any number that leaves somebody out


SHAPES: Mapping[str, ShapeRule] = MappingProxyType(
    {
        "one": ShapeRule(2, "one node against the rest", ("one", "leader", "follower")),
        "majority-minority": ShapeRule(
            3, "two groups of which only one is a majority", ("minority", "one", "leader", "follower"), None
        ),
        "majorities-ring": ShapeRule(4, "every node sees a majority, and no two see the same one"),
        "bridge": ShapeRule(5, "two groups of two or more and one node that sees both", ("one", "leader", "follower")),
        "isolated-leader": ShapeRule(2, "the leader against the rest"),
        "one-way": ShapeRule(
            2, "one node that is heard but hears nobody, or the reverse", ("one", "leader", "follower")
        ),
    }
)

#: A fault that lasts less could end before a time-out of the probes has shown that it took effect.
FOR_NS_MIN = 500_000_000


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One entry of a scenario's `nemesis`. Times are nanoseconds since the start of the run's main phase.

    `at_ns` alone: once. `every_ns` alone: first after that time, then again and again while it fits into the time
    limit. Both: first at `at_ns`. `cuts` are directed links (source, target); only in place of a shape.
    """

    fault: str
    target: str | tuple[str, ...] | None = None
    shape: str | None = None
    at_ns: int | None = None
    every_ns: int | None = None
    for_ns: int = 0
    cuts: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a spec can't be run: the scenario's `field` ("fault", "target", "shape", "cuts", "at", "every", "for"),
    what was found there, and what would do."""

    field: str
    found: str
    remedy: str


def validate(
    spec: FaultSpec,
    nodes: Sequence[str],
    time_limit_ns: int,
    capabilities: Collection[Capability] = tuple(Capability),
) -> list[Problem]:
    """All that is wrong with `spec` for a cluster of `nodes` at a place with `capabilities`; empty if nothing."""
    needs = FAULTS.get(spec.fault)
    if needs is None:
        return [Problem("fault", repr(spec.fault), f"one of {_listing(FAULTS)}")]
    problems = []
    if needs not in capabilities:
        problems.append(Problem("fault", f"{spec.fault}, which needs a place that can {needs}", "another place"))
    if spec.fault == PARTITION:
        problems += _partition_problems(spec, nodes)
    else:
        problems += _process_problems(spec, nodes)
    return problems + _time_problems(spec, time_limit_ns)


def _partition_problems(spec: FaultSpec, nodes: Sequence[str]) -> list[Problem]:
    if spec.cuts is not None:
        problems = _cut_problems(spec.cuts, nodes)
        for field, value in (("shape", spec.shape), ("target", spec.target)):
            if value is not None:
                problems.append(Problem(field, f"{field} beside cuts", "either the shape of a partition or its cuts"))
        return problems
    rule = SHAPES.get(spec.shape or "")
    if rule is None:
        found = "a partition without a shape" if spec.shape is None else repr(spec.shape)
        return [Problem("shape", found, f"one of {_listing(SHAPES)}")]
    if len(nodes) < rule.nodes_min:
        remedy = f"at least {rule.nodes_min} nodes ({rule.reason})"
        return [Problem("shape", f"{spec.shape} with {len(nodes)} nodes", remedy)]
    if spec.target is None:
        return []
    if not rule.targets:
        return [Problem("target", f"a target for the shape {spec.shape}", "no target: the shape needs none")]
    if isinstance(spec.target, str):
        if spec.target in rule.targets:
            return []
        remedy = f"one of {_listing(rule.targets)}, or a list of nodes"
        return [Problem("target", f"{spec.target!r} for the shape {spec.shape}", remedy)]
    problems = _list_problems(spec.target, nodes)
    list_max = len(nodes) - 1 if rule.list_max is None else rule.list_max
    if not problems and len(spec.target) > list_max:
        found = f"{len(spec.target)} of {len(nodes)} nodes for the shape {spec.shape}"
        problems.append(Problem("target", found, f"a list of at most {list_max}"))
    return problems


def _process_problems(spec: FaultSpec, nodes: Sequence[str]) -> list[Problem]:
    problems = []
    for field, value in (("shape", spec.shape), ("cuts", spec.cuts)):
        if value is not None:
            problems.append(
                Problem(field, f"{field} for the fault {spec.fault}", f"a target; only a {PARTITION} has it")
            )
    choice = f"one of {_listing(TARGETS)}, or a list of nodes"
    if spec.target is None:
        problems.append(Problem("target", f"a {spec.fault} without a target", choice))
    elif not isinstance(spec.target, str):
        problems += _list_problems(spec.target, nodes)
    elif spec.target not in TARGETS:
        problems.append(Problem("target", repr(spec.target), choice))
    elif len(nodes) < TARGETS[spec.target]:
        found = f"{spec.target} of {len(nodes)} nodes"
        problems.append(Problem("target", found, f"at least {TARGETS[spec.target]} nodes"))
    return problems


def _list_problems(target: Sequence[str], nodes: Sequence[str]) -> list[Problem]:
    strangers = [node for node in target if node not in nodes]
    if strangers:
        return [Problem("target", f"no node {_listing(strangers)} in this cluster", f"some of {_listing(nodes)}")]
    if not target:
        return [Problem("target", "an empty list", f"some of {_listing(nodes)}")]
    if len(set(target)) < len(target):
        return [Problem("target", "a node named twice", "each node once")]
    return []


def _cut_problems(cuts: Sequence[tuple[str, str]], nodes: Sequence[str]) -> list[Problem]:
    if not cuts:
        return [Problem("cuts", "no link", "at least one [from, to]")]
    problems = []
    for source, target in cuts:
        strangers = [node for node in (source, target) if node not in nodes]
        if strangers:
            found = f"no node {_listing(strangers)} in this cluster"
            problems.append(Problem("cuts", found, f"links between {_listing(nodes)}"))
        elif source == target:
            problems.append(Problem("cuts", f"a link from {source} to itself", "links between two nodes"))
    return problems


def _time_problems(spec: FaultSpec, time_limit_ns: int) -> list[Problem]:
    problems = []
    if spec.for_ns < FOR_NS_MIN:
        remedy = f"at least {_seconds(FOR_NS_MIN)}, so that it can be seen to have taken effect"
        problems.append(Problem("for", _seconds(spec.for_ns), remedy))
    if spec.at_ns is None and spec.every_ns is None:
        problems.append(Problem("at", "neither at nor every", "at: a time of the run, every: a period, or both"))
        return problems
    if spec.at_ns is not None and spec.at_ns < 0:
        problems.append(Problem("at", _seconds(spec.at_ns), "a time since the start of the run"))
    if spec.every_ns is not None and spec.every_ns <= spec.for_ns:
        found = f"every {_seconds(spec.every_ns)} for {_seconds(spec.for_ns)}"
        problems.append(Problem("every", found, "a period that is longer than the fault lasts"))
    first_ns = first_start_ns(spec)
    if first_ns + spec.for_ns > time_limit_ns:
        field = "at" if spec.at_ns is not None else "every"
        found = f"from {_seconds(first_ns)} to {_seconds(first_ns + spec.for_ns)}"
        problems.append(Problem(field, found, f"a fault that ends within the time limit, {_seconds(time_limit_ns)}"))
    return problems


def first_start_ns(spec: FaultSpec) -> int:
    """When the spec's first injection starts."""
    return spec.at_ns if spec.at_ns is not None else spec.every_ns or 0


def _listing(names: Collection[str]) -> str:
    return ", ".join(names)


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:g}s"
