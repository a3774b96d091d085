"""What a scenario may ask of the nemesis, and whether a given cluster can be asked for it.

A `FaultSpec` says when (`at`, `every`, `for`, and the moment `when`), what (`fault`, with the options of its kind) and
where: `target` for faults of nodes and of clients; for faults of links a `shape`, with `target` naming the node or
group that the shape is about, a `target` alone, whose links are meant, or the very links as `cuts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cluster.places.base import Capability, Clock
from cluster.systems.base import Feature
from cluster.words import counted
from nemesis import kinds
from nemesis.kinds import (
    DISK_RESTORE,
    KILL,
    KINDS,
    MEMBERSHIP,
    PARTITION,
    PAUSE,
    RANDOM,
    Aim,
    Form,
    Kind,
    Parameter,
    Value,
)

__all__ = ["FAULTS", "KILL", "PARTITION", "PAUSE", "FaultSpec", "Moment", "Problem", "first_start_ns", "validate"]

#: Every kind of fault, with what a place must be able to do for it (None: nothing).
FAULTS: Mapping[str, Capability | None] = MappingProxyType({name: kind.needs for name, kind in KINDS.items()})

#: How a target may be named, beside a list of nodes; the fewest nodes that it needs.
TARGETS: Mapping[str, int] = MappingProxyType(
    {"one": 1, "minority": 3, "majority": 1, "all": 1, "leader": 1, "follower": 2}
)


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

#: How the target of a client-pause may be named, beside a list of clients: "holder" is one that holds a lock.
CLIENT_TARGETS = ("one", "holder", "minority", "majority", "all")

#: A client in a list of targets: the thread of that number.
CLIENT = re.compile(r"client-(0|[1-9][0-9]{0,6})", re.ASCII)

#: A fault that lasts less could end before a time-out of the probes has shown that it took effect.
FOR_NS_MIN = 500_000_000


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that a fault waits for, from its planned time on: a line that matches `log` appears in the log of any
    node, or the counter `counter` of any node has grown by `grows`. The fault begins `after_ns` later."""

    log: str | None = None
    counter: str | None = None
    grows: int = 1
    after_ns: int = 0


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """One entry of a scenario's `nemesis`. Times are nanoseconds since the start of the run's main phase.

    `at_ns` alone: once. `every_ns` alone: first after that time, then again and again while it fits into the time
    limit. Both: first at `at_ns`. `cuts` are directed links (source, target); only in place of a shape. `options` are
    those parameters of the kind that the scenario gives, in the order of their names.
    """

    fault: str
    target: str | tuple[str, ...] | None = None
    shape: str | None = None
    at_ns: int | None = None
    every_ns: int | None = None
    for_ns: int = 0
    cuts: tuple[tuple[str, str], ...] | None = None
    options: tuple[tuple[str, Value], ...] = ()
    when: Moment | None = None

    def given(self) -> dict[str, Value]:
        """The options, and the defaults of those that are not given and have one."""
        known = kinds.parameters(self.fault)
        return {name: entry.default for name, entry in known.items() if entry.default is not None} | dict(self.options)

    def span_ms(self, name: str) -> tuple[int, int]:
        """An option of the form SPAN."""
        value = self.given()[name]
        assert isinstance(value, tuple)
        low, high = value
        assert isinstance(low, int)
        assert isinstance(high, int)
        return low, high

    def number(self, name: str) -> float:
        """An option that is a number. Raises KeyError when it isn't given and has no default."""
        value = self.given()[name]
        assert isinstance(value, int | float)
        return value


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a spec can't be run: the scenario's `field` ("fault", "target", "shape", "cuts", "at", "every", "for"),
    what was found there, and what would do."""

    field: str
    found: str
    remedy: str


#: The system has whatever the place's capabilities need.
NOTHING_LACKS: Mapping[Capability, Feature] = MappingProxyType({})


def validate(
    spec: FaultSpec,
    nodes: Sequence[str],
    time_limit_ns: int,
    capabilities: Collection[Capability] = tuple(Capability),
    clients: int | None = None,
    lacking: Mapping[Capability, Feature] = NOTHING_LACKS,
    ports: Collection[str] | None = None,
) -> list[Problem]:
    """All that is wrong with `spec` for a cluster of `nodes` at a place with `capabilities`, used by so many `clients`
    (None: that isn't known); empty if nothing. `lacking`: what the place could do if the system had such features;
    `ports`: the names of the system's ports (None: that isn't known)."""
    kind = KINDS.get(spec.fault)
    if kind is None:
        return [Problem("fault", repr(spec.fault), f"one of {_listing(FAULTS)}")]
    problems = []
    needs = kinds.needs(spec.fault, dict(spec.options))
    if needs is not None and needs not in capabilities:
        problems.append(_unable("fault", spec.fault, needs, lacking))
    problems += _AIMED[kind.aims](spec, nodes, clients)
    problems += _option_problems(spec, kind, capabilities, lacking)
    problems += _moment_problems(spec)
    port = spec.given().get("port")
    if port is not None and ports is not None and needs in capabilities and port not in ports:
        problems.append(Problem("port", repr(port), f"one of {_listing(ports)}"))
    return problems + _time_problems(spec, time_limit_ns)


def _link_problems(spec: FaultSpec, nodes: Sequence[str], clients: int | None) -> list[Problem]:
    """A partition needs a shape; other faults of links may name a target instead, whose links are then meant."""
    if spec.fault != PARTITION and spec.shape is None and spec.cuts is None:
        if len(nodes) < 2:
            return [Problem("fault", f"{spec.fault} with 1 node", "at least 2 nodes: one alone has no links")]
        return _node_problems(spec, nodes, clients)
    return _shape_problems(spec, nodes)


def _shape_problems(spec: FaultSpec, nodes: Sequence[str]) -> list[Problem]:
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
        remedy = f"at least {counted(rule.nodes_min, 'node')} ({rule.reason})"
        return [Problem("shape", f"{spec.shape} with {counted(len(nodes), 'node')}", remedy)]
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
        found = f"{len(spec.target)} of {counted(len(nodes), 'node')} for the shape {spec.shape}"
        problems.append(Problem("target", found, f"a list of at most {list_max}"))
    return problems


def _node_problems(spec: FaultSpec, nodes: Sequence[str], clients: int | None) -> list[Problem]:  # noqa: ARG001
    problems = _shapeless(spec)
    named = KINDS[spec.fault].targets or tuple(TARGETS)
    choice = f"one of {_listing(named)}, or a list of nodes"
    if spec.target is None:
        problems.append(Problem("target", f"a {spec.fault} without a target", choice))
    elif not isinstance(spec.target, str):
        problems += _list_problems(spec.target, nodes)
        if spec.fault == MEMBERSHIP and len(spec.target) >= len(nodes) and not problems:
            problems.append(Problem("target", "every node", "a list that leaves somebody in the cluster"))
    elif spec.target not in named:
        problems.append(Problem("target", repr(spec.target), choice))
    elif len(nodes) < TARGETS[spec.target]:
        found = f"{spec.target} of {counted(len(nodes), 'node')}"
        problems.append(Problem("target", found, f"at least {counted(TARGETS[spec.target], 'node')}"))
    return problems


def _client_problems(spec: FaultSpec, nodes: Sequence[str], clients: int | None) -> list[Problem]:  # noqa: ARG001
    problems = _shapeless(spec)
    choice = f"one of {_listing(CLIENT_TARGETS)}, or a list of clients such as [client-0, client-3]"
    if spec.target is None:
        problems.append(Problem("target", f"a {spec.fault} without a target", choice))
    elif isinstance(spec.target, str):
        if spec.target not in CLIENT_TARGETS:
            problems.append(Problem("target", repr(spec.target), choice))
    else:
        strangers = [name for name in spec.target if not _is_client(name, clients)]
        if strangers:
            known = "" if clients is None else f" (client-0 to client-{clients - 1})"
            problems.append(Problem("target", f"no client {_listing(strangers)}", f"a list of clients{known}"))
        elif not spec.target or len(set(spec.target)) < len(spec.target):
            problems.append(Problem("target", "no client, or one named twice", "each client once"))
    return problems


def _is_client(name: str, clients: int | None) -> bool:
    match = CLIENT.fullmatch(name)
    return match is not None and (clients is None or int(match[1]) < clients)


def _nobody_problems(spec: FaultSpec, nodes: Sequence[str], clients: int | None) -> list[Problem]:  # noqa: ARG001
    if spec.target is None:
        return _shapeless(spec)
    return [*_shapeless(spec), Problem("target", f"a target for the fault {spec.fault}", "none: it draws its own")]


_AIMED: Mapping[Aim, Callable[[FaultSpec, Sequence[str], int | None], list[Problem]]] = MappingProxyType(
    {
        Aim.LINKS: _link_problems,
        Aim.NODES: _node_problems,
        Aim.CLIENTS: _client_problems,
        Aim.NOBODY: _nobody_problems,
    }
)


def _shapeless(spec: FaultSpec) -> list[Problem]:
    return [
        Problem(field, f"{field} for the fault {spec.fault}", "a target; only faults of links have it")
        for field, value in (("shape", spec.shape), ("cuts", spec.cuts))
        if value is not None
    ]


def _unable(field: str, fault: str, needs: Capability, lacking: Mapping[Capability, Feature]) -> Problem:
    """Whose fault it is that a fault can't be done: the place's or the system's."""
    if needs in lacking:
        found = f"{fault}, which needs a system with the feature {lacking[needs]}"
        return Problem(field, found, "a fault that needs nothing of this system, or the feature (docs/systems.md)")
    return Problem(field, f"{fault}, which needs a place that can {needs}", "another place")


