"""The claim `fencing`: tokens are unique, and whoever began after another grant had completed got a larger one.

Only ok acquires count: they are the promises that clients act on. Grants that overlap may get their tokens in either
order. Where the system promises it, all keys are judged together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from checker.history import History, Operation
from checker.narrator import FINDINGS_MAX, Narrator, completed_s, invoked_s
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "fencing"


def check(history: History, narrator: Narrator, *, tokens_span_keys: bool) -> ClaimResult:
    grants = [operation for operation in history.operations if operation.f == "acquire" and operation.outcome == "ok"]
    groups: dict[str, list[Operation]] = {}
    for grant in grants:
        groups.setdefault("" if tokens_span_keys else grant.key, []).append(grant)
    findings: list[Finding] = []
    violations = 0
    for _, group in sorted(groups.items()):
        for kind, first, second in _violations(group):
            violations += 1
            if len(findings) < FINDINGS_MAX:
                findings.append(finding(kind, first, second, narrator))
    verdict = Verdict.INVALID if violations else Verdict.VALID
    return ClaimResult(verdict, tuple(findings), {"grants": len(grants), "violations": violations})


def _violations(grants: Sequence[Operation]) -> Iterator[tuple[str, Operation, Operation]]:
    """Each grant that is at odds with an earlier one, at most once; `grants` in the order of their invokes."""
    owner: dict[int, Operation] = {}
    completions: list[tuple[int, int]] = []
    largest: Operation | None = None
    for position, grant in enumerate(grants):
        while completions and completions[0][0] < grant.index:
            done = grants[heappop(completions)[1]]
            if largest is None or _token(done) > _token(largest):
                largest = done
        heappush(completions, (grant.end, position))
        twin = owner.setdefault(_token(grant), grant)
        if twin is not grant:
            yield "duplicate", twin, grant
        elif largest is not None and _token(largest) > _token(grant):
            yield "order", largest, grant


def finding(kind: str, first: Operation, second: Operation, narrator: Narrator) -> Finding:
    key = first.key if first.key == second.key else None
    where = f"key {key!r}" if key is not None else f"keys {first.key!r} and {second.key!r}"
    if kind == "duplicate":
        headline = f"{where}: token {first.token} was granted twice"
        roles = ("granted it", "granted it again")
    else:
        headline = (
            f"{where}: token {second.token} was granted to an acquire that began after token {first.token},"
            " a larger one, had been granted"
        )
        roles = (
            f"had token {first.token} at {completed_s(first):.3f} s",
            f"asked only at {invoked_s(second):.3f} s and got token {second.token}",
        )
    tokens = [first.token, second.token]
    # Loading networkx takes longer than checking most histories, and most fit.
    from checker import pair_graph

    cycle = pair_graph.twins(first, second) if kind == "duplicate" else pair_graph.out_of_order(first, second)
    data = {"kind": kind, "tokens": tokens, "cycle": cycle}
    operations = list(zip((first, second), roles, strict=True))
    return narrator.finding(CLAIM, Verdict.INVALID, headline, operations, key=key, data=data)


def _token(grant: Operation) -> int:
    assert grant.token is not None
    return grant.token
