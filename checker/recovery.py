"""The claim `recovery`: after the faults were healed, the cluster serves again within a bound; and, where that is
bounded too, it has not changed its leader more often than its faults gave reason for.

It rests on the event "ready", which the runner writes once a probe of every node was answered, or gave up. A history
without one, of a run that was cut short for example, leaves the claim unknown.
"""

from __future__ import annotations

from checker.timeline import Timeline
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "recovery"


def check(timeline: Timeline, *, seconds_max: float, leader_changes_max: int | None = None) -> ClaimResult:
    result = _served(timeline, seconds_max)
    if leader_changes_max is None:
        return result
    changes = len(timeline.leader_changes())
    too_many = [] if changes <= leader_changes_max else [_restless(changes, leader_changes_max)]
    verdict = Verdict.INVALID if too_many else result.verdict
    numbers = {**result.numbers, "leader_changes": changes, "leader_changes_max": leader_changes_max}
    return ClaimResult(verdict, (*too_many, *result.findings), numbers)


def _restless(changes: int, changes_max: int) -> Finding:
    message = f"the leader changed more often than allowed: {changes} of {changes_max} times"
    data = {"kind": "leader-changes", "changes": changes, "changes_max": changes_max}
    return Finding(CLAIM, Verdict.INVALID, message, data=data)


def _served(timeline: Timeline, seconds_max: float) -> ClaimResult:
    if not timeline.ready:
        message = "the history does not say whether the cluster was ready again after healing"
        return ClaimResult(Verdict.UNKNOWN, (Finding(CLAIM, Verdict.UNKNOWN, message, data={"kind": "no-probe"}),))
    findings = []
    for ready in timeline.ready:
        if ready.error is not None or ready.seconds is None:
            message = f"the cluster did not serve again after healing [{ready.index}]: {ready.error or 'no time given'}"
            data = {"kind": "not-ready", "index": ready.index, "error": ready.error}
        elif ready.seconds > seconds_max:
            message = (
                f"the cluster served again {ready.seconds:.3f} s after healing [{ready.index}],"
                f" {seconds_max:g} s were allowed"
            )
            data = {"kind": "late", "index": ready.index, "seconds": ready.seconds, "seconds_max": seconds_max}
        else:
            continue
        findings.append(Finding(CLAIM, Verdict.INVALID, message, data=data))
    slowest = max((ready.seconds for ready in timeline.ready if ready.seconds is not None), default=0.0)
    verdict = Verdict.INVALID if findings else Verdict.VALID
    return ClaimResult(verdict, tuple(findings), {"seconds": slowest, "seconds_max": seconds_max})
