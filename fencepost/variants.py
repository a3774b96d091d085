"""Variants of a scenario: the same idea with sizes and faults drawn from a seed.

Swarm testing (Groce, Zhang, Eide, Chen, Regehr, ISSTA 2012): runs that differ in what they can do at all find more
than runs that can all do everything. So a variant draws, once, how many nodes, clients and keys there are, how long
leases last and how often clients overrun them, and which of the scenario's faults are on; some get the nemesis' own
`random` faults on top, and some a fault that strikes at a node's transitions: when it begins an election, votes, or
leads, which lasts for milliseconds and is hardly ever met by a fault at a time. A quarter of the seeds, and seed 0,
run the scenario as it is written.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from cluster.registry import UnknownName
from fencepost.scenario import Scenario
from fencepost.scenario.model import RECOVER_ALL, RECOVER_QUORUM
from fencepost.scenario.rules import complaints
from nemesis.kinds import CRASH_LOOP, KILL, MEMBERSHIP, PARTITION, PAUSE, RANDOM, TRANSFER
from nemesis.spec import FaultSpec, Moment
from workloads.spec import WorkloadSpec

MS = 1_000_000

#: Faults of these kinds are added; each leaves the promises of a lock service as they are.
ADDED_KINDS = (PARTITION, KILL, PAUSE, TRANSFER, MEMBERSHIP)

#: What a node logs when it begins an election, when it takes on a later term to vote in it, and when it leads.
TRANSITIONS = (r"role=candidate", r"role=follower term=\d+ leader=None", r"role=leader")

PLAIN_SHARE = 0.25
ADDED_SHARE = 0.5
TRANSITION_SHARE = 0.15


def variant(scenario: Scenario, seed: int) -> Scenario:
    """The scenario that `seed` stands for, at the place `sim`. Demands for coverage are gone: one run need not show
    everything. The same for the same seed everywhere."""
    plain = replace(scenario, place="sim", seed=seed, coverage={})
    draws = random.Random(f"{seed}/variant/{scenario.name}")
    if seed == 0 or draws.random() < PLAIN_SHARE:
        return plain
    drawn = replace(
        plain,
        leader_changes_max=None,  # a bound for the scenario's own faults
        nodes=draws.choice((3, 3, 5, scenario.nodes)),
        workload=_workload(scenario.workload, draws),
        nemesis=_faults(scenario, draws),
        recovery=draws.choice((RECOVER_ALL, RECOVER_QUORUM)),
    )
    return drawn if _sound(drawn) else plain


def changed(scenario: Scenario, number: int) -> Scenario:
    """A variant of a variant: the same with another seed, and mostly one thing about it drawn anew. The same for the
    same number everywhere."""
    draws = random.Random(f"{number}/changed/{scenario.name}")
    seeded = replace(scenario, seed=draws.randrange(2**32))
    match draws.randrange(5):
        case 0:
            return seeded
        case 1:
            drawn = replace(seeded, workload=_workload(scenario.workload, draws))
        case 2:
            drawn = replace(seeded, nemesis=(*scenario.nemesis, _random_faults(draws)))
        case 3:
            drawn = replace(seeded, nemesis=(*scenario.nemesis, _at_a_transition(draws)))
        case _:
            drawn = replace(seeded, nemesis=tuple(fault for fault in scenario.nemesis if draws.random() < 0.7))
    return drawn if _sound(drawn) else seeded


def _workload(spec: WorkloadSpec, draws: random.Random) -> WorkloadSpec:
    """Kinds differ in what they rest on, so what they do stays; only how many do it, and how fast, is drawn."""
    factor = draws.choice((0.3, 0.5, 1.0, 1.0, 2.0))
    shortest_ms = max(200, 2 * spec.hold_ms[1])
    return replace(
        spec,
        clients=max(2, draws.choice((2, spec.clients // 2, spec.clients))),
        keys=draws.choice((1, max(1, spec.keys // 2), spec.keys)),
        rate=spec.rate * draws.choice((0.5, 1.0, 2.0)),
        lease_ms=max(min(spec.lease_ms, shortest_ms), int(spec.lease_ms * factor)),
        wait_ms=int(spec.wait_ms * draws.choice((0.5, 1.0, 4.0))),
        overrun=draws.choice((0.0, spec.overrun, min(0.3, 4 * spec.overrun + 0.02))),
        reads=draws.choice((0.0, spec.reads, 0.4)),
    )


def _faults(scenario: Scenario, draws: random.Random) -> tuple[FaultSpec, ...]:
    kept = [fault for fault in scenario.nemesis if draws.random() < 0.7]
    if draws.random() < ADDED_SHARE:
        kept.append(_random_faults(draws))
    if draws.random() < TRANSITION_SHARE:
        kept.append(_at_a_transition(draws))
    return tuple(kept)


def _random_faults(draws: random.Random) -> FaultSpec:
    every_ms = draws.choice((1_500, 3_000, 6_000))
    lasts_ms = draws.choice((600, 1_000, every_ms // 2, every_ms * 3 // 4))
    return FaultSpec(RANDOM, every_ns=every_ms * MS, for_ns=lasts_ms * MS, options=(("kinds", ADDED_KINDS),))


def _at_a_transition(draws: random.Random) -> FaultSpec:
    kind = draws.choice((KILL, PAUSE, CRASH_LOOP, PARTITION))
    return FaultSpec(
        kind,
        target=None if kind == PARTITION else draws.choice(("leader", "follower", "one")),
        shape="isolated-leader" if kind == PARTITION else None,
        every_ns=draws.choice((2_000, 4_000)) * MS,
        for_ns=800 * MS,
        when=Moment(log=draws.choice(TRANSITIONS), after_ns=draws.choice((0, 20, 150)) * MS),
    )


def _sound(scenario: Scenario) -> bool:
    try:
        return not any(True for _ in complaints(scenario))
    except UnknownName:
        return False


def seeds_of(text: str) -> Sequence[int]:
    """ "A..B" or one number, both ends included. Raises ValueError with what would do."""
    low, dots, high = text.partition("..")
    try:
        first = int(low)
        last = int(high) if dots else first
    except ValueError:
        raise ValueError("seeds such as 0..999, or one number") from None
    if not 0 <= first <= last:
        raise ValueError("seeds from 0 up, the smaller one first, such as 0..999")
    return range(first, last + 1)
