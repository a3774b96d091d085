"""What a scenario's nemesis is going to do: its faults, drawn and planned."""

from __future__ import annotations

from collections.abc import Mapping

from cluster import places, systems
from cluster.places.base import Capability, lacking, usable
from cluster.systems.base import MAIN_PORT, Feature, other_ports
from fencepost.scenario.model import Scenario
from nemesis import kinds, schedule, swarm
from nemesis.schedule import Planned
from nemesis.spec import FaultSpec


def capabilities(scenario: Scenario) -> frozenset[Capability]:
    """What its place can do to its system. Raises UnknownName."""
    system = systems.create(scenario.system, scenario.mutant)
    return usable(places.load(scenario.place).capabilities, system)


def lacking_features(scenario: Scenario) -> Mapping[Capability, Feature]:
    """What its place could do as well if its system had such features. Raises UnknownName."""
    system = systems.create(scenario.system, scenario.mutant)
    return lacking(places.load(scenario.place).capabilities, system)


def ports(scenario: Scenario) -> tuple[str, ...]:
    """The names of the ports of its system. Raises UnknownName."""
    return MAIN_PORT, *other_ports(systems.create(scenario.system, scenario.mutant))


def faults(scenario: Scenario) -> tuple[FaultSpec, ...]:
    """Its nemesis, with what `random` draws. Raises UnknownName."""
    return swarm.expand(
        scenario.nemesis,
        scenario.seed,
        scenario.node_names(),
        scenario.time_limit_ns,
        capabilities(scenario),
        scenario.workload.clients,
    )


def plan(scenario: Scenario) -> tuple[Planned, ...]:
    return schedule.plan(faults(scenario), scenario.seed, scenario.time_limit_ns)


def needs(scenario: Scenario) -> frozenset[Capability]:
    """What its faults need of the place."""
    wanted = {kinds.needs(fault.fault, dict(fault.options)) for fault in faults(scenario)}
    return frozenset(need for need in wanted if need is not None)
