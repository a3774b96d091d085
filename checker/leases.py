"""The claim `leases`: no lock is lost before its lease can be over, and how long past its lease one lives.

EARLY. A grant is in force from its completion until `invoke + lease * (1 - e)`, unless a release of it was invoked that
did not surely fail. An observation that was invoked after the grant completed, and completed while it is in force, must
not show that it no longer holds: `inspect` that saw free or another token, or a release or renewal of it refused as
"not-held". (Another grant in that time is a matter of `mutual-exclusion`.)

LATE. A lock that is shown to hold past its lease, by an inspect that saw its token or an ok release. With the answer to
an acquire on its way, failovers and restarts, a lock may live past its lease; the claim is violated when it lives
longer than `late_s_max` past it, counted from the acquire's completion. Without a bound LATE is information alone.
Renewed grants are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from checker.history import History, Operation
from checker.mutual_exclusion import CLOCK_ERROR
from checker.narrator import FINDINGS_MAX, Narrator
from checker.timeline import NANOSECONDS, Timeline
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "leases"


def check(
    history: History, narrator: Narrator, timeline: Timeline, *, clock_error: float, late_s_max: float | None
) -> ClaimResult:
    findings: list[Finding] = []
    latest_s = 0.0
    early = 0
    for operations in history.by_key.values():
        moves, seen = _moves(operations)
        for position, grant in enumerate(operations):
            lease_ns = grant.lease_ns
            if grant.f != "acquire" or grant.outcome != "ok" or lease_ns is None or grant.token is None:
                continue
            own = moves.get(grant.token, [])
            if any(move.f == "renew" for move in own):
                continue
            until = grant.invoke.time + int(lease_ns * (1 - clock_error))
            observation = next(_lost(grant, own, islice(operations, position + 1, None), until), None)
            if observation is not None:
                excused = any(CLOCK_ERROR in fault.breaks for fault in timeline.active(grant.index, observation.end))
                early += not excused
                findings.append(_early(grant, observation, narrator, excused=excused))
            late = _late(grant, [*own, *seen.get(grant.token, ())], lease_ns)
            if late is not None:
                latest_s = max(latest_s, late[1])
                if late_s_max is not None and late[1] > late_s_max:
                    findings.append(_too_late(grant, *late, narrator, late_s_max))
    verdict = Verdict.worst([Verdict.VALID, *(finding.verdict for finding in findings)])
    numbers = {"early": early, "latest_s": round(latest_s, 3)}
    return ClaimResult(verdict, tuple(findings[:FINDINGS_MAX]), numbers)


def _moves(operations: Sequence[Operation]) -> tuple[dict[int, list[Operation]], dict[int, list[Operation]]]:
    """What clients did with each token, and which inspects saw it, in the order of their invokes."""
    moves: dict[int, list[Operation]] = {}
    seen: dict[int, list[Operation]] = {}
    for operation in operations:
        if operation.token is None:
            continue
        if operation.f in ("release", "renew"):
            moves.setdefault(operation.token, []).append(operation)
        elif operation.f == "inspect" and operation.outcome == "ok":
            seen.setdefault(operation.token, []).append(operation)
    return moves, seen


def _lost(grant: Operation, own: Sequence[Operation], later: Iterable[Operation], until_ns: int) -> Iterator[Operation]:
    """Observations that the grant no longer holds, in the order of their invokes, while it must."""
    given_up = min((move.index for move in own if move.outcome != "fail"), default=None)
    for operation in later:
        if operation.index < grant.end or operation.completion is None:
            continue
        if operation.invoke.time >= until_ns:
            return
        if operation.completion.time >= until_ns or (given_up is not None and operation.end > given_up):
            continue
        saw_other = operation.f == "inspect" and operation.outcome == "ok" and operation.token != grant.token
        refused = operation.outcome == "fail" and operation.error == "not-held" and operation.token == grant.token
        if saw_other or (refused and operation.f in ("release", "renew")):
            yield operation


def _late(grant: Operation, shows: Sequence[Operation], lease_ns: int) -> tuple[Operation, float] | None:
    """The last proof that the grant still held, among the operations on its token, and how many seconds past its lease
    that was."""
    assert grant.completion is not None
    over = grant.completion.time + lease_ns
    proofs = [operation for operation in shows if operation.outcome == "ok" and operation.invoke.time > over]
    if not proofs:
        return None
    last = max(proofs, key=lambda proof: proof.invoke.time)
    return last, (last.invoke.time - over) / NANOSECONDS


def _early(grant: Operation, observation: Operation, narrator: Narrator, *, excused: bool) -> Finding:
    headline = f"key {grant.key!r}: token {grant.token} was lost before its lease could be over"
    if excused:
        headline += "; the assumed clock error was broken"
    roles = [
        (grant, f"granted for {(grant.lease_ns or 0) / NANOSECONDS:g} s, and not released"),
        (observation, "shows that it no longer holds"),
    ]
    verdict = Verdict.UNKNOWN if excused else Verdict.INVALID
    data = {"kind": "early", "tokens": [grant.token]}
    return narrator.finding(CLAIM, verdict, headline, roles, key=grant.key, data=data)


def _too_late(grant: Operation, proof: Operation, late_s: float, narrator: Narrator, late_s_max: float) -> Finding:
    headline = (
        f"key {grant.key!r}: token {grant.token} held {late_s:.3f} s past its lease; {late_s_max:g} s are allowed"
    )
    roles = [
        (grant, f"granted for {(grant.lease_ns or 0) / NANOSECONDS:g} s"),
        (proof, "shows that it still holds"),
    ]
    data = {"kind": "late", "tokens": [grant.token], "late_s": late_s}
    return narrator.finding(CLAIM, Verdict.INVALID, headline, roles, key=grant.key, data=data)
