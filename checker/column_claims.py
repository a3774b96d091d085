"""The safety claims over columns: the same verdicts, numbers and findings as those of the claims' own modules.

Each is counted on whole columns first. Findings are then made by the claim's own words, from the few operations that
they cite, which only now are decoded as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from checker import column_sweep, coverage, fencing, linearizable, mutual_exclusion, recovery, resource, together
from checker.column_together import Locks
from checker.columns import ACQUIRE, FAIL, INFO, NO_LEASE, NUMBER, OK, READ, RELEASE, RENEW, STALE, WRITE, Columns, Ints
from checker.jobs import in_processes
from checker.mutual_exclusion import Move, Overlap
from checker.narrator import FINDINGS_MAX, Narrator
from checker.operations import Operation
from checker.options import Options
from checker.timeline import Timeline
from checker.verdict import COVERAGE, ClaimResult, Finding, Results, Verdict

#: Parts into which the keys are divided for each process, as some take longer than others.
TASKS_PER_PROCESS = 4

#: A grant is compared with so many proofs after it at once; for the rest a stack is kept.
NEXT_LARGER_LOOKS_MAX = 32


def check(columns: Columns, wanted: Sequence[str], options: Options, jobs: int = 1) -> Results:
    """Check all claims in `wanted`; they must be among those that columns can decide. Keys are decided by `jobs`
    processes."""
    timeline = Timeline.of(columns.others)
    narrator = Narrator(timeline)
    found = coverage.measured(
        operations=int((columns.outcome != INFO).sum()),
        nodes=len(np.setdiff1d(columns.node[columns.outcome != INFO], [0])),
        timeline=timeline,
    )
    deciders: dict[str, Callable[[], ClaimResult]] = {
        linearizable.CLAIM: lambda: check_linearizable(
            columns, narrator, tokens_span_keys=options.tokens_span_keys, jobs=jobs
        ),
        mutual_exclusion.CLAIM: lambda: check_mutual_exclusion(
            columns, narrator, timeline, clock_error=options.clock_error
        ),
        fencing.CLAIM: lambda: check_fencing(columns, narrator, tokens_span_keys=options.tokens_span_keys),
        resource.CLAIM: lambda: check_resource(columns, narrator),
        recovery.CLAIM: lambda: recovery.check(
            timeline, seconds_max=options.recovery_s_max, leader_changes_max=options.leader_changes_max
        ),
        COVERAGE: lambda: coverage.check(found, options.coverage, timeline),
    }
    claims = {claim: deciders[claim]() for claim in wanted}
    outcomes = {
        name: int((columns.outcome == code).sum()) for name, code in (("ok", OK), ("fail", FAIL), ("info", INFO))
    }
    return Results(claims, outcomes, found, 0.0, columns.warnings)


def check_linearizable(
    columns: Columns, narrator: Narrator, *, tokens_span_keys: bool = False, jobs: int = 1
) -> ClaimResult:
    findings: list[Finding] = []
    refused = 0
    locks = {key: column_sweep.Lock(columns, rows) for key, rows in columns.by_key.items()}
    spans = tokens_span_keys and len(locks) > 1
    if spans and Locks(list(locks.values())).fit():
        return ClaimResult(Verdict.VALID, (), {"keys": len(locks), "violations": 0})
    size = max(1, -(-len(locks) // (TASKS_PER_PROCESS * jobs)))
    names = list(locks)
    tasks = [(names[first : first + size],) for first in range(0, len(names), size)]
    for count, found in in_processes(_refused, tasks, jobs, shared=(locks, narrator)):
        refused += count
        findings += found[: FINDINGS_MAX - len(findings)]
    if spans and not refused:
        decided = operations_by_key(Locks(list(locks.values())).impossible())
        joint = together.decide(decided)
        if isinstance(joint, together.Fits):
            decided = operations_by_key(columns.operations(np.arange(len(columns.f))))
            joint = together.decide(decided)
        if not isinstance(joint, together.Fits):
            return linearizable.together_result(joint, decided, len(locks), narrator)
    result = Verdict.INVALID if refused else Verdict.VALID
    return ClaimResult(result, tuple(findings), {"keys": len(columns.by_key), "violations": refused})


def _refused(
    locks: Mapping[str, column_sweep.Lock], narrator: Narrator, keys: Sequence[str]
) -> tuple[int, list[Finding]]:
    """How many of these keys are refused, and the first findings."""
    refused = 0
    findings: list[Finding] = []
    for key in keys:
        verdict = column_sweep.decide(locks[key])
        if isinstance(verdict, column_sweep.Fits):
            continue
        refused += 1
        if len(findings) < FINDINGS_MAX:
            findings.append(linearizable.finding(key, column_sweep.explained(verdict), narrator))
    return refused, findings


def operations_by_key(operations: Sequence[Operation]) -> dict[str, list[Operation]]:
    """As `History.by_key`."""
    by_key: dict[str, list[Operation]] = {}
    for operation in sorted(operations, key=lambda operation: operation.index):
        by_key.setdefault(operation.key, []).append(operation)
    return dict(sorted(by_key.items()))


def check_fencing(columns: Columns, narrator: Narrator, *, tokens_span_keys: bool) -> ClaimResult:
    is_grant = (columns.f == ACQUIRE) & (columns.outcome == OK)
    groups = [np.arange(len(columns.f))] if tokens_span_keys else list(columns.by_key.values())
    findings: list[Finding] = []
    violations = 0
    for group in groups:
        grants = group[is_grant[group]]
        if not len(grants):
            continue
        token = columns.token[grants]
        _, first, inverse = np.unique(token, return_index=True, return_inverse=True)
        twin = first[inverse]
        duplicate = twin != np.arange(len(grants))
        largest = _largest_before(columns.index[grants], columns.end[grants], token)
        behind = (largest >= 0) & (token[largest] > token) & ~duplicate
        at_odds = np.flatnonzero(duplicate | behind)
        violations += len(at_odds)
        for at in at_odds[: FINDINGS_MAX - len(findings)].tolist():
            kind, other = ("duplicate", twin[at]) if duplicate[at] else ("order", largest[at])
            one, two = _pair(columns, grants[other], grants[at])
            findings.append(fencing.finding(kind, one, two, narrator))
    verdict = Verdict.INVALID if violations else Verdict.VALID
    return ClaimResult(verdict, tuple(findings), {"grants": int(is_grant.sum()), "violations": violations})


def _largest_before(index: Ints, end: Ints, token: Ints) -> Ints:
    """For each operation (in the order of invokes) the place of the largest token that completed before it began; -1
    for none."""
    order = np.argsort(end)
    in_order = token[order]
    record = np.maximum.accumulate(in_order)
    # The place where each record was set: where it grows.
    grows = np.concatenate(([True], record[1:] > record[:-1]))
    setter = order[np.maximum.accumulate(np.where(grows, np.arange(len(order)), 0))]
    done = np.searchsorted(end[order], index)
    return np.where(done > 0, setter[done - 1], -1)


def _pair(columns: Columns, first: int, second: int) -> tuple[Operation, Operation]:
    by_index = {operation.index: operation for operation in columns.operations([first, second])}
    return by_index[int(columns.index[first])], by_index[int(columns.index[second])]


def check_resource(columns: Columns, narrator: Narrator) -> ClaimResult:
    touches = (columns.f == WRITE) | (columns.f == READ)
    accepted = touches & (columns.outcome == OK) & (columns.has == NUMBER)
    writes = (columns.f == WRITE) & (columns.outcome == OK)
    refused = touches & ~columns.unguarded & (columns.outcome == FAIL) & (columns.error == STALE)
    findings: list[Finding] = []
    violations = lost = 0
    if touches.any():
        for of_key in columns.by_key.values():
            shown = of_key[accepted[of_key]]
            unguarded = shown[columns.unguarded[shown]]
            lost += sum(int(columns.f[late] == WRITE) for _, late in _stale(columns, unguarded))
            for first, late in _stale(columns, shown[~columns.unguarded[shown]]):
                violations += 1
                if len(findings) < FINDINGS_MAX:
                    findings.append(resource.finding(*_pair(columns, first, late), narrator))
    guarded_writes, unguarded_writes = (int((writes & mask).sum()) for mask in (~columns.unguarded, columns.unguarded))
    return resource.result(findings, violations, guarded_writes, int(refused.sum()), unguarded_writes, lost)


def _stale(columns: Columns, rows: Ints) -> Iterator[tuple[int, int]]:
    if not len(rows):
        return
    token = columns.token[rows]
    largest = _largest_before(columns.index[rows], columns.end[rows], token)
    for at in np.flatnonzero((largest >= 0) & (token[largest] > token)).tolist():
        yield int(rows[largest[at]]), int(rows[at])


def check_mutual_exclusion(
    columns: Columns, narrator: Narrator, timeline: Timeline, *, clock_error: float
) -> ClaimResult:
    findings: list[Finding] = []
    violations = excused = 0
    for rows in columns.by_key.values():
        for grant, proof, until in _overlaps(columns, rows, clock_error):
            start, end = int(columns.index[grant]), int(columns.end[proof])
            broken = mutual_exclusion.broken_assumption(timeline, start, end)
            excused += broken is not None
            violations += broken is None
            if len(findings) < FINDINGS_MAX:
                overlap = Overlap(*_pair(columns, grant, proof), until)
                findings.append(mutual_exclusion.finding(overlap, broken, narrator, clock_error))
    grants = (columns.f == ACQUIRE) & (columns.outcome == OK)
    endless = int((columns.lease[grants] == NO_LEASE).sum())
    return mutual_exclusion.result(findings, violations, excused, int(grants.sum()), endless)


def _overlaps(columns: Columns, rows: Ints, clock_error: float) -> list[tuple[int, int, int]]:
    """The rows of each grant that another was shown within, of that proof, and until when the grant was in force."""
    f, outcome = columns.f[rows], columns.outcome[rows]
    proves = (outcome == OK) & (columns.has[rows] == NUMBER) & (f < WRITE)
    proofs = rows[proves]
    proofs = proofs[np.argsort(columns.end[proofs])]
    grants = np.flatnonzero((columns.f[proofs] == ACQUIRE) & (columns.lease[proofs] != NO_LEASE))
    larger = _next_larger(columns.token[proofs], grants)
    grants, larger = grants[larger >= 0], larger[larger >= 0]
    grant, proof = proofs[grants], proofs[larger]
    leases = (columns.lease[grant] * (1 - clock_error)).astype(np.int64)
    until = columns.invoked[grant] + leases

    moves = rows[((f == RELEASE) | (f == RENEW)) & (outcome != FAIL)]
    moves = moves[np.argsort(columns.token[moves], kind="stable")]
    of_token = columns.token[moves]
    first = np.searchsorted(of_token, columns.token[grant])
    last = np.searchsorted(of_token, columns.token[grant], side="right")
    moved = first < last
    # The moves of a token come in the order of their invokes; a release that leads them ends the grant.
    leading = moves[np.minimum(first, max(0, len(moves) - 1))] if len(moves) else grant
    given_up = moved & (columns.f[leading] == RELEASE) & (columns.index[leading] < columns.end[proof])
    moved &= ~given_up & (columns.index[leading] < columns.end[proof])
    violated = ~given_up & ~moved & (columns.completed[proof] < until)
    for at in np.flatnonzero(moved).tolist():
        of_grant = [_move(columns, row, clock_error) for row in moves[first[at] : last[at]].tolist()]
        until[at] = mutual_exclusion.in_force_until(
            int(columns.end[grant[at]]), int(until[at]), int(columns.end[proof[at]]), of_grant
        )
        violated[at] = columns.completed[proof[at]] < until[at]
    found = np.flatnonzero(violated)
    found = found[np.lexsort((grants[found], columns.token[grant[found]], larger[found]))]
    return list(zip(grant[found].tolist(), proof[found].tolist(), until[found].tolist(), strict=True))


def _move(columns: Columns, row: int, clock_error: float) -> Move:
    lease = int(columns.lease[row])
    over = 0 if lease == NO_LEASE else int(columns.invoked[row]) + int(lease * (1 - clock_error))
    return Move(int(columns.index[row]), int(columns.end[row]), bool(columns.f[row] == RELEASE), over)


def _next_larger(values: Ints, places: Ints) -> Ints:
    """For each place the next place with a larger value; -1 for none."""
    found = np.full(len(places), -1, np.int64)
    waiting: npt.NDArray[np.intp] = np.arange(len(places))
    for ahead in range(1, NEXT_LARGER_LOOKS_MAX):
        waiting = waiting[places[waiting] + ahead < len(values)]
        if not len(waiting):
            return found
        beyond = places[waiting] + ahead
        is_larger = values[beyond] > values[places[waiting]]
        found[waiting[is_larger]] = beyond[is_larger]
        waiting = waiting[~is_larger]
    by_place = {int(places[at]): int(at) for at in waiting}
    if by_place:
        start = min(by_place)
        stack: list[tuple[int, int]] = []
        for place, value in enumerate(islice(values.tolist(), start, None), start):
            while stack and stack[-1][0] < value:
                found[stack.pop()[1]] = place
            if place in by_place:
                stack.append((value, by_place[place]))
    return found
