"""From a YAML file to a validated scenario."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from checker import CLAIMS, COVERAGE_KEYS, DEFAULT_CLAIMS
from cluster import mutants, places, registry
from cluster.words import counted
from fencepost import quantities
from fencepost.scenario.model import RECOVER_ALL, RECOVER_QUORUM, SETTLE_FROM_LOG, SETTLE_NOTHING, Expectation, Scenario
from fencepost.scenario.rules import complaints
from fencepost.store import RunFolder
from fencepost.yaml_file import Document, Fields, Item, Problem, ScenarioError, Wrong, choice, one_of, open_yaml
from nemesis.kinds import CLIENT_PAUSE, KINDS, RANDOM, Form, Value, parameters
from nemesis.spec import CLIENT_TARGETS, SHAPES, TARGETS, FaultSpec, Moment
from nemesis.swarm import RANDOM_THROUGHOUT
from workloads import kinds
from workloads.spec import Step, WorkloadSpec
from workloads.steps import ACTIONS

T = TypeVar("T")

FIELDS = (
    "name",
    "system",
    "mutant",
    "place",
    "hosts",
    "nodes",
    "seed",
    "time_limit",
    "assumptions",
    "workload",
    "nemesis",
    "recovery",
    "checks",
    "coverage",
    "expect",
)
WORKLOAD_FIELDS = (
    "kind",
    "clients",
    "keys",
    "rate",
    "lease",
    "hold",
    "wait",
    "overrun",
    "reads",
    "timeout",
    "operations",
    "steps",
)
#: What may be said to an operation (milliseconds).
VALUE_FIELDS = ("lease_ms", "wait_ms", "abandon_ms", "token", "data", "guarded")
STEP_FIELDS = ("at", "client", "do", "key", "value", "grant")
RESOURCE_FIELDS = ("write_delay",)
FAULT_FIELDS = ("fault", "target", "shape", "cuts", "at", "every", "for", "when")
MOMENT_FIELDS = ("log", "counter", "grows", "after")
#: What a kind of fault may be told beside these.
FAULT_OPTIONS = tuple(sorted({name for kind in KINDS.values() for name in kind.parameters}))

SEED_MAX = 2**63 - 1
COUNT_MAX = 1_000_000_000
NODES_MAX = 99
CLIENTS_MAX = 10_000
#: A week. Histories of longer runs would fill disks before anybody looked at them.
TIME_LIMIT_NS_MAX = 7 * 24 * 3600 * 1_000_000_000
_A_TIME_LIMIT = "at most 168h (7 days)"
NAME_CHARACTERS_MAX = 100

#: For a place that needs them.
_NEEDED_HOSTS = "the path of a file that names hosts for the place {place} (docs/ssh.md), here or with --hosts FILE"

NO_CLAIMS: tuple[str, ...] = ()

_A_NAME = f"a name: one line of at most {NAME_CHARACTERS_MAX} printable characters, in quotes if it looks like a number"


class _Assumptions(NamedTuple):
    clock_error: float = 0.01
    late_ns: int | None = None
    settle: str = SETTLE_FROM_LOG
    leader_changes_max: int | None = None


def load(path: Path) -> Scenario:
    """Read and validate a scenario file. Raises ScenarioError with every problem that was found.

    Systems and places of the user's own may be in the file's folder, in the current one, and, if the file is in the
    folder of a run, where that run found them.
    """
    scenario, document = _read(path)
    if registry.is_own(scenario.system) or registry.is_own(scenario.place):
        system = RunFolder(path.parent).recorded().get("system")
        found = system.get("folder") if isinstance(system, dict) else None
        registry.look_in(path.parent, Path.cwd(), *([Path(found)] if isinstance(found, str) else []))
    _judge(scenario, document)
    return replace(scenario, path=_lasting(path))


def _lasting(path: Path) -> Path:
    """The file's own path where a link leads to it: a run reads the file again, and moves the link `latest` before."""
    real = os.path.realpath(path)
    if real == os.path.abspath(path):
        return path
    return Path(real if path.is_absolute() else os.path.relpath(real))