def _option_problems(
    spec: FaultSpec, kind: Kind, capabilities: Collection[Capability], lacking: Mapping[Capability, Feature]
) -> Iterator[Problem]:
    given = dict(spec.options)
    for name in given:
        if name not in kind.parameters:
            remedy = f"only {_listing(kind.parameters)}" if kind.parameters else "no options"
            yield Problem(name, f"it for the fault {spec.fault}", remedy)
    for name, parameter in kind.parameters.items():
        if name in given:
            yield from _value_problems(name, parameter, given[name])
        elif parameter.required:
            yield Problem(name, "nothing", f"{parameter.form}: a {spec.fault} needs it")
    chosen = [name for name in kind.one_of if name in given]
    if kind.one_of and len(chosen) != 1:
        found = f"both {' and '.join(chosen)}" if chosen else f"none of {_listing(kind.one_of)}"
        yield Problem(chosen[1] if chosen else "fault", found, f"one of {_listing(kind.one_of)}")
    if spec.fault == RANDOM:
        drawn = given.get("kinds") or ()
        assert isinstance(drawn, tuple)
        for name in map(str, drawn):
            wanted = KINDS[name].needs if name in KINDS else None
            if name not in KINDS or name == RANDOM:
                yield Problem("kinds", repr(name), f"some of {_listing([other for other in KINDS if other != RANDOM])}")
            elif wanted is not None and wanted not in capabilities:
                yield _unable("kinds", name, wanted, lacking)


