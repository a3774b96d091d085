"""The claim `resource`: the guarded resource accepts no write with a token lower than one that it had accepted.

A token was accepted for certain once a guarded write with it has completed `ok`, or a guarded read has shown it as the
last one. The claim is violated when a later operation (one invoked after that) shows a lower token accepted. Writes
that overlap may be accepted in either order.

The same resource without the guard (`"guarded": false` in the invoke's value) can't be violated: its stale writes are
counted, since each overwrote, unseen, what a later holder had written. That is what fencing buys.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from checker.history import History, Operation
from checker.narrator import FINDINGS_MAX, Narrator, completed_s, invoked_s
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "resource"


def check(history: History, narrator: Narrator) -> ClaimResult:
    findings: list[Finding] = []
    violations = guarded_writes = refused = unguarded_writes = lost = 0
    for operations in history.by_key.values():
        guarded: list[Operation] = []
        unguarded: list[Operation] = []
        for operation in operations:
            if operation.f not in ("write", "read"):
                continue
            if operation.value.get("guarded") is False:
                unguarded.append(operation)
            else:
                guarded.append(operation)
                refused += operation.outcome == "fail" and operation.error == "stale-token"
        guarded_writes += sum(_accepted_write(operation) for operation in guarded)
        unguarded_writes += sum(_accepted_write(operation) for operation in unguarded)
        lost += sum(1 for _, late in _stale(unguarded) if late.f == "write")
        for accepted, stale in _stale(guarded):
            violations += 1
            if len(findings) < FINDINGS_MAX:
                findings.append(finding(accepted, stale, narrator))
    return result(findings, violations, guarded_writes, refused, unguarded_writes, lost)


def result(
    findings: Sequence[Finding], violations: int, guarded_writes: int, refused: int, unguarded_writes: int, lost: int
) -> ClaimResult:
    """From what was counted."""
    numbers: dict[str, int | float] = {
        "guarded_writes": guarded_writes,
        "stale_writes_refused": refused,
        "violations": violations,
        "unguarded_writes": unguarded_writes,
        "lost_updates": lost,
        "lost_updates_per_1000": round(1000 * lost / unguarded_writes, 3) if unguarded_writes else 0.0,
    }
    return ClaimResult(Verdict.INVALID if violations else Verdict.VALID, tuple(findings), numbers)


def _stale(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Each operation that shows an accepted token lower than one accepted before it began, with the one that was."""
    largest: Operation | None = None
    open_until: list[tuple[int, int]] = []
    for position, operation in enumerate(operations):
        if operation.outcome != "ok" or operation.token is None:
            continue
        while open_until and open_until[0][0] < operation.index:
            done = operations[heappop(open_until)[1]]
            if largest is None or _token(done) > _token(largest):
                largest = done
        heappush(open_until, (operation.end, position))
        if largest is not None and _token(largest) > _token(operation):
            yield largest, operation


def _accepted_write(operation: Operation) -> bool:
    return operation.f == "write" and operation.outcome == "ok"


def finding(accepted: Operation, stale: Operation, narrator: Narrator) -> Finding:
    headline = (
        f"key {stale.key!r}: the guarded resource accepted token {stale.token}"
        f" after it had accepted token {accepted.token}, a larger one"
    )
    shows = "had accepted it" if accepted.f == "write" else "showed it as the last one accepted"
    roles = [
        (accepted, f"{shows} by {completed_s(accepted):.3f} s"),
        (stale, f"began at {invoked_s(stale):.3f} s and shows token {stale.token} accepted"),
    ]
    data = {"kind": "stale-write", "tokens": [accepted.token, stale.token]}
    return narrator.finding(CLAIM, Verdict.INVALID, headline, roles, key=stale.key, data=data)


def _token(operation: Operation) -> int:
    assert operation.token is not None
    return operation.token
