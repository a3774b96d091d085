"""The claim `ghosts`: once the faults are healed and the clients done, every key can be had.

The runner's last phase, "final", takes each key once more, with the patience to outlast any lease and a bound on top. A
lock that nobody can have even then is held by nobody: a grant whose client never learned of it, or one that never ends.
Where the patience was too short for that, because a lease of somebody who may hold the key was not over yet (a grant
that was not given back, or an acquire of unknown outcome), nothing is said; unless its client hung up as soon as it had
asked (`abandon_ms` 0): it can't have acknowledged anything, so such a lock must not last.
A history without that phase leaves the claim unknown, and so does a key that was not taken in it, or of which no
acquire was answered.
"""

from __future__ import annotations

from collections.abc import Sequence

from checker.history import NEMESIS, History, Operation
from checker.narrator import FINDINGS_MAX, Narrator
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "ghosts"

#: Refusals that say that somebody else had the lock all the while.
REFUSALS = ("held", "timeout")

#: Keys that a finding names; a long run has thousands.
KEYS_NAMED_MAX = 5


def check(history: History, narrator: Narrator) -> ClaimResult:
    start = _final_phase(history)
    if start is None:
        return _unknown("the history has no final phase, in which every key is taken once more", "no-phase")
    findings: list[Finding] = []
    keys = not_had = 0
    untried: list[str] = []
    for key, operations in history.by_key.items():
        acquires = [operation for operation in operations if operation.f == "acquire" and operation.index > start]
        if not acquires:
            untried.append(repr(key))
            continue
        keys += 1
        had = any(operation.outcome == "ok" for operation in acquires)
        if not had and not _may_be_held(operations, acquires[-1]):
            not_had += 1
            findings.append(_finding(key, acquires[-1], narrator))
    if not history.by_key:
        return _unknown("no key was ever used, so none shows whether it could be had in the end", "no-key")
    if untried:
        named = ", ".join(untried[:KEYS_NAMED_MAX]) + (", ..." if len(untried) > KEYS_NAMED_MAX else "")
        message = f"not taken in the final phase: {named} ({len(untried)} of {len(history.by_key)} keys)"
        findings.append(Finding(CLAIM, Verdict.UNKNOWN, message, data={"kind": "untried", "keys": len(untried)}))
    findings.sort(key=lambda finding: finding.verdict is not Verdict.INVALID)  # before some are left out
    verdict = Verdict.worst([Verdict.VALID, *(finding.verdict for finding in findings)])
    return ClaimResult(verdict, tuple(findings[:FINDINGS_MAX]), {"keys": keys, "not_had": not_had})


def _unknown(message: str, kind: str) -> ClaimResult:
    return ClaimResult(Verdict.UNKNOWN, (Finding(CLAIM, Verdict.UNKNOWN, message, data={"kind": kind}),))


def _final_phase(history: History) -> int | None:
    for event in reversed(history.events):
        if event.process == NEMESIS and event.f == "phase" and (event.value or {}).get("name") == "final":
            return event.index
    return None


def _may_be_held(operations: Sequence[Operation], last: Operation) -> bool:
    """Whether somebody may hold the key, under a lease that is not over, when the attempt `last` ends."""
    if last.completion is None:
        return False
    returned = {
        operation.token
        for operation in operations
        if operation.f == "release" and (operation.outcome == "ok" or operation.error == "not-held")
    }
    for operation in operations:
        if operation.f != "acquire" or operation.outcome == "fail" or operation.index >= last.index:
            continue
        if operation.value.get("abandon_ms") == 0 and operation.outcome == "info":
            continue
        if operation.token is not None and operation.token in returned:
            continue
        end = last if operation.completion is None else operation
        assert end.completion is not None
        if end.completion.time + (operation.lease_ns or 0) > last.completion.time:
            return True
    return False


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
