"""The sentences that a report explains itself with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VerdictWords:
    name: str
    symbol: str
    sentence: str


VERDICTS = {
    "valid": VerdictWords("valid", "✓", "Every claim that was checked held."),
    "invalid": VerdictWords("invalid", "✗", "A claim was violated."),
    "unknown": VerdictWords("unknown", "?", "There is no verdict: evidence is missing, or a budget ran out."),
}

CLAIMS = {
    "linearizable": "Each key behaved as one lock whose state changed at single moments, in an order that fits what "
    "every client saw.",
    "mutual-exclusion": "No grant took effect while another client's grant was still in force.",
    "fencing": "Tokens are unique, and a later grant has the larger token.",
    "resource": "The guarded resource accepted no write with a token lower than one it had accepted before.",
    "leases": "No lock was lost before its lease could be over, and none lived far beyond it.",
    "ghosts": "After the faults were healed no key was held by nobody.",
    "agreement": "All nodes applied the same commands with the same results, and nothing acknowledged is missing.",
    "recovery": "After healing, the cluster served again within its bound.",
    "beliefs": "How often two clients believed at once that they held the lock, through no fault of the service.",
    "coverage": "The run exercised what its scenario says that it must.",
}

COVERAGE = {
    "operations": "operations that completed ok or fail",
    "leader_changes": "changes of the leader or its term after the first",
    "expiries": "leases that ended by expiry",
    "ghosts": "grants whose client was gone, cleaned up",
    "faults": "faults that verifiably took effect",
    "partitions": "partitions that verifiably took effect",
    "kills": "kills that verifiably took effect",
    "pauses": "pauses that verifiably took effect",
    "stops": "stops and crash loops that verifiably took effect",
    "links": "faults of links, beside partitions, that verifiably took effect",
    "clocks": "clock faults that verifiably took effect",
    "disks": "disk faults that verifiably took effect",
    "files": "changes of what is on disk that verifiably took effect",
    "transfers": "moves of leadership that verifiably took effect",
    "members": "changes of members that verifiably took effect",
    "clients": "faults of clients that verifiably took effect",
    "nodes_with_clients": "nodes on which a client's operation completed",
}