def read(path: Path) -> Scenario:
    """What a scenario file says, whether or not it can be run here. Raises ScenarioError."""
    scenario, document = _read(path)
    document.finish()
    return scenario


def _read(path: Path) -> tuple[Scenario, Document]:
    root = open_yaml(path, "a scenario")
    try:
        return _scenario(root, path), root.document
    except Wrong as wrong:
        raise ScenarioError([Problem(str(path), None, "", wrong.found, wrong.remedy)]) from None


def override(
    scenario: Scenario,
    *,
    place: str | None = None,
    hosts: Path | None = None,
    seed: int | None = None,
    nodes: int | None = None,
    time_limit_ns: int | None = None,
) -> Scenario:
    """The scenario with what the command line says instead, validated anew. Raises ScenarioError."""
    changed = replace(
        scenario,
        place=scenario.place if place is None else place,
        hosts=scenario.hosts if hosts is None else os.path.abspath(hosts),
        seed=scenario.seed if seed is None else seed,
        nodes=scenario.nodes if nodes is None else nodes,
        time_limit_ns=scenario.time_limit_ns if time_limit_ns is None else time_limit_ns,
    )
    document = Document(str(scenario.path) if scenario.path else scenario.name)
    for field, value, low, high in (("nodes", changed.nodes, 1, NODES_MAX), ("seed", changed.seed, 0, SEED_MAX)):
        if not low <= value <= high:
            document.complain(field, repr(value), f"a whole number from {low} to {high}")
    if changed.time_limit_ns > TIME_LIMIT_NS_MAX:
        document.complain("time_limit", quantities.format_duration(changed.time_limit_ns), _A_TIME_LIMIT)
        document.finish()  # planning the faults of so long a run takes for ever
    if changed.time_limit_ns <= 0:
        document.complain("time_limit", quantities.format_duration(changed.time_limit_ns), "more than 0s")
    _judge(changed, document)
    return changed


def _judge(scenario: Scenario, document: Document) -> None:
    """Add what is wrong with the scenario as a whole, except where a part of it could not be read."""
    justified = [
        complaint
        for complaint in complaints(scenario)
        if not any(document.broken(field) for field in (complaint.field, *complaint.rests_on))
    ]
    for complaint in justified:
        document.complain(complaint.field, complaint.found, complaint.remedy)
    _judge_hosts(scenario, document)
    document.finish()


def _judge_hosts(scenario: Scenario, document: Document) -> None:
    """Add what is wrong with the hosts of a place that needs some."""
    try:
        if not places.needs_hosts(scenario.place):
            return
    except registry.UnknownName:
        return
    if scenario.hosts is None:
        if not document.broken("hosts"):
            document.complain("hosts", "nothing", _NEEDED_HOSTS.format(place=scenario.place))
        return
    from fencepost import hosts_file  # which reads with what is here

    try:
        hosts = hosts_file.load(Path(scenario.hosts))
    except ScenarioError as problem:
        document.problems += problem.problems
        return
    if len(hosts) < scenario.nodes and not document.broken("nodes"):
        found = f"{counted(scenario.nodes, 'node')} on {counted(len(hosts), 'host')} ({scenario.hosts})"
        document.complain("nodes", found, "a host for each node: fewer nodes, or more hosts")


