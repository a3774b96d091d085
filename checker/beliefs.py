"""The claim `beliefs`: how often two clients believed at once that they held a key. Information, never a violation.

A client believes from the completion of its ok acquire until it invokes the release of that token. One that never does
believes until its lease is over, counted by itself from its invoke. A client that overruns its lease while the key
is granted to another one is how a correct service comes to have two believers: fencing tokens are there for that.
"""

from __future__ import annotations

from collections.abc import Sequence

from checker.history import History, Operation
from checker.narrator import Narrator
from checker.timeline import NANOSECONDS
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "beliefs"


def check(history: History, narrator: Narrator) -> ClaimResult:
    """`overlaps` counts beliefs that began during another client's, `seconds` the time with two believers or more."""
    overlaps = most = shared_ns = 0
    first: tuple[Operation, Operation] | None = None
    for operations in history.by_key.values():
        believing: dict[int, Operation] = {}
        since = 0
        for time, starts, grant in _boundaries(operations):
            if len(believing) >= 2:
                shared_ns += time - since
            since = time
            if not starts:
                del believing[grant.index]
                continue
            other = next((held for held in believing.values() if held.process != grant.process), None)
            if other is not None:
                overlaps += 1
                first = first or (other, grant)
            believing[grant.index] = grant
            most = max(most, len(believing))
    findings: tuple[Finding, ...] = ()
    if first is not None:
        other, grant = first
        headline = (
            f"{'once' if overlaps == 1 else f'{overlaps} times'} two clients believed at once that they held a key;"
            f" the first time, key {grant.key!r}"
        )
        roles = [(other, "still believed"), (grant, "began to believe")]
        data = {"kind": "two-believers", "tokens": [other.token, grant.token]}
        findings = (narrator.finding(CLAIM, Verdict.VALID, headline, roles, key=grant.key, data=data),)
    numbers = {"overlaps": overlaps, "seconds": round(shared_ns / NANOSECONDS, 3), "most_at_once": most}
    return ClaimResult(Verdict.VALID, findings, numbers)


def _boundaries(operations: Sequence[Operation]) -> list[tuple[int, bool, Operation]]:
    """Where beliefs start (True) and end (False), in order of time; what ends goes before what starts then."""
    given_up: dict[int, int] = {}
    for operation in operations:
        if operation.f == "release" and operation.token is not None:
            given_up.setdefault(operation.token, operation.invoke.time)
    boundaries: list[tuple[int, bool, Operation]] = []
    for grant in operations:
        if grant.f != "acquire" or grant.outcome != "ok" or grant.completion is None or grant.token is None:
            continue
        start = grant.completion.time
        end = given_up.get(grant.token, grant.invoke.time + (grant.lease_ns or 0))
        if end > start:
            boundaries += [(start, True, grant), (end, False, grant)]
    return sorted(boundaries, key=_time_then_ends)


def _time_then_ends(boundary: tuple[int, bool, Operation]) -> tuple[int, bool]:
    return boundary[0], boundary[1]
