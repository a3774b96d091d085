"""The claim `agreement`, white box: all nodes applied the same commands with the same results, and nothing that a
client was told is missing from them.

It rests on evidence from inside the nodes: what each has applied, in each of its lives, and what went wrong there, such
as nodes that ended by themselves (one that finds its own rules broken stops), or terms with two leaders. Without
evidence the claim is unknown.

1. What was applied at one index is the same everywhere, in every life of every node.
2. Within one life nothing is applied twice, and the order is that of the log.
3. Tokens increase along the log.
4. The log as all nodes together show it has every grant that a client was told of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from checker.history import History
from checker.narrator import FINDINGS_MAX, Narrator
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "agreement"


class Applied(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the replicated log as a node applied it in one of its lives. `command` and `result` say all of it,
    in words; a grant also shows its `key` and the `token` that it was given."""

    life: int
    index: int
    command: str
    result: str
    key: str | None = None
    token: int | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What nodes say from inside. `applied` is by node, in the order in which each applied; `failures` are what must
    not happen inside, in words."""

    applied: Mapping[str, Sequence[Applied]]
    failures: Sequence[str] = field(default_factory=tuple)


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
    findings += _missing(history, narrator, log)
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


def _missing(history: History, narrator: Narrator, log: _Log) -> Iterator[Finding]:
    """Rule 4; where the nodes together show the whole log, from its first entry on."""
    if not log or len(log) < max(log):
        return
    granted = {(one.key, one.token) for _, one in log.values() if one.token is not None}
    for operation in history.operations:
        told = operation.f == "acquire" and operation.outcome == "ok"
        if told and (operation.key, operation.token) not in granted:
            headline = f"key {operation.key!r}: token {operation.token} was granted, and no node has applied that grant"
            roles = [(operation, "was told that it has the lock")]
            data = {"kind": "missing", "tokens": [operation.token]}
            yield narrator.finding(CLAIM, Verdict.INVALID, headline, roles, key=operation.key, data=data)