def _value_problems(name: str, parameter: Parameter, value: Value) -> Iterator[Problem]:
    low, high = parameter.limits
    match parameter.form:
        case Form.CLOCK if value not in tuple(Clock):
            yield Problem(name, repr(value), f"one of {_listing(tuple(Clock))}")
        case Form.CHOICE if value not in parameter.choices:
            yield Problem(name, repr(value), f"one of {_listing(parameter.choices)}")
        case Form.STEP if value == 0:
            yield Problem(name, "0s", "a step such as +60s or -500ms")
        case Form.FACTOR if value == 1:
            yield Problem(name, "1", "a factor other than 1, such as 1.5 or 0.5")
        case Form.SHARE if not (isinstance(value, int | float) and 0 < value <= 1):
            yield Problem(name, str(value), "more than 0, and 1 at most")
        case Form.MEMORY if not (isinstance(value, int) and value >= low):
            yield Problem(name, f"{value} bytes", f"at least {low / 2**20:g}MiB")
        case Form.SPAN | Form.SPEED | Form.SIZE | Form.FACTOR | Form.SHARE:
            ends = value if isinstance(value, tuple) else (value,)
            if any(isinstance(end, str) or not low <= end <= high for end in ends):
                unit = {Form.SPAN: " ms", Form.SPEED: " bytes/s", Form.SIZE: " bytes"}.get(parameter.form, "")
                yield Problem(name, "..".join(map(str, ends)) + unit, f"from {low:g} to {high:g}{unit}")


def _moment_problems(spec: FaultSpec) -> list[Problem]:
    moment = spec.when
    if moment is None:
        return []
    if spec.fault == RANDOM:
        return [Problem("when", "it for the fault random", "no moment: it draws its own times")]
    if (moment.log is None) == (moment.counter is None):
        return [Problem("when", "not one of log and counter", "log: a regular expression, or counter: a name")]
    if moment.log is not None:
        try:
            re.compile(moment.log)
        except re.error as problem:
            return [Problem("when", f"{moment.log!r} ({problem})", "a regular expression")]
    return []


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
    age_ns = spec.span_ms("age")[1] * 1_000_000 if spec.fault == DISK_RESTORE and "age" in spec.given() else 0
    if age_ns > first_start_ns(spec) >= 0:
        found = f"data that is {_seconds(age_ns)} old at {_seconds(first_start_ns(spec))}"
        problems.append(Problem("age", found, "less than the time at which the fault begins"))
    overlaps = spec.fault == RANDOM  # with others of its own, which are faults by themselves
    if spec.every_ns is not None and spec.every_ns <= spec.for_ns and not overlaps:
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