def _scenario(root: Item, path: Path) -> Scenario:
    fields = root.fields(FIELDS)
    workload = fields.need("workload", _workload, _STAND_IN, f"the fields {', '.join(WORKLOAD_FIELDS)}")
    assumptions = fields.get("assumptions", _assumptions, _Assumptions())
    return Scenario(
        name=fields.get("name", _name, path.stem),
        system=fields.get("system", _text("the name of a system"), "lockd"),
        mutant=fields.get("mutant", one_of(mutants.names()), None),
        place=fields.get("place", _text("the name of a place"), "local"),
        hosts=fields.get("hosts", lambda item: _hosts(item, path.parent), None),
        nodes=fields.get("nodes", lambda item: item.integer(1, NODES_MAX), 5),
        seed=fields.get("seed", lambda item: item.integer(0, SEED_MAX), 0),
        time_limit_ns=fields.need("time_limit", _time_limit_ns, 1, quantities.A_DURATION),
        clock_error=assumptions.clock_error,
        late_ns=assumptions.late_ns,
        leader_changes_max=assumptions.leader_changes_max,
        settle=assumptions.settle == SETTLE_FROM_LOG,
        workload=workload,
        nemesis=fields.get("nemesis", _nemesis, ()),
        recovery=fields.get("recovery", one_of((RECOVER_ALL, RECOVER_QUORUM)), RECOVER_ALL),
        checks=fields.get("checks", _claims, DEFAULT_CLAIMS),
        coverage=fields.get("coverage", _coverage, {}),
        expect=fields.get("expect", _expectation, Expectation()),
        path=path,
    )


#: Takes the place of a workload that could not be read while the rest of the file is.
_STAND_IN = WorkloadSpec("mutex", 1, 1, 1.0, 1, (0, 0))


def _workload(item: Item) -> WorkloadSpec:
    fields = item.fields(WORKLOAD_FIELDS + RESOURCE_FIELDS)
    kind = fields.need("kind", one_of(kinds.names()), _STAND_IN.kind, f"one of {', '.join(kinds.names())}")
    if not item.document.broken(f"{item.path}.kind") and not kinds.uses_resource(kind):
        for name in RESOURCE_FIELDS:
            if name in fields:
                remedy = f"{name} only for a kind that writes to the resource"
                item.document.complain(f"{item.path}.{name}", f"it for the kind {kind}", remedy)
    return WorkloadSpec(
        kind=kind,
        clients=_count(fields, "clients", CLIENTS_MAX),
        keys=_count(fields, "keys", CLIENTS_MAX),
        rate=fields.need("rate", _rate, 1.0, quantities.A_RATE),
        lease_ms=fields.need("lease", _lease_ms, 1, quantities.A_DURATION),
        hold_ms=fields.need("hold", _range_ms, (0, 0), quantities.A_RANGE_MS),
        wait_ms=fields.get("wait", _duration_ms, 0),
        overrun=fields.get("overrun", _share, 0.0),
        reads=fields.get("reads", _share, _STAND_IN.reads),
        timeout_ms=fields.get("timeout", _lease_ms, _STAND_IN.timeout_ms),
        operations=fields.get("operations", lambda item: item.integer(1, COUNT_MAX), None),
        write_delay_ms=fields.get("write_delay", _range_ms, _STAND_IN.write_delay_ms),
        steps=fields.get("steps", lambda item: item.each("steps of clients", _step), None),
    )


def _step(item: Item) -> Step:
    fields = item.fields(STEP_FIELDS)
    return Step(
        at_ns=fields.need("at", _time_ns, 0, quantities.A_DURATION),
        client=fields.need(
            "client", lambda number: number.integer(0, CLIENTS_MAX), 0, "the number of a client, from 0"
        ),
        do=fields.need("do", one_of(ACTIONS), ACTIONS[0], f"one of {', '.join(ACTIONS)}"),
        key=fields.need("key", _text("a key"), "", "a key"),
        value=fields.get("value", _value, ()),
        grant=fields.get("grant", _text("a name for the grant"), None),
    )


def _value(item: Item) -> tuple[tuple[str, int | bool], ...]:
    fields = item.fields(VALUE_FIELDS)
    parts: dict[str, int | bool] = {}
    for name in VALUE_FIELDS:
        if name in fields:
            parts[name] = fields.get(name, _part, 0) if name != "guarded" else fields.get(name, Item.boolean, True)
    return tuple(parts.items())


def _part(item: Item) -> int:
    return item.integer(0, SEED_MAX)


def _count(fields: Fields, name: str, high: int) -> int:
    return fields.need(name, lambda item: item.integer(1, high), 1, f"a whole number from 1 to {high}")


