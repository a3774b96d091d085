"""The claim `linearizable`: the history of each key fits the fenced lease lock, or a handful of operations say why not.

A refusal of the sweep is a moment whose latest and earliest gaps cross. Why it can't be earlier is one operation. Why
it can't be later is a chain: an observation forced the moment, since the state before it was entered too early for the
observation to see anything else; and that was entered so early because of another one, and so on, back to an operation
that bounds a moment by itself, or to the start of the history. A link needs only "before the next observation was
invoked", not the tightest bound, so the chain ends at the first operation that says so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from checker import dense, together
from checker.facts import Duplicate
from checker.history import OPEN, History, Operation
from checker.narrator import FINDINGS_MAX, Narrator, completed_s, invoked_s
from checker.sweep import Later, Reach, Refusal, decide
from checker.verdict import ClaimResult, Finding, Verdict

if TYPE_CHECKING:
    from checker.graph import Edge

CLAIM = "linearizable"

Keys = Mapping[str, Sequence[Operation]]


def check(
    history: History, narrator: Narrator, *, tokens_span_keys: bool = False, tokens_dense: bool = False
) -> ClaimResult:
    """Decide every key by itself; and all together, where tokens grow over all of them."""
    keys = history.by_key
    joint = together.decide(keys, tokens_dense=tokens_dense) if tokens_span_keys and len(keys) > 1 else None
    counted = tokens_dense and joint is None
    if isinstance(joint, together.Fits):
        return ClaimResult(Verdict.VALID, (), {"keys": len(keys), "violations": 0})
    findings: list[Finding] = []
    refused = 0
    for key, operations in keys.items():
        reason = decide(operations)
        if reason is None and counted:
            reason = dense.decide(operations)
            if reason is not None:
                refused += 1
                findings += [_counted(key, reason, narrator)][: FINDINGS_MAX - len(findings)]
            continue
        if reason is None:
            continue
        refused += 1
        if len(findings) < FINDINGS_MAX:
            findings.append(finding(key, reason, narrator))
    verdict = Verdict.INVALID if refused else Verdict.VALID
    if not refused and joint is not None:
        return together_result(joint, keys, len(keys), narrator)
    return ClaimResult(verdict, tuple(findings), {"keys": len(keys), "violations": refused})


def _counted(key: str, reason: Duplicate | Refusal, narrator: Narrator) -> Finding:
    """Of a key that fits but for the numbers of its tokens."""
    assert isinstance(reason, Refusal)
    headline = f"key {key!r}, as tokens leave no gaps: {_headline(reason)}"
    data = {"kind": "no-moment-left", **_moment(reason), "dense": True, "cycle": []}
    return narrator.finding(CLAIM, Verdict.INVALID, headline, cited(reason), key=key, data=data)


def together_result(
    joint: together.Refused | together.Undecided, decided: Keys, keys: int, narrator: Narrator
) -> ClaimResult:
    """What is found where each key fits by itself. `decided` are the operations that were looked at for it, of all
    `keys` or of fewer."""
    if isinstance(joint, together.Undecided):
        headline = (
            "all keys together: whether one order of tokens fits them is not known; so far"
            f" {joint.cases} ways to use the acquires of unknown outcome were tried"
        )
        unknown = Finding(CLAIM, Verdict.UNKNOWN, headline, data={"kind": "undecided", "cases": joint.cases})
        return ClaimResult(Verdict.UNKNOWN, (unknown,), {"keys": keys, "violations": 0})
    return ClaimResult(Verdict.INVALID, (_together(joint, decided, narrator),), {"keys": keys, "violations": 1})


def _together(joint: together.Refused, decided: Keys, narrator: Narrator) -> Finding:
    reason = joint.reason
    data: dict[str, Any]
    if isinstance(reason, together.Shortage):
        token = reason.shown_by.token
        headline = (
            f"all keys together, as tokens leave no gaps: by the grant of token {token}, {reason.needed} that no ok"
            f" acquire got were granted, but only {reason.available} acquires of unknown outcome had been invoked"
        )
        data = {"kind": "shortage", "token": token, "needed": reason.needed, "available": reason.available}
        told = [(reason.shown_by, f"shows token {token}")]
    elif isinstance(reason, Duplicate):
        headline = f"token {reason.token} was granted under two keys, {reason.first.key!r} and {reason.second.key!r}"
        data = {"kind": "duplicate", "token": reason.token}
        told = [(operation, f"shows token {reason.token}") for operation in (reason.first, reason.second)]
    else:
        told = cited(reason)
        headline = f"all keys together: {_headline(reason)} (key {joint.key!r})"
        if joint.cases > 1:
            headline += f", in whichever of {joint.cases} ways the acquires of unknown outcome are used; in the first"
        data = {"kind": "no-moment-left", **_moment(reason), "cases": joint.cases}
    data["cycle"] = [edge.to_dict() for edge in joint_cycle(joint, decided)]
    roles = [(operation, f"key {operation.key!r}: {words}") for operation, words in told]
    return narrator.finding(CLAIM, Verdict.INVALID, headline, roles, data=data)


@dataclass(frozen=True, slots=True)
class _Step:
    """One operation of an explanation. `says` is "not-after", "must-leave", "lasts" or "not-before"; `gap` is what it
    says, and `moments` are the tokens whose moments it is about."""

    operation: Operation
    says: str
    gap: int
    words: str
    moments: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"index": self.operation.index, "says": self.says, "gap": self.gap}


def finding(key: str, reason: Duplicate | Refusal, narrator: Narrator) -> Finding:
    if isinstance(reason, Duplicate):
        done = "granted" if reason.first.f == "acquire" else "released"
        headline = f"key {key!r}: token {reason.token} was {done} twice"
        data: dict[str, Any] = {"kind": "duplicate", "token": reason.token, "cycle": _cycle(reason)}
        return narrator.finding(CLAIM, Verdict.INVALID, headline, cited(reason), key=key, data=data)
    steps = _steps(reason)
    headline = f"key {key!r}: {_headline(reason)}{_unknown_words(reason, steps)}"
    data = {"kind": "no-moment-left", **_moment(reason), "steps": [step.to_dict() for step in steps]}
    data["cycle"] = _cycle(reason)
    operations = [(step.operation, step.words) for step in steps]
    return narrator.finding(CLAIM, Verdict.INVALID, headline, operations, key=key, data=data)


def joint_cycle(joint: together.Refused, decided: Keys) -> list[Edge]:
    """Why the operations of several keys can't all be true, as a cycle; empty where there is none."""
    from checker import joint_graph

    reason = joint.reason
    if isinstance(reason, together.Shortage):
        return []
    told = [operation for operation, _ in cited(reason)]
    steps = _steps(reason) if isinstance(reason, Refusal) else []
    tokens = sorted({token for step in steps for token in step.moments})
    by_bounds = [step.says for step in steps] == ["not-after", "not-before"] and steps[1].operation.outcome == "ok"
    return joint_graph.cycle_of(joint, decided, told, tokens, by_bounds=by_bounds)


