"""What a scenario is, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from checker.verdict import ASSUMPTION_BROKEN, ClaimResult, Results, Verdict
from cluster.places import node_names
from nemesis.spec import FaultSpec
from workloads.spec import WorkloadSpec


@dataclass(frozen=True, slots=True)
class Expectation:
    """The verdict that a scenario is expected to get: valid, or a violation of (at least) the claims named.

    `excused`: the scenario breaks an assumption that these claims rest on, so they may also have no verdict, if that is
    the only reason. The others must be valid.
    """

    invalid: tuple[str, ...] = ()
    excused: tuple[str, ...] = ()

    def met_by(self, results: Results) -> bool:
        """Whether a run with these results did what its scenario says. A valid run without the coverage that it
        was asked for did not."""
        if self.invalid:
            return set(self.invalid) <= set(results.violated)
        return all(
            result.verdict is Verdict.VALID or (name in self.excused and _excusable(result))
            for name, result in results.claims.items()
        )


def _excusable(result: ClaimResult) -> bool:
    """Whether nothing but broken assumptions keeps the claim from being valid."""
    doubts = [finding for finding in result.findings if finding.verdict is not Verdict.VALID]
    broken = all(finding.data.get("kind") == ASSUMPTION_BROKEN for finding in doubts)
    return result.verdict is Verdict.UNKNOWN and broken


#: Who has to serve after the faults: all nodes, or first a majority by itself.
RECOVER_ALL, RECOVER_QUORUM = "all", "quorum"

#: What `assumptions.settle` may say.
SETTLE_FROM_LOG, SETTLE_NOTHING = "log", "nothing"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One validated scenario. `path` is the file that it came from and no part of what it says."""

    name: str
    workload: WorkloadSpec
    #: How long the clients and the nemesis go on, not counting set-up and recovery.
    time_limit_ns: int
    system: str = "lockd"
    #: A deliberately broken variant of the system, by name.
    mutant: str | None = None
    place: str = "local"
    #: The path of a file that names hosts, for places that need some.
    hosts: str | None = None
    nodes: int = 5
    #: Every random choice of a run comes from it.
    seed: int = 0
    #: The declared bound on the rate error of any clock, as a share: 0.01 is 1%.
    clock_error: float = 0.01
    #: How long a lock may live past its lease; None: nothing is demanded.
    late_ns: int | None = None
    #: How often the leader may change; None: nothing is demanded.
    leader_changes_max: int | None = None
    #: Whether operations of unknown outcome are settled from the log of the nodes, where these give it.
    settle: bool = True
    nemesis: tuple[FaultSpec, ...] = ()
    #: Who has to serve when the faults are healed.
    recovery: str = RECOVER_ALL
    checks: tuple[str, ...] = ()
    #: Minimums that a run must reach to be accepted.
    coverage: Mapping[str, int] = field(default_factory=dict)
    expect: Expectation = Expectation()
    path: Path | None = field(default=None, compare=False)

    def node_names(self) -> tuple[str, ...]:
        return node_names(self.nodes)
