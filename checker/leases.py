"""The claim `leases`: no lock is lost before its lease can be over, and how long past its lease one lives.

EARLY. A lease begins when the lock is granted, never while its client waits for it. That was not before the acquire was
invoked, nor before the last invoke of an operation that shows an earlier token to hold the key: call the later of the
two its start. The grant is in force from its completion until `start + lease * (1 - e)`, unless a release of it was
invoked that did not surely fail. No operation that completed while it is in force may show that it no longer holds: one
that shows a later token to hold the key, or, invoked after the grant completed, an inspect that saw the key free or a
release or renewal of the grant that was refused as "not-held".

What several operations together say of leases, and of renewed ones, is decided by `checker.together`, exactly: whether
the history of the key fits at all if no grant that its client was told of ends before its lease can be over. It is
asked where no single operation shows a loss, and reported where it is the leases alone that the history does not fit.
If it would fit but for leases during which a fault broke the assumption about clocks, nobody knows.

LATE. A lock that is shown to hold past its lease, by an inspect that saw its token or an ok release. With the answer to
an acquire on its way, failovers and restarts, a lock may live past its lease; the claim is violated when it lives
longer than `late_s_max` past it, counted from the acquire's completion. Without a bound LATE is information alone.
Renewed grants are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from checker import linearizable
from checker.history import History, Operation
from checker.mutual_exclusion import CLOCK_ERROR, PROOFS
from checker.narrator import FINDINGS_MAX, Narrator
from checker.sweep import Refusal, decide
from checker.timeline import NANOSECONDS, Timeline
from checker.together import Refused, Undecided, decide_leased
from checker.verdict import ASSUMPTION_BROKEN, ClaimResult, Finding, Verdict

CLAIM = "leases"


def check(
    history: History, narrator: Narrator, timeline: Timeline, *, clock_error: float, late_s_max: float | None
) -> ClaimResult:
    findings: list[Finding] = []
    latest_s = 0.0
    early = 0
    for key, operations in history.by_key.items():
        lost = False
        moves, seen = _moves(operations)
        starts, successors = _starts(operations), _successors(operations)
        for position, grant in enumerate(operations):
            lease_ns = grant.lease_ns
            if grant.f != "acquire" or grant.outcome != "ok" or lease_ns is None or grant.token is None:
                continue
            own = moves.get(grant.token, [])
            if any(move.f == "renew" for move in own):
                continue
            start, shown_before = starts[grant.index]
            until = start + int(lease_ns * (1 - clock_error))
            later = chain(successors.get(grant.token, ()), islice(operations, position + 1, None))
            observation = next(_lost(grant, own, later, until), None)
            if observation is not None:
                excused = any(CLOCK_ERROR in fault.breaks for fault in timeline.active(grant.index, observation.end))
                early += not excused
                lost = True
                findings.append(_early(grant, observation, shown_before, narrator, excused=excused))
            late = _late(grant, [*own, *seen.get(grant.token, ())], lease_ns)
            if late is not None:
                latest_s = max(latest_s, late[1])
                if late_s_max is not None and late[1] > late_s_max:
                    findings.append(_too_late(grant, *late, narrator, late_s_max))
        if not lost and decide(operations) is None:
            together = decide_leased(operations, clock_error)
            if isinstance(together, Undecided):
                findings.append(_undecided(key, together))
            elif isinstance(together, Refused):
                trusted = decide_leased(operations, clock_error, lambda grant, end: _trusted(grant, end, timeline))
                excused = not isinstance(trusted, Refused)
                early += not excused
                reason = together if excused else trusted
                assert isinstance(reason, Refused)
                findings.append(_together(key, operations, reason, narrator, excused=excused))
    verdict = Verdict.worst([Verdict.VALID, *(finding.verdict for finding in findings)])
    numbers = {"early": early, "latest_s": round(latest_s, 3)}
    return ClaimResult(verdict, tuple(findings[:FINDINGS_MAX]), numbers)


def _trusted(grant: Operation, end: int, timeline: Timeline) -> bool:
    """Whether no fault broke the assumption about clocks from the grant to the event at `end`."""
    return not any(CLOCK_ERROR in fault.breaks for fault in timeline.active(grant.invoke.index, end))


def _undecided(key: str, together: Undecided) -> Finding:
    headline = (
        f"key {key!r}: whether the history fits with its leases is not known; so far {together.cases} ways to use the"
        " acquires of unknown outcome were tried"
    )
    return Finding(CLAIM, Verdict.UNKNOWN, headline, key, data={"kind": "undecided", "cases": together.cases})


def _together(
    key: str, operations: Sequence[Operation], refused: Refused, narrator: Narrator, *, excused: bool
) -> Finding:
    """Where it takes several observations to show that some grant was lost."""
    assert isinstance(refused.reason, Refusal)
    given = {operation.invoke.index: operation for operation in operations}
    roles = [(given[operation.invoke.index], words) for operation, words in linearizable.cited(refused.reason)]
    tokens = sorted({operation.token for operation, _ in roles if operation.f == "acquire" and operation.token})
    headline = f"key {key!r}: some grant was lost before its lease could be over; together these say so"
    if excused:
        headline += "; the assumed clock error was broken"
    verdict = Verdict.UNKNOWN if excused else Verdict.INVALID
    data = {"kind": ASSUMPTION_BROKEN if excused else "early", "tokens": tokens, "together": True}
    return narrator.finding(CLAIM, verdict, headline, roles, key=key, data=data)


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


def _starts(operations: Sequence[Operation]) -> dict[int, tuple[int, Operation | None]]:
    """For each grant, by the position of its invoke, the time before which its lease can't have begun, and what showed
    an earlier token and was invoked last, if anything did."""
    last_shown: dict[int, Operation] = {}
    granted: dict[int, list[Operation]] = {}
    for operation in operations:
        if operation.outcome != "ok" or operation.token is None or operation.f not in PROOFS:
            continue
        last_shown[operation.token] = operation
        if operation.f == "acquire":
            granted.setdefault(operation.token, []).append(operation)
    starts: dict[int, tuple[int, Operation | None]] = {}
    latest: Operation | None = None
    for token in sorted(last_shown):
        for grant in granted.get(token, ()):
            assert grant.completion is not None
            shown = 0 if latest is None else latest.invoke.time
            starts[grant.index] = max(grant.invoke.time, min(shown, grant.completion.time)), latest
        if latest is None or last_shown[token].invoke.time > latest.invoke.time:
            latest = last_shown[token]
    return starts


def _successors(operations: Sequence[Operation]) -> dict[int, list[Operation]]:
    """For each token, the operation that showed a later one first; it may have been invoked before the grant."""
    first: dict[int, Operation] = {}
    for operation in operations:
        if operation.outcome != "ok" or operation.token is None or operation.f not in PROOFS:
            continue
        if operation.token not in first or operation.end < first[operation.token].end:
            first[operation.token] = operation
    successors: dict[int, list[Operation]] = {}
    best: Operation | None = None
    for token in sorted(first, reverse=True):
        if best is not None:
            successors[token] = [best]
        if best is None or first[token].end < best.end:
            best = first[token]
    return successors


def _lost(grant: Operation, own: Sequence[Operation], later: Iterable[Operation], until_ns: int) -> Iterator[Operation]:
    """Observations that the grant no longer holds, in the order of their invokes, while it must."""
    given_up = min((move.index for move in own if move.outcome != "fail"), default=None)
    for operation in later:
        if operation.invoke.time >= until_ns:
            return
        if operation.completion is None or operation.end < grant.end or operation.completion.time >= until_ns:
            continue
        if given_up is not None and operation.end > given_up:
            continue
        if _shows_end(operation, grant):
            yield operation


def _shows_end(operation: Operation, grant: Operation) -> bool:
    assert grant.token is not None
    token = operation.token
    if operation.outcome == "ok" and token is not None:
        return operation.f in PROOFS and token > grant.token
    if operation.index < grant.end:
        return False
    saw_free = operation.f == "inspect" and operation.outcome == "ok"
    return saw_free or (operation.error == "not-held" and token == grant.token)


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


def _early(
    grant: Operation, observation: Operation, shown_before: Operation | None, narrator: Narrator, *, excused: bool
) -> Finding:
    headline = f"key {grant.key!r}: token {grant.token} was lost before its lease could be over"
    if excused:
        headline += "; the assumed clock error was broken"
    roles = [
        (grant, f"granted for {(grant.lease_ns or 0) / NANOSECONDS:g} s, and not released"),
        (observation, "shows that it no longer holds"),
    ]
    verdict = Verdict.UNKNOWN if excused else Verdict.INVALID
    data: dict[str, Any] = {"kind": ASSUMPTION_BROKEN if excused else "early", "tokens": [grant.token]}
    if not excused:
        from checker import pair_graph  # it takes long to load, and most histories fit

        data["cycle"] = pair_graph.too_early(grant, observation, shown_before)
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