def cited(reason: Duplicate | Refusal) -> list[tuple[Operation, str]]:
    """The operations that contradict each other, with what each has to do with it."""
    if isinstance(reason, Duplicate):
        done = "granted" if reason.first.f == "acquire" else "released"
        return [(reason.first, f"{done} token {reason.token}"), (reason.second, f"{done} it as well")]
    return [(step.operation, step.words) for step in _steps(reason)]


def _cycle(reason: Duplicate | Refusal) -> list[dict[str, Any]]:
    """The contradiction edge by edge; empty where one has to count acquires of unknown outcome."""
    # Loading networkx takes longer than checking most histories, and most fit.
    from checker.graph import cycle_of

    return [edge.to_dict() for edge in cycle_of(reason, [operation for operation, _ in cited(reason)])]


def _moment(refusal: Refusal) -> dict[str, Any]:
    tenures = refusal.tenures
    number = refusal.moment // 2
    if number == len(tenures):
        return {"moment": "end", "token": tenures[-1].token if tenures else None}
    return {"moment": "exit" if refusal.moment % 2 else "enter", "token": tenures[number].token}


def _headline(refusal: Refusal) -> str:
    moment = _moment(refusal)
    token = moment["token"]
    if moment["moment"] == "exit":
        return f"no moment is left at which token {token} can have ended"
    if moment["moment"] == "end":
        after = "" if token is None else f" after token {token} had ended"
        return f"somebody held the lock{after}, but nobody can have been granted it"
    if _candidate(refusal) is None:
        return f"token {token} was held, but nobody can have been granted it"
    return f"no moment is left at which token {token} can have been granted"


