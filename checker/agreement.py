"""The claim `agreement`, white box: all nodes applied the same commands with the same results, and nothing that a
client was told is missing from them.

It rests on evidence from inside the nodes: what each has applied, in each of its lives, and what went wrong there, such
as nodes that ended by themselves (one that finds its own rules broken stops), or terms with two leaders. Without
evidence the claim is unknown.

1. What was applied at one index is the same everywhere, in every life of every node.
2. Within one life nothing is applied twice, and the order is that of the log.
3. Tokens increase along the log.
4. The log has every grant and every release that a client was told of, and no grant or release that a client was told
   has surely failed. Where the nodes say which operation an entry is of, it is that operation's own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator

from checker.committed import Applied, CommittedLog, Evidence
from checker.history import History, Operation
from checker.narrator import FINDINGS_MAX, Narrator
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "agreement"


#: What all nodes together applied, by index, with the node that showed it first.
_Log = dict[int, tuple[str, Applied]]


def check(history: History, narrator: Narrator, evidence: Evidence | None) -> ClaimResult:
    if evidence is None:
        message = "there is no record of what the nodes applied: this place, or this system, does not give one"
        return ClaimResult(Verdict.UNKNOWN, (Finding(CLAIM, Verdict.UNKNOWN, message, data={"kind": "no-evidence"}),))
    log: _Log = {}
    findings = [
        Finding(CLAIM, Verdict.INVALID, f"seen from inside: {failure}", data={"kind": "failure"})
        for failure in evidence.failures
    ]
    findings += _disagreements(evidence, log)
    findings += _tokens(log)
    findings += _untrue(history, narrator, evidence)
    verdict = Verdict.INVALID if findings else Verdict.VALID
    numbers = {"entries": len(log), "nodes": len(evidence.applied), "violations": len(findings)}
    return ClaimResult(verdict, tuple(findings[:FINDINGS_MAX]), numbers)


def _disagreements(evidence: Evidence, log: _Log) -> Iterator[Finding]:
    """Rules 1 and 2; fills in `log`."""
    for node, applied in evidence.applied.items():
        life = before = 0
        for one in applied:
            if one.life == life and one.index <= before:
                message = f"{node} applied entry {one.index} ({one.command}) after entry {before}, in the same life"
                yield Finding(
                    CLAIM, Verdict.INVALID, message, one.key, data={"kind": "out-of-order", "index": one.index}
                )
            life, before = one.life, one.index
            first_node, first = log.setdefault(one.index, (node, one))
            if (first.command, first.result) != (one.command, one.result):
                message = (
                    f"entry {one.index}: {first_node} applied {first.command} -> {first.result}, and"
                    f" {node} applied {one.command} -> {one.result}"
                )
                data = {"kind": "different", "index": one.index, "nodes": [first_node, node]}
                yield Finding(CLAIM, Verdict.INVALID, message, one.key, data=data)


def _tokens(log: _Log) -> Iterator[Finding]:
    last, last_index = 0, 0
    for index in sorted(log):
        token = log[index][1].token
        if token is None:
            continue
        if token <= last:
            message = f"entry {index} was granted token {token}, after entry {last_index} was granted {last}"
            data = {"kind": "token-order", "index": index, "tokens": [last, token]}
            yield Finding(CLAIM, Verdict.INVALID, message, log[index][1].key, data=data)
        last, last_index = max(last, token), index


def _untrue(history: History, narrator: Narrator, evidence: Evidence) -> Iterator[Finding]:
    """Rule 4."""
    log = CommittedLog.of_evidence(evidence)
    granted = {(one.key, one.token) for one in log.entries.values() if one.token is not None}
    hidden = _hidden(log)
    for operation in history.operations:
        if operation.f not in ("acquire", "release") or operation.outcome == "info":
            continue
        own = [one for one in log.of.get(operation.index, ()) if one.effective]
        if operation.outcome == "fail":
            if own:
                yield _denied(operation, own[0], narrator)
        elif operation.f == "release":
            # Who released can only be told where proposals say whose entries are.
            if not own and log.whole and evidence.proposals:
                yield _missing(operation, "released", narrator)
        elif (operation.key, operation.token) not in granted:
            if not hidden(operation.token or 0):
                yield _missing(operation, "granted", narrator)
        elif own and all(one.token != operation.token for one in own):
            yield _other(operation, own[0], narrator)


def _hidden(log: CommittedLog) -> Callable[[int], bool]:
    """Whether the grant of a token may be among entries that no node shows: the log has a hole between the last grant
    before it and the first one after it. What is behind all that is shown is hidden if anything is."""
    tokens: list[int] = []
    at: list[int] = []
    for index, one in log.entries.items():
        if one.token is not None:
            tokens.append(one.token)
            at.append(index)
    last = max(log.entries, default=0)
    shown = list(log.entries)

    def hidden(token: int) -> bool:
        place = bisect_left(tokens, token)
        first = at[place - 1] if place else 0
        if place == len(tokens):
            return not log.tail or last - first > len(shown) - bisect_right(shown, first)
        return at[place] - first > bisect_left(shown, at[place]) - bisect_right(shown, first) + 1

    return hidden


def _missing(operation: Operation, done: str, narrator: Narrator) -> Finding:
    what = "grant" if done == "granted" else "release"
    headline = f"key {operation.key!r}: token {operation.token} was {done}, and no node has applied that {what}"
    roles = [(operation, "was told that it has the lock" if done == "granted" else "was told that it gave the lock up")]
    data = {"kind": "missing", "tokens": [operation.token]}
    return narrator.finding(CLAIM, Verdict.INVALID, headline, roles, key=operation.key, data=data)


def _denied(operation: Operation, entry: Applied, narrator: Narrator) -> Finding:
    headline = (
        f"key {operation.key!r}: entry {entry.index} is {entry.command} -> {entry.result}, and its client was told that"
        " it had no effect"
    )
    data = {"kind": "denied", "index": entry.index, "tokens": [entry.token]}
    return narrator.finding(
        CLAIM, Verdict.INVALID, headline, [(operation, "was told so")], key=operation.key, data=data
    )


def _other(operation: Operation, entry: Applied, narrator: Narrator) -> Finding:
    headline = (
        f"key {operation.key!r}: entry {entry.index} is {entry.command} -> {entry.result}, and its client was told of"
        f" token {operation.token}"
    )
    data = {"kind": "other-token", "index": entry.index, "tokens": [entry.token, operation.token]}
    return narrator.finding(
        CLAIM, Verdict.INVALID, headline, [(operation, "was told so")], key=operation.key, data=data
    )
