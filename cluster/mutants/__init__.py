"""Deliberately broken lock nodes, to measure whether the testbed finds the fault.

Each mutant is a small override of the true node's parts, never a switch inside them. `python -m cluster.mutants NAME
serve ...` runs one as `lockd serve ...` runs the true node.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.mutants import elections, grants, removals, tokens
from cluster.node.core import Core
from cluster.node.storage import Storage


class Mutant(NamedTuple):
    description: str
    core_type: type[Core]
    storage_type: type[Storage] = Storage


MUTANTS = {
    "commit-with-minority": Mutant("a leader commits what it alone has", elections.CommitWithMinority),
    "every-node-grants": Mutant("each node grants on its own, without asking the others", grants.EveryNodeGrants),
    "expire-ignores-token": Mutant(
        "countdowns outlive their locks, and an expiry removes whatever holds the key", removals.ExpireIgnoresToken
    ),
    "grant-before-commit": Mutant("a grant is answered before it is committed", grants.GrantBeforeCommit),
    "no-ghost-clean-up": Mutant("the grant of a client that is gone is left to its lease", removals.NoGhostCleanUp),
    "reads-without-quorum": Mutant("inspect is answered without asking a majority", grants.ReadsWithoutQuorum),
    "release-ignores-token": Mutant("a release removes whatever holds the key", removals.ReleaseIgnoresToken),
    "release-on-applied-state": Mutant(
        "a release is judged on the applied state instead of the projected one", removals.ReleaseOnAppliedState
    ),
    "token-from-wall-clock": Mutant("each node takes the token from its wall clock", tokens.TokenFromWallClock),
    "vote-not-persisted": Mutant("a node forgets its vote when it restarts", elections.VoteNotPersisted),
}


def names() -> tuple[str, ...]:
    return tuple(MUTANTS)


def describe(name: str) -> str:
    """What is wrong with the mutant. Raises KeyError for an unknown name."""
    return MUTANTS[name].description