def _nemesis(item: Item) -> tuple[FaultSpec, ...]:
    """A list of faults, or the word random: drawn faults all through the run."""
    if item.is_list():
        return item.each("faults", _fault)
    if item.text("a list of faults, or random") != RANDOM:
        raise Wrong(item.found(), "a list of faults, or random")
    return (RANDOM_THROUGHOUT,)


def _fault(item: Item) -> FaultSpec:
    fields = item.fields(FAULT_FIELDS + FAULT_OPTIONS)
    kind = fields.need("fault", one_of(tuple(KINDS)), "", f"one of {', '.join(KINDS)}")
    return FaultSpec(
        fault=kind,
        target=fields.get("target", _client_target if kind == CLIENT_PAUSE else _target, None),
        shape=fields.get("shape", one_of(tuple(SHAPES)), None),
        at_ns=fields.get("at", _time_ns, None),
        every_ns=fields.get("every", _duration_ns, None),
        for_ns=fields.need("for", _duration_ns, 0, f"how long the fault lasts: {quantities.A_DURATION}"),
        cuts=fields.get("cuts", lambda cuts: cuts.each("links, such as [n1, n2]", _cut), None),
        options=tuple(_options(fields, kind)),
        when=fields.get("when", _moment, None),
    )


def _options(fields: Fields, kind: str) -> Iterator[tuple[str, Value]]:
    known = parameters(kind)
    for name in FAULT_OPTIONS:
        if name not in fields:
            continue
        if name in known:
            value: Value | None = fields.get(name, _FORMS[known[name].form], None)
            if value is not None:
                yield name, value
        elif kind:
            remedy = f"only {', '.join(known)}, beside {', '.join(FAULT_FIELDS)}" if known else "no such field"
            fields.document.complain(f"{fields.path}.{name}", f"it for the fault {kind}", remedy)


def _moment(item: Item) -> Moment:
    fields = item.fields(MOMENT_FIELDS)
    return Moment(
        log=fields.get("log", _text("a regular expression"), None),
        counter=fields.get("counter", _text("the name of a counter, such as grants"), None),
        grows=fields.get("grows", lambda number: number.integer(1, COUNT_MAX), 1),
        after_ns=fields.get("after", _duration_ns, 0),
    )


def _client_target(item: Item) -> str | tuple[str, ...]:
    if item.is_list():
        return item.each("clients", _text("a client, such as client-3"))
    return item.text(f"one of {', '.join(CLIENT_TARGETS)}, or a list of clients")


def _target(item: Item) -> str | tuple[str, ...]:
    if item.is_list():
        return item.each("nodes", _text("the name of a node"))
    choices = f"one of {', '.join(TARGETS)}, or a list of nodes"
    name = item.text(choices)
    if name not in TARGETS:
        raise Wrong(item.found(), f"{choice(name, tuple(TARGETS))}, or a list of nodes")
    return name


def _cut(item: Item) -> tuple[str, str]:
    ends = item.each("two nodes: from, to", _text("the name of a node"))
    if len(ends) != 2:
        raise Wrong(f"a list of {len(ends)}", "two nodes: from, to")
    return ends[0], ends[1]


def _assumptions(item: Item) -> _Assumptions:
    def parse(error: Item) -> float:
        share = _share(error)
        if share >= 1:
            raise Wrong(error.found(), "less than 100%")
        return share

    fields = item.fields(("clock_error", "late", "leader_changes", "settle"))
    return _Assumptions(
        fields.get("clock_error", parse, 0.01),
        fields.get("late", _duration_ns, None),
        fields.get("settle", one_of((SETTLE_FROM_LOG, SETTLE_NOTHING)), SETTLE_FROM_LOG),
        fields.get("leader_changes", lambda changes: changes.integer(0, COUNT_MAX), None),
    )


def _coverage(item: Item) -> dict[str, int]:
    fields = item.fields(COVERAGE_KEYS)
    return {name: fields.get(name, lambda demand: demand.integer(0, COUNT_MAX), 0) for name in fields.items}


