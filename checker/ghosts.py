"""The claim `ghosts`: once the faults are healed and the clients done, every key can be had.

The runner's last phase, "final", takes each key once more, with the patience to outlast any lease and a bound on top. A
lock that nobody can have even then is held by nobody: a grant whose client never learned of it, or one that never ends.
A history without that phase leaves the claim unknown, and so does a key of which no acquire was answered.
"""

from __future__ import annotations

from checker.history import NEMESIS, History, Operation
from checker.narrator import FINDINGS_MAX, Narrator
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "ghosts"

#: Refusals that say that somebody else had the lock all the while.
REFUSALS = ("held", "timeout")


def check(history: History, narrator: Narrator) -> ClaimResult:
    start = _final_phase(history)
    if start is None:
        message = "the history has no final phase, in which every key is taken once more"
        return ClaimResult(Verdict.UNKNOWN, (Finding(CLAIM, Verdict.UNKNOWN, message, data={"kind": "no-phase"}),))
    findings: list[Finding] = []
    keys = 0
    for key, operations in history.by_key.items():
        acquires = [operation for operation in operations if operation.f == "acquire" and operation.index > start]
        if not acquires:
            continue
        keys += 1
        if not any(operation.outcome == "ok" for operation in acquires):
            findings.append(_finding(key, acquires[-1], narrator))
    verdict = Verdict.worst([Verdict.VALID, *(finding.verdict for finding in findings)])
    return ClaimResult(verdict, tuple(findings[:FINDINGS_MAX]), {"keys": keys, "not_had": len(findings)})


def _final_phase(history: History) -> int | None:
    for event in reversed(history.events):
        if event.process == NEMESIS and event.f == "phase" and (event.value or {}).get("name") == "final":
            return event.index
    return None


def _finding(key: str, last: Operation, narrator: Narrator) -> Finding:
    refused = last.outcome == "fail" and last.error in REFUSALS
    verdict = Verdict.INVALID if refused else Verdict.UNKNOWN
    if refused:
        waited_s = last.value.get("wait_ms", 0) / 1000
        headline = f"key {key!r}: held by nobody: every client is done, and {waited_s:g} s were not enough to get it"
    else:
        headline = f"key {key!r}: whether it could be had in the end is unknown"
    roles = [(last, "the last attempt")]
    return narrator.finding(
        CLAIM, verdict, headline, roles, key=key, data={"kind": "not-had" if refused else "unknown"}
    )
