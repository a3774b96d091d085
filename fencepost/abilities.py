"""Which faults can't be had at which place on this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from cluster import places, systems
from cluster.places.base import Capability, Clock, usable
from fencepost.scenario import Scenario, chaos
from nemesis.kinds import CLOCK, KINDS, RANDOM, STARVE, Value, needs

#: What `fencepost doctor` finds, by the names of its checks, that a place or a fault can't do without.
NEEDED_BY_PLACE: Mapping[str, Collection[str]] = MappingProxyType({"docker": ("docker", "image"), "ssh": ("paramiko",)})
NEEDED_BY_CAPABILITY: Mapping[Capability, Collection[str]] = MappingProxyType(
    {Capability.TURN_WALL_CLOCKS: ("proc mem",), Capability.MOUNT_DISKS: ("fuse",)}
)

#: Kinds that need different things with different options.
_VARIANTS: Mapping[str, Mapping[str, Mapping[str, Value]]] = MappingProxyType(
    {
        CLOCK: {"clock: lease": {"clock": Clock.LEASE}, "clock: wall": {"clock": Clock.WALL}},
        STARVE: {"starve of CPU time": {"cpu": 0.5}, "starve of memory": {"memory": 2**26}},
    }
)


def lacks(scenario: Scenario, failed: Collection[str]) -> set[str]:
    """Those of the failed checks that the scenario can't do without."""
    found = {name for name in NEEDED_BY_PLACE.get(scenario.place, ()) if name in failed}
    return found.union(*(_lacks(scenario.place, ability, failed) for ability in chaos.needs(scenario)))


def impossible(failed: Collection[str]) -> dict[str, dict[str, str]]:
    """For each place the faults that it can't do to `lockd`, and why; `failed` are the names of checks that failed."""
    found: dict[str, dict[str, str]] = {}
    for place in places.names():
        able = usable(places.load(place).capabilities, systems.create("lockd"))
        found[place] = {}
        for kind in KINDS.keys() - {RANDOM}:
            for words, options in _VARIANTS.get(kind, {kind: {}}).items():
                need = needs(kind, options)
                lacking = _lacks(place, need, failed)
                if need is not None and need not in able:
                    found[place][words] = "the place doesn't offer it"
                elif lacking:
                    found[place][words] = ", ".join(lacking)
        found[place] = dict(sorted(found[place].items()))
    return found


def _lacks(place: str, ability: Capability | None, failed: Collection[str]) -> list[str]:
    """What does something to real processes; a simulation needs nothing."""
    if ability is None or places.loop_factory(place) is not None:
        return []
    if ability is Capability.TURN_WALL_CLOCKS and place == "local" and "libfaketime" not in failed:
        return []
    return [name for name in NEEDED_BY_CAPABILITY.get(ability, ()) if name in failed]