def _expectation(item: Item) -> Expectation:
    if item.is_mapping():
        fields = item.fields(("invalid", "excused"))
        if "excused" in fields and "invalid" not in fields:
            return Expectation(excused=fields.get("excused", _claims, NO_CLAIMS))
        if "excused" in fields:
            raise Wrong("both invalid and excused", "one of them")
        return Expectation(fields.need("invalid", _claims, NO_CLAIMS, "a list of claims"))
    remedy = "valid, {invalid: [claims]} or {excused: [claims]}"
    if item.text(remedy) != "valid":
        raise Wrong(item.found(), remedy)
    return Expectation()


def _claims(item: Item) -> tuple[str, ...]:
    """A list of claims that is not empty and has none twice."""
    claims = item.each("claims", one_of(CLAIMS))
    if item.is_empty():
        raise Wrong(item.found(), "at least one claim")
    for claim in CLAIMS:
        if claims.count(claim) > 1:
            raise Wrong(f"{claim} twice", "each claim once")
    return claims


def _name(item: Item) -> str:
    name = item.text(_A_NAME)
    if not name.strip() or not name.isprintable() or len(name) > NAME_CHARACTERS_MAX:
        raise Wrong(item.found(), _A_NAME)
    return name


def _hosts(item: Item, folder: Path) -> str:
    return os.path.abspath(folder / os.path.expanduser(item.text("the path of a hosts file")))


def _text(remedy: str) -> Callable[[Item], str]:
    return lambda item: item.text(remedy)


def _parsed(item: Item, parse: Callable[[str], T], remedy: str) -> T:
    try:
        return parse(item.text(remedy))
    except ValueError as problem:
        raise Wrong(item.found(), str(problem)) from None


def _time_ns(item: Item) -> int:
    return _parsed(item, quantities.parse_duration_ns, quantities.A_DURATION)


def _duration_ns(item: Item) -> int:
    ns = _time_ns(item)
    if ns == 0:
        raise Wrong(item.found(), "more than 0s")
    return ns


def _time_limit_ns(item: Item) -> int:
    ns = _duration_ns(item)
    if ns > TIME_LIMIT_NS_MAX:
        raise Wrong(item.found(), _A_TIME_LIMIT)
    return ns


def _duration_ms(item: Item) -> int:
    return _parsed(item, quantities.parse_duration_ms, quantities.A_DURATION)


def _lease_ms(item: Item) -> int:
    ms = _duration_ms(item)
    if ms == 0:
        raise Wrong(item.found(), "at least 1ms")
    return ms


def _range_ms(item: Item) -> tuple[int, int]:
    return _parsed(item, quantities.parse_range_ms, quantities.A_RANGE_MS)


def _rate(item: Item) -> float:
    rate = _parsed(item, quantities.parse_rate, quantities.A_RATE)
    if rate == 0:
        raise Wrong(item.found(), "more than 0/s")
    return rate


def _share(item: Item) -> float:
    share = item.number()
    if share is None:
        share = _parsed(item, quantities.parse_share, quantities.A_SHARE)
    if not 0 <= share <= 1:
        raise Wrong(item.found(), quantities.A_SHARE)
    return share


def _factor(item: Item) -> float:
    number = item.number()
    if number is None:
        raise Wrong(item.found(), "a factor, such as 1.5")
    return number


_FORMS: Mapping[Form, Callable[[Item], Value]] = MappingProxyType(
    {
        Form.SPAN: _range_ms,
        Form.STEP: lambda item: _parsed(item, quantities.parse_step_ns, quantities.A_STEP),
        Form.FACTOR: _factor,
        Form.SPEED: lambda item: _parsed(item, quantities.parse_speed, quantities.A_SPEED),
        Form.SIZE: lambda item: item.integer(1, COUNT_MAX),
        Form.SHARE: lambda item: _share(item),
        Form.MEMORY: lambda item: _parsed(item, quantities.parse_size, quantities.A_SIZE),
        Form.PORT: _text("the name of a port"),
        Form.CLOCK: _text("lease or wall"),
        Form.CHOICE: _text("a word"),
        Form.PATTERN: _text("a file's name, or a pattern such as *.log"),
        Form.KINDS: lambda item: item.each("faults", one_of(tuple(KINDS))),
    }
)
