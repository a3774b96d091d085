"""What is wrong with a scenario as a whole: parts that are fine each and do not go together.

A scenario that breaks a rule would run, and prove nothing, or something else than its author believes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from checker import CLAIMS, EXCUSABLE, NEVER_INVALID
from checker.coverage import FAULT_KINDS
from cluster import places, registry, systems
from cluster.places.base import Capability
from cluster.registry import UnknownName
from cluster.words import counted
from fencepost.quantities import NS_PER_MS, format_duration, plain
from fencepost.scenario import chaos
from fencepost.scenario.model import RECOVER_QUORUM, Scenario
from fencepost.yaml_file import choice
from nemesis.spec import FaultSpec, first_start_ns, validate
from nemesis.swarm import RANDOM_THROUGHOUT
from workloads import kinds
from workloads.spec import WorkloadSpec

#: When the first fault of `nemesis: random` is over at the latest.
RANDOM_NS_MIN = first_start_ns(RANDOM_THROUGHOUT) + RANDOM_THROUGHOUT.for_ns


@dataclass(frozen=True, slots=True)
class Complaint:
    """As a problem of the file. `rests_on`: fields that must have been readable for it to be true."""

    field: str
    found: str
    remedy: str
    rests_on: tuple[str, ...] = ()


def complaints(scenario: Scenario) -> Iterator[Complaint]:
    """Every rule that the scenario breaks."""
    yield from _names(scenario)
    yield from _workload(scenario)
    yield from _faults(scenario)
    yield from _coverage(scenario)
    yield from _expectation(scenario)


def _names(scenario: Scenario) -> Iterator[Complaint]:
    system = None
    try:
        system = systems.create(scenario.system)
    except UnknownName as problem:
        yield _unknown("system", scenario.system, systems.names(), problem)
    else:
        folder = None if scenario.path is None else scenario.path.parent
        if folder is not None and (hidden := registry.hidden(scenario.system, folder)) is not None:
            remedy = "modules of different names in the scenarios of one suite"
            yield Complaint("system", f"{hidden}, while another module of that name is loaded", remedy)
        if scenario.mutant is not None and scenario.system != "lockd":
            yield Complaint("mutant", f"a mutant of {scenario.system}", "the system lockd: only it has mutants")
    try:
        places.load(scenario.place)
        unfit = None if system is None else places.unfit(scenario.place, system)
    except UnknownName as problem:
        yield _unknown("place", scenario.place, places.names(), problem)
    else:
        if unfit is not None:
            found = f"{scenario.place} for the system {scenario.system}: {unfit}"
            yield Complaint("place", found, "another place, such as local", ("system",))


def _unknown(field: str, name: str, known: tuple[str, ...], problem: UnknownName) -> Complaint:
    if registry.is_own(name):
        return Complaint(field, str(problem), f"package.module:Class, or one of {', '.join(known)}")
    return Complaint(field, repr(name), f"{choice(name, known)}, or one of your own: package.module:Class")


def _workload(scenario: Scenario) -> Iterator[Complaint]:
    spec = scenario.workload
    run = f"a run of {format_duration(scenario.time_limit_ns)}"
    for field, ms in (("lease", spec.lease_ms), ("wait", spec.wait_ms)):
        if ms * NS_PER_MS >= scenario.time_limit_ns:
            found = f"a {field} of {format_duration(ms * NS_PER_MS)} in {run}"
            yield Complaint(f"workload.{field}", found, "less than the time limit", ("time_limit",))
    if spec.hold_ms[1] >= spec.lease_ms:
        hold, lease = (format_duration(ms * NS_PER_MS) for ms in (spec.hold_ms[1], spec.lease_ms))
        remedy = "holds shorter than the lease (overrun says how many outlive it)"
        yield Complaint("workload.hold", f"holds of up to {hold} under a lease of {lease}", remedy, ("workload.lease",))
    if spec.write_delay_ms[1] * NS_PER_MS >= scenario.time_limit_ns:
        delay = format_duration(spec.write_delay_ms[1] * NS_PER_MS)
        remedy = "less than the time limit"
        yield Complaint("workload.write_delay", f"writes that take up to {delay} in {run}", remedy, ("time_limit",))
    yield from _steps(spec)


def _steps(spec: WorkloadSpec) -> Iterator[Complaint]:
    keys, named = spec.key_names(), set()
    for position, step in enumerate(spec.steps or ()):
        path = f"workload.steps[{position}]"
        if step.client >= spec.clients:
            found = f"client {step.client} of {counted(spec.clients, 'client')}, which count from 0"
            yield Complaint(f"{path}.client", found, "one of them", ("workload.clients",))
        if step.key not in keys:
            yield Complaint(f"{path}.key", repr(step.key), f"one of {', '.join(keys[:5])}", ("workload.keys",))
        if step.do in ("write", "read") and not kinds.uses_resource(spec.kind):
            yield Complaint(f"{path}.do", step.do, "another kind, or a step on the lock", ("workload.kind",))
        needed = {"acquire": ("lease_ms", "wait_ms"), "write": ("data",)}.get(step.do, ())
        if missing := [name for name in needed if name not in dict(step.value)]:
            yield Complaint(f"{path}.value", f"no {' and no '.join(missing)}", f"{', '.join(needed)} of the {step.do}")
        if step.do == "acquire":
            if step.grant in named:
                yield Complaint(f"{path}.grant", f"{step.grant} a second time", "a name of its own")
            named.add(step.grant or "")
        elif step.grant is not None and step.grant not in named:
            yield Complaint(f"{path}.grant", f"{step.grant}, of no acquire before it", "the grant of an earlier one")
        elif step.do in ("release", "write") and step.grant is None and "token" not in dict(step.value):
            yield Complaint(path, f"a {step.do} without a token", "the grant of an acquire before it, or a token")


def _faults(scenario: Scenario) -> Iterator[Complaint]:
    try:
        capabilities, lacking = chaos.capabilities(scenario), chaos.lacking_features(scenario)
        ports = chaos.ports(scenario)
    except UnknownName:
        return
    nodes = scenario.node_names()
    if scenario.recovery == RECOVER_QUORUM and Capability.KILL not in capabilities:
        remedy = "all, or a place that can kill nodes, such as local"
        yield Complaint("recovery", f"a majority by itself at the place {scenario.place}", remedy, ("place",))
    if scenario.nemesis == (RANDOM_THROUGHOUT,) and scenario.time_limit_ns < RANDOM_NS_MIN:
        found = f"random in a run of {format_duration(scenario.time_limit_ns)}, in which no fault fits"
        remedy = f"a time limit of at least {format_duration(RANDOM_NS_MIN)}, or a list of faults"
        yield Complaint("nemesis", found, remedy, ("nemesis", "time_limit"))
        return
    for position, spec in enumerate(scenario.nemesis):
        path = f"nemesis[{position}]"
        clients = scenario.workload.clients
        for problem in validate(spec, nodes, scenario.time_limit_ns, capabilities, clients, lacking, ports):
            rests_on = (path, "nodes", "time_limit", "place")
            yield Complaint(f"{path}.{problem.field}", problem.found, problem.remedy, rests_on)


def resolved(scenario: Scenario, faults: Sequence[FaultSpec]) -> Scenario:
    """The scenario with its faults as they took place. Of what fewer faults can no longer give, less is demanded: a
    run that was cut short must be one that can be run again. A simulated scenario is all that it takes as it is: the
    same seed gives the same faults, bit for bit."""
    if places.loop_factory(scenario.place) is not None:
        return scenario
    happened = replace(scenario, nemesis=tuple(faults))
    bounds = _bounds(happened)
    coverage = {
        name: min(demand, bounds[name].most) if name in bounds else demand for name, demand in scenario.coverage.items()
    }
    return replace(happened, coverage=coverage)


def _coverage(scenario: Scenario) -> Iterator[Complaint]:
    bounds = _bounds(scenario)
    for name, demand in scenario.coverage.items():
        if name in bounds and demand > bounds[name].most:
            bound = bounds[name]
            remedy = f"at most {bound.most}, which is what {bound.source} can give"
            yield Complaint(f"coverage.{name}", str(demand), remedy, bound.rests_on)


def _expectation(scenario: Scenario) -> Iterator[Complaint]:
    """No run can meet what the checker never says."""
    fit = [claim for claim in CLAIMS if claim not in NEVER_INVALID]
    for name, claims, never, possible in (
        ("invalid", scenario.expect.invalid, "which is never violated", fit),
        ("excused", scenario.expect.excused, "which rests on nothing that a fault breaks", EXCUSABLE),
    ):
        for position, claim in enumerate(claims):
            field = f"expect.{name}[{position}]"
            if claim not in possible:
                yield Complaint(field, f"{claim}, {never}", f"some of {', '.join(possible)}")
            elif claim not in scenario.checks:
                checked = [one for one in scenario.checks if one in possible]
                remedy = "a claim that is checked: " + (
                    f"one of {', '.join(checked)}" if checked else "add it to checks"
                )
                yield Complaint(field, claim, remedy, ("checks",))


class _Bound(NamedTuple):
    most: int
    source: str
    rests_on: tuple[str, ...]


def _bounds(scenario: Scenario) -> dict[str, _Bound]:
    """The coverage that a run of the scenario can reach at most, where that is known."""
    spec, time_limit_ns = scenario.workload, scenario.time_limit_ns
    faults = _drawn(scenario)
    bounds = {
        "operations": _Bound(
            int(spec.rate * time_limit_ns / 1e9),
            f"{plain(spec.rate)}/s for {format_duration(time_limit_ns)}",
            ("workload.rate", "time_limit"),
        ),
        "nodes_with_clients": _Bound(
            min(scenario.nodes, spec.clients),
            f"{counted(spec.clients, 'client')} on {counted(scenario.nodes, 'node')}",
            ("nodes", "workload.clients"),
        ),
        "faults": _Bound(
            sum(_times(fault, time_limit_ns) for fault in faults),
            "the faults of nemesis",
            ("nemesis", "time_limit"),
        ),
    }
    for name, group in FAULT_KINDS.items():
        times = sum(_times(fault, time_limit_ns) for fault in faults if fault.fault in group)
        bounds[name] = _Bound(times, f"the {' and '.join(group)} faults of nemesis", ("nemesis", "time_limit"))
    if not scenario.nemesis and spec.overrun == 0 and not kinds.abandons(spec.kind):
        for name in ("expiries", "ghosts"):
            bounds[name] = _Bound(0, "a run without faults or overrun", ("nemesis", "workload.overrun"))
    return bounds


def _drawn(scenario: Scenario) -> tuple[FaultSpec, ...]:
    try:
        return chaos.faults(scenario)
    except UnknownName:  # a complaint of its own
        return scenario.nemesis


def _times(spec: FaultSpec, time_limit_ns: int) -> int:
    """How often a fault can start and end within the time limit."""
    room_ns = time_limit_ns - spec.for_ns - first_start_ns(spec)
    if room_ns < 0:
        return 0
    return 1 if spec.every_ns is None else 1 + room_ns // spec.every_ns
