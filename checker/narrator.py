"""Findings in words: who did what, when and where, and what the nemesis was doing meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from checker.operations import Operation
from checker.timeline import NANOSECONDS, Timeline
from checker.verdict import CitedOperation, Fault, Finding, Verdict

#: Findings kept per claim. The first few tell what is wrong; the numbers count the rest.
FINDINGS_MAX = 10

#: Faults and leader changes named in one message; the data holds every fault.
CIRCUMSTANCES_MAX = 5


class Narrator:
    """Tells findings of one history."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline

    def finding(
        self,
        claim: str,
        verdict: Verdict,
        headline: str,
        operations: Sequence[tuple[Operation, str]],
        *,
        key: str | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> Finding:
        """`operations` come with what each has to do with it, in words that end the sentence about it."""
        cited = tuple(cite(operation, role) for operation, role in operations)
        lines = [headline, *(f"- {words(operation)}: {role}" for operation, role in operations)]
        faults: tuple[Fault, ...] = ()
        if operations:
            start, end = _span([operation for operation, _ in operations])
            faults = self._timeline.active(start, end)
            lines += self._circumstances(start, end, faults)
        return Finding(claim, verdict, "\n".join(lines), key, cited, faults, dict(data or {}))

    def _circumstances(self, start: int, end: int, faults: Sequence[Fault]) -> list[str]:
        changes = [
            f"{before.node} -> {after.node} at {after.time_s:.3f} s" + (f" (term {after.term})" if after.term else "")
            for before, after in self._timeline.leader_changes()
            if start <= after.index <= end
        ]
        lines = []
        if changes:
            lines.append("leader changed " + _few(changes))
        if faults:
            lines.append("faults active: " + _few([fault.words() for fault in faults]))
        return lines


def cite(operation: Operation, role: str) -> CitedOperation:
    completion = operation.completion
    return CitedOperation(
        index=operation.index,
        end=None if completion is None else completion.index,
        process=operation.process,
        node=operation.node,
        f=operation.f,
        key=operation.key,
        type=operation.outcome,
        token=operation.token,
        error=operation.error,
        invoked_s=invoked_s(operation),
        completed_s=completed_s(operation),
        role=role,
    )


def words(operation: Operation) -> str:
    """One operation: `process 3 (n1) acquire, 12.301-12.402 s [45-48] ok, token 17`."""
    who = f"process {operation.process}" + (f" ({operation.node})" if operation.node else "")
    named = "" if operation.f in ("acquire", "inspect", "read") else f" of token {operation.token}"
    completed = completed_s(operation)
    if completed is None or operation.completion is None:
        return f"{who} {operation.f}{named}, from {invoked_s(operation):.3f} s [{operation.index}] on, never completed"
    if operation.settled is not None:
        what = "ok" if operation.f == "release" else f"ok, token {operation.token}"
        when = f"{invoked_s(operation):.3f} s [{operation.index}], took effect by {completed:.3f} s"
        return f"{who} {operation.f}{named}, {when} ({what}: entry {operation.settled} of the nodes' log)"
    when = f"{invoked_s(operation):.3f}-{completed:.3f} s [{operation.index}-{operation.completion.index}]"
    return f"{who} {operation.f}{named}, {when} {_result(operation)}"


def invoked_s(operation: Operation) -> float:
    return operation.invoke.time / NANOSECONDS


def completed_s(operation: Operation) -> float | None:
    return None if operation.completion is None else operation.completion.time / NANOSECONDS


def _result(operation: Operation) -> str:
    if operation.outcome == "ok":
        if operation.f == "inspect" and operation.token is None:
            return "ok, free"
        return f"ok, token {operation.token}" if operation.f in ("acquire", "inspect", "read") else "ok"
    return f"{operation.outcome} {operation.error}" if operation.error else operation.outcome


def _span(operations: Sequence[Operation]) -> tuple[int, int]:
    ends = [operation.completion.index for operation in operations if operation.completion is not None]
    starts = [operation.index for operation in operations]
    return min(starts), max(ends + starts)


def _few(items: Sequence[str]) -> str:
    more = f", and {len(items) - CIRCUMSTANCES_MAX} more" if len(items) > CIRCUMSTANCES_MAX else ""
    return ", ".join(items[:CIRCUMSTANCES_MAX]) + more
