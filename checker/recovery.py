"""The claim `recovery`: after the faults were healed, the cluster serves again within a bound.

It rests on the event "ready", which the runner writes once a probe of every node was answered, or gave up. A history
without one, of a run that was cut short for example, leaves the claim unknown.
"""

from __future__ import annotations

from checker.timeline import Timeline
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "recovery"


def check(timeline: Timeline, *, seconds_max: float) -> ClaimResult:
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
