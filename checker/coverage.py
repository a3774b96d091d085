"""The claim `coverage`: the run exercised at least what its scenario demands; else it proved too little to be accepted.

A fault counts only with evidence that it took effect. Expiries and ghosts are what the system's own counters say; a run
that recorded none has none to show.
"""

from __future__ import annotations

from collections.abc import Mapping

from checker.history import History
from checker.options import OptionsError
from checker.timeline import Timeline
from checker.verdict import COVERAGE, ClaimResult, Finding, Verdict

#: Demands that count faults, and the kinds that each counts.
FAULT_KINDS: Mapping[str, tuple[str, ...]] = {
    "partitions": ("partition",),
    "kills": ("kill",),
    "pauses": ("pause",),
    "stops": ("stop", "crash-loop"),
    "links": ("delay", "throttle", "stall", "reset", "flapping", "large-packets", "duplicate", "reorder", "corrupt"),
    "clocks": ("clock",),
    "starvations": ("starve",),
    "disks": ("disk-stall", "disk-slow", "disk-full", "disk-error", "disk-lose-unsynced"),
    "files": ("disk-flip", "disk-truncate", "disk-restore"),
    "transfers": ("transfer",),
    "members": ("membership",),
    "clients": ("client-pause", "client-partition"),
}

#: What can be demanded, and what it counts.
COVERAGE_KEYS: Mapping[str, str] = {
    "operations": "operations that completed as ok or fail",
    "leader_changes": "changes of leader or term after the first leader",
    "expiries": "leases that the system ended",
    "ghosts": "grants that the system took back because their client was gone",
    "faults": "faults of any kind that verifiably took effect",
    "partitions": "partitions that verifiably took effect",
    "kills": "kills that verifiably took effect",
    "pauses": "pauses that verifiably took effect",
    "stops": "clean stops and crash loops that verifiably took effect",
    "links": "delays, resets and other faults of links that verifiably took effect, beside partitions",
    "clocks": "clock faults that verifiably took effect",
    "starvations": "starvations that verifiably took effect",
    "disks": "disk faults that verifiably took effect",
    "files": "changes of what is on disk that verifiably took effect",
    "transfers": "moves of leadership that verifiably took effect",
    "members": "changes of members that verifiably took effect",
    "clients": "faults of clients that verifiably took effect",
    "nodes_with_clients": "nodes on which at least one operation of a client completed",
}


def measure(history: History, timeline: Timeline) -> dict[str, int]:
    """What the run exercised, for every key that can be demanded."""
    completed = [operation for operation in history.operations if operation.outcome != "info"]
    nodes = len({operation.node for operation in completed if operation.node is not None})
    return measured(len(completed), nodes, timeline)


def measured(operations: int, nodes: int, timeline: Timeline) -> dict[str, int]:
    """From what was counted of the clients: operations that completed, and nodes on which any did."""
    effective = [fault for fault in timeline.faults if fault.took_effect]
    counters = timeline.counters or {}
    return {
        "operations": operations,
        "leader_changes": len(timeline.leader_changes()),
        "expiries": counters.get("expiries", 0),
        "ghosts": counters.get("ghosts", 0),
        "faults": len(effective),
        **{name: sum(fault.kind in kinds for fault in effective) for name, kinds in FAULT_KINDS.items()},
        "nodes_with_clients": nodes,
    }


def check(found: Mapping[str, int], demanded: Mapping[str, int], timeline: Timeline) -> ClaimResult:
    """Compare; raises OptionsError for a demand that is not known."""
    findings = []
    for name, needed in demanded.items():
        if name not in COVERAGE_KEYS:
            raise OptionsError(f"unknown coverage {name!r}; known are {', '.join(COVERAGE_KEYS)}")
        if found[name] < needed:
            why = ""
            if name in ("expiries", "ghosts") and (timeline.counters is None or name not in timeline.counters):
                why = "; the history has no counters of it"
            message = f"{name}: {found[name]} found, {needed} needed ({COVERAGE_KEYS[name]}){why}"
            data = {"demand": name, "found": found[name], "needed": needed}
            findings.append(Finding(COVERAGE, Verdict.UNKNOWN, message, data=data))
    numbers = {name: found[name] for name in demanded}
    return ClaimResult(Verdict.UNKNOWN if findings else Verdict.VALID, tuple(findings), numbers)