def _unknown_words(refusal: Refusal, steps: list[_Step]) -> str:
    """That the acquires of unknown outcome were ruled out, where there are any that a grant might have come of."""
    candidate = _candidate(refusal)
    if candidate is not None and all(step.says != "must-leave" for step in steps):
        return ""
    invokes = refusal.unknown.invokes
    available = len(invokes) if candidate is None else bisect_right(invokes, candidate.latest)
    if not available:
        return ""
    acquires = "acquire" if available == 1 else "acquires"
    return f" ({available} earlier {acquires} of unknown outcome can't explain it: used up by other tokens, or no help)"


def _candidate(refusal: Refusal) -> Reach | None:
    """The way to get there that is told: the one with the fewest unknown acquires that comes too early."""
    early = (reach for reach in refusal.candidates if reach.latest < refusal.not_before.gap)
    return next(early, refusal.candidates[0] if refusal.candidates else None)


def _steps(refusal: Refusal) -> list[_Step]:
    candidate = _candidate(refusal)
    tenures = refusal.tenures
    if candidate is None:
        later = (tenure.first_shown for tenure in tenures[refusal.moment // 2 :])
        shown_by = next(operation for operation in later if operation is not None)
        return [_Step(shown_by, "not-after", shown_by.end - 1, f"shows token {shown_by.token}")]
    last = refusal.moment == 2 * len(tenures)
    lower = refusal.not_before
    steps: list[_Step] = []
    if last:
        before = OPEN
    elif lower.gap > candidate.latest:
        before = lower.gap
        if isinstance(lower.by, Operation):
            steps.append(_Step(lower.by, "not-before", lower.gap, _not_before_words(lower.by)))
    else:
        unknown = refusal.unknown.operation(candidate.used - 1)
        before = unknown.index
        enough = f"only now as many acquires have an unknown outcome as grants need one ({candidate.used})"
        steps.append(_Step(unknown, "not-before", unknown.index, enough))
    steps += _upper(refusal, candidate, before)
    steps.reverse()
    return steps


def _upper(refusal: Refusal, reach: Reach, before: int) -> list[_Step]:
    """Why the moment lies before gap `before`, from it backwards."""
    steps: list[_Step] = []
    tenures, limits = refusal.tenures, refusal.limits
    then = ""
    passed: tuple[int, ...] = ()
    while True:
        limit = limits[reach.moment]
        passed += tuple(tenure.token for tenure in tenures[reach.moment // 2 :][:1])
        if limit.gap < before:
            if limit.by is None:
                return steps
            if isinstance(limit.by, Later):
                # Another moment that this one is not after, nor so near to as a lease allows, comes too early.
                sweep, reach, lease = limit.by
                tenures, limits = sweep.tenures, sweep.limits
                if lease is not None:
                    words = f"token {lease.token} was granted for a lease that can't have been over sooner"
                    steps.append(_Step(lease, "lasts", limit.gap, words))
                    before = reach.latest + 1
                else:
                    then = f", so token {tenures[reach.moment // 2].token} was granted by then, after all smaller ones"
                continue
            words = _not_after_words(limit.by, tenures[reach.moment // 2].token)
            return [*steps, _Step(limit.by, "not-after", limit.gap, words, passed)]
        forced_by, entered = reach.forced_by, reach.before
        assert forced_by is not None
        assert entered is not None
        at_start = entered.before is None
        words = _must_leave_words(forced_by) + (", though nobody had been granted it before" if at_start else "") + then
        then = ""
        steps.append(_Step(forced_by, "must-leave", forced_by.end - 1, words, passed))
        if at_start:
            return steps
        before = forced_by.index
        reach = entered


def _not_after_words(operation: Operation, token: int) -> str:
    done = {"acquire": "granted", "release": "released"}.get(operation.f, "granted already")
    others = "" if operation.token == token else ", and every smaller token before it"
    return f"token {operation.token} was {done} by {completed_s(operation):.3f} s{others}"


def _not_before_words(operation: Operation) -> str:
    if operation.f == "acquire":
        return f"token {operation.token} was not granted before {invoked_s(operation):.3f} s"
    return f"token {operation.token} had not ended before {invoked_s(operation):.3f} s"


def _must_leave_words(operation: Operation) -> str:
    if operation.f == "inspect":
        return "saw the lock free"
    if operation.f == "acquire":
        return "saw the lock held by somebody"
    return f"saw that token {operation.token} did not hold the lock"
