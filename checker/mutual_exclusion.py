"""The claim `mutual-exclusion`: nobody is shown to hold a key while an earlier grant must still be in force.

A grant (an ok acquire) is in force from its completion until `invoke + lease * (1 - e)`, with e the declared error of
the clocks: the service can't have started the lease before the invoke. It ends for certain at the invoke of its first
release, unless that release surely failed. The claim is violated when a proof that another, larger token holds or held
the key (an ok acquire, release, renew or inspect) completes while the grant is in force.

Renewals move the end. From its invoke on a renewal that did not surely fail may already have replaced the lease by its
own, which may be shorter; once it has completed `ok`, and no other one was open meanwhile, it has replaced it.

The bound rests on the declared clock error. A finding while a fault was active that is known to break that assumption
(its `breaks` names "clock_error") says nothing about the service: it makes the claim `unknown`, not `invalid`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

from checker.history import OPEN, History, Operation
from checker.narrator import FINDINGS_MAX, Narrator
from checker.timeline import NANOSECONDS, Timeline
from checker.verdict import ASSUMPTION_BROKEN, ClaimResult, Fault, Finding, Verdict

CLAIM = "mutual-exclusion"

#: The assumption that the claim rests on, as faults name it.
CLOCK_ERROR = "clock_error"

PROOFS = ("acquire", "release", "renew", "inspect")


@dataclass(frozen=True, slots=True)
class Overlap:
    """`proof` completed while `grant` was in force until `until_ns`."""

    grant: Operation
    proof: Operation
    until_ns: int


def check(history: History, narrator: Narrator, timeline: Timeline, *, clock_error: float) -> ClaimResult:
    findings: list[Finding] = []
    violations = excused = 0
    for operations in history.by_key.values():
        for overlap in overlaps(operations, clock_error):
            broken = broken_assumption(timeline, overlap.grant.index, overlap.proof.end)
            excused += broken is not None
            violations += broken is None
            if len(findings) < FINDINGS_MAX:
                findings.append(finding(overlap, broken, narrator, clock_error))
    grants = [operation for operation in history.operations if operation.f == "acquire" and operation.outcome == "ok"]
    grants = [grant for grant in grants if grant.settled is None]
    endless = sum(grant.lease_ns is None for grant in grants)
    return result(findings, violations, excused, len(grants), endless)


def result(findings: Sequence[Finding], violations: int, excused: int, grants: int, endless: int) -> ClaimResult:
    """From what was counted; `endless` grants have no lease."""
    verdict = Verdict.INVALID if violations else Verdict.UNKNOWN if excused else Verdict.VALID
    if endless:
        headline = f"{endless} of {grants} grants carry no lease_ms: how long they are in force is unknown"
        findings = [*findings, Finding(CLAIM, Verdict.UNKNOWN, headline, data={"kind": "no-lease", "grants": endless})]
        verdict = Verdict.worst([verdict, Verdict.UNKNOWN])
    numbers = {"grants": grants, "violations": violations, "assumption_broken": excused}
    return ClaimResult(verdict, tuple(findings), numbers)


def overlaps(operations: Sequence[Operation], clock_error: float) -> Iterator[Overlap]:
    """The grants of one key during which a larger token was shown to hold it, each once, with the first such proof."""
    moves: dict[int, list[Operation]] = {}
    completed: list[Operation] = []
    for operation in operations:
        if operation.outcome == "ok" and operation.token is not None and operation.f in PROOFS:
            completed.append(operation)
        if operation.f in ("release", "renew") and operation.outcome != "fail" and operation.token is not None:
            moves.setdefault(operation.token, []).append(operation)
    completed.sort(key=_end)
    in_force: list[tuple[int, int]] = []
    for position, proof in enumerate(completed):
        assert proof.token is not None
        # A grant that is popped was outlived, given up or violated: either way it has nothing more to say.
        while in_force and in_force[0][0] < proof.token:
            grant = completed[heappop(in_force)[1]]
            of_token = [move(one, clock_error) for one in moves.get(_token(grant), ())]
            until = in_force_until(grant.end, lease_end(grant, clock_error), proof.end, of_token)
            if _end_time(proof) < until:
                yield Overlap(grant, proof, until)
        if proof.f == "acquire" and proof.lease_ns is not None:
            heappush(in_force, (proof.token, position))


def _token(grant: Operation) -> int:
    assert grant.token is not None
    return grant.token


@dataclass(frozen=True, slots=True)
class Move:
    """A release or renewal that did not surely fail. `lease_end` is as `lease_end` says it."""

    index: int
    end: int
    release: bool
    lease_end: int


def in_force_until(grant_end: int, until: int, proof_end: int, moves: Sequence[Move]) -> int:
    """The end of a grant as far as the operations on its token (`moves`) allow to say it when a proof completes.

    `until` is the end of its own lease.
    """
    busy_until = grant_end
    for move in moves:
        if move.index >= proof_end:
            break
        if move.release:
            return 0
        alone = move.index > busy_until
        busy_until = max(busy_until, move.end)
        renewed = alone and move.end < proof_end and not _another_began(moves, move)
        until = move.lease_end if renewed else min(until, move.lease_end)
    return until


def _another_began(moves: Sequence[Move], renewal: Move) -> bool:
    return any(renewal.index < other.index < renewal.end for other in moves)


def move(operation: Operation, clock_error: float) -> Move:
    return Move(operation.index, operation.end, operation.f == "release", lease_end(operation, clock_error))


def lease_end(operation: Operation, clock_error: float) -> int:
    """When the lease can be over at the earliest; long ago where the history does not say how long it is."""
    lease_ns = operation.lease_ns
    if lease_ns is None:
        return 0
    return operation.invoke.time + int(lease_ns * (1 - clock_error))


def broken_assumption(timeline: Timeline, start: int, end: int) -> Fault | None:
    """A fault between two positions that is known to have broken what the claim rests on."""
    for fault in timeline.active(start, end):
        if CLOCK_ERROR in fault.breaks:
            return fault
    return None


def finding(overlap: Overlap, broken: Fault | None, narrator: Narrator, clock_error: float) -> Finding:
    grant, proof = overlap.grant, overlap.proof
    early_s = (overlap.until_ns - _end_time(proof)) / NANOSECONDS
    headline = f"key {grant.key!r}: token {proof.token} was held {early_s:.3f} s before token {grant.token} could end"
    if broken is not None:
        headline += f"; the assumed clock error of {clock_error:g} was broken by {broken.words()}"
    lease_s = (grant.lease_ns or 0) / NANOSECONDS
    roles = [
        (grant, f"in force until {overlap.until_ns / NANOSECONDS:.3f} s at least (lease {lease_s:g} s, not released)"),
        (proof, f"shows token {proof.token} {early_s:.3f} s too early"),
    ]
    data: dict[str, Any] = {
        "kind": ASSUMPTION_BROKEN if broken else "overlap",
        "tokens": [grant.token, proof.token],
        "in_force_until_s": overlap.until_ns / NANOSECONDS,
        "early_s": early_s,
    }
    if broken is None:
        from checker import pair_graph  # it takes long to load, and most histories fit

        data["cycle"] = pair_graph.too_early(grant, proof)
    verdict = Verdict.UNKNOWN if broken else Verdict.INVALID
    return narrator.finding(CLAIM, verdict, headline, roles, key=grant.key, data=data)


def _end(operation: Operation) -> int:
    return operation.end


def _end_time(operation: Operation) -> int:
    assert operation.completion is not None
    assert operation.end != OPEN
    return operation.completion.time
