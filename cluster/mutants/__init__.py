"""Deliberately broken lock nodes, to measure whether the testbed finds the fault.

Each mutant is a small override of the true node's parts, never a switch inside them. `python -m cluster.mutants NAME
serve ...` runs one as `lockd serve ...` runs the true node.
"""

from __future__ import annotations

from typing import NamedTuple

from cluster.mutants import countdowns, elections, grants, logs, membership, reads, removals, tokens
from cluster.node.core import Core
from cluster.node.storage import Storage


class Mutant(NamedTuple):
    description: str
    core_type: type[Core]
    storage_type: type[Storage] = Storage


MUTANTS = {
    # tokens
    "counter-from-held-locks": Mutant(
        "the token counter is not in the snapshot, but taken from the locks that are held", tokens.CounterFromHeldLocks
    ),
    "counter-not-in-snapshot": Mutant("a snapshot lacks the token counter", tokens.CounterNotInSnapshot),
    "token-from-wall-clock": Mutant("each node takes the token from its wall clock", tokens.TokenFromWallClock),
    # grants
    "believed-unconfirmed": Mutant("a client believes in a grant before it is confirmed", grants.BelievedUnconfirmed),
    "dead-waiter-blocks": Mutant("a waiter whose client is gone blocks the queue", grants.DeadWaiterBlocks),
    "every-node-grants": Mutant("each node grants on its own, without asking the others", grants.EveryNodeGrants),
    "forwarded-twice": Mutant("a copy of a forwarded request is served like another one", grants.ForwardedTwice),
    "grant-after-timeout": Mutant(
        "a waiter whose grant is on its way times out, and the grant is forgotten", grants.GrantAfterTimeout
    ),
    "grant-before-commit": Mutant("a grant is answered before it is committed", grants.GrantBeforeCommit),
    "two-grants-in-flight": Mutant("two grants for one key can be on their way at once", grants.TwoGrantsInFlight),
    # releases and expiries
    "expire-ignores-token": Mutant(
        "countdowns outlive their locks, and an expiry removes whatever holds the key", removals.ExpireIgnoresToken
    ),
    "ghost-clean-up-any-holder": Mutant(
        "the clean-up of a ghost releases whatever holds the key by now", removals.CleansUpAnyHolder
    ),
    "no-ghost-clean-up": Mutant("the grant of a client that is gone is left to its lease", removals.NoGhostCleanUp),
    "release-ignores-token": Mutant("a release removes whatever holds the key", removals.ReleaseIgnoresToken),
    "release-on-applied-state": Mutant(
        "a release is judged on the applied state instead of the projected one", removals.ReleaseOnAppliedState
    ),
    # leases
    "follower-removes": Mutant("a follower drops a lock when its own countdown is over", countdowns.FollowerRemoves),
    "lease-from-queueing": Mutant("a waiter's lease counts from when it queued", countdowns.FromQueueing),
    "lease-on-wall-clock": Mutant("leases are counted down by the wall clock", countdowns.OnWallClock),
    "lease-restarted-by-leader": Mutant(
        "every new leader counts all leases from the beginning", countdowns.RestartedByLeader
    ),
    "timers-not-armed": Mutant(
        "locks that a node knows from its log or a snapshot have no countdown", countdowns.OnlyOfOwnGrants
    ),
    # reads
    "held-from-memory": Mutant("a leader says held without asking whether it still leads", reads.HeldFromMemory),
    "not-held-from-projection": Mutant(
        "not-held may rest on an expiry that is not committed", reads.NotHeldFromProjection
    ),
    "reads-before-term-start": Mutant(
        "a new leader reads before it has committed anything itself", reads.ReadsBeforeTermStart
    ),
    "reads-without-quorum": Mutant("inspect is answered without asking a majority", reads.ReadsWithoutQuorum),
    # elections and commitment
    "commit-with-minority": Mutant("a leader commits what it alone has", elections.CommitWithMinority),
    "counts-votes-twice": Mutant("a copy of a vote counts once more", elections.CountsVotesTwice),
    "never-steps-down": Mutant("a leader goes on when it hears of a later term", elections.NeverStepsDown),
    "no-noop": Mutant("a leader's term begins without an entry of its own", elections.NoNoop),
    "no-pre-vote": Mutant("a node that was cut off comes back with a later term", elections.NoPreVote),
    "older-term-commit": Mutant("entries of older terms are committed by counting", elections.OlderTermCommit),
    "term-not-persisted": Mutant("a node forgets the term when it restarts", elections.TermNotPersisted),
    "vote-not-persisted": Mutant("a node forgets its vote when it restarts", elections.VoteNotPersisted),
    "votes-twice": Mutant("a node votes for everybody who asks in a term", elections.VotesTwice),
    # membership
    "overlapping-changes": Mutant(
        "a change of members begins before the one before it is committed", membership.OverlappingChanges
    ),
    "removed-before-commit": Mutant("a node is called removed before that is committed", membership.DoneBeforeCommit),
    # log, snapshots, disk
    "answers-before-fsync": Mutant("a node answers before its log is on disk", logs.AnswersBeforeFsync),
    "applies-twice": Mutant("a restarted node applies what its snapshot has once more", logs.AppliesTwice),
    "cuts-at-damage": Mutant("what is damaged on disk, and all behind it, is taken for torn", Core, logs.CutsAtDamage),
    "keeps-conflicts": Mutant("a follower keeps entries that the leader's log contradicts", logs.KeepsConflicts),
    "keeps-torn-tail": Mutant("what a crash left of a record stays in the log", Core, logs.KeepsTornTail),
    "merges-snapshots": Mutant("a snapshot is added to the state instead of replacing it", logs.MergesSnapshots),
    "no-consistency-check": Mutant("a follower appends whatever it gets", logs.NoConsistencyCheck),
}


def names() -> tuple[str, ...]:
    return tuple(MUTANTS)


def describe(name: str) -> str:
    """What is wrong with the mutant. Raises KeyError for an unknown name."""
    return MUTANTS[name].description
