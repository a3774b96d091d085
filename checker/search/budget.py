"""Searches under hard budgets of time and memory, in a process of its own that is killed when it exceeds them.

A search that is out of memory can't be trusted to notice, and one within a single step of somebody's model can't be
interrupted: so the limits are the operating system's. The process reports how far it is; what it had reported last is
what is known of it when it is gone.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from checker.search import unique
from checker.search.calls import Call, by_key
from checker.search.models import Model, ModelError, create
from checker.search.wgl import Found, search
from checker.verdict import ClaimResult, Finding, Verdict

CLAIM = "linearizable"

#: Up to so many operations a key is searched at once, without a process, within a tenth of a second or never.
SMALL = 12

#: Operations named in a finding.
CITED_MAX = 8


@dataclass(frozen=True, slots=True)
class Budget:
    """For all keys together: seconds by the clock, and megabytes of address space."""

    seconds: float = 60.0
    megabytes: int = 2000

    def __post_init__(self) -> None:
        if not self.seconds > 0 or self.megabytes < 64:
            raise ModelError("a search needs more than 0 seconds and at least 64 MB")


def check(calls: Sequence[Call], model: str, budget: Budget | None = None) -> ClaimResult:
    """Whether the history of each key fits the model (a name, or `module:Class`). Raises ModelError."""
    budget = budget or Budget()
    deadline = time.monotonic() + budget.seconds
    known = create(model)
    findings: list[Finding] = []
    violations = unknown = by_rule = configurations = 0
    keys = by_key(known.considered(calls))
    for key, of_key in keys.items():
        fits = unique.decide(of_key, known)
        by_rule += fits is not None
        if fits is True:
            continue
        found, reason = _search(of_key, known, model, budget, deadline)
        configurations += found.configurations
        if found.fits is True and fits is None:
            continue
        if found.fits is None and fits is None:
            unknown += 1
            findings.append(_unknown(key, of_key, found, reason))
        else:
            violations += 1
            findings.append(_violation(key, of_key, found))
    verdict = Verdict.INVALID if violations else Verdict.UNKNOWN if unknown else Verdict.VALID
    numbers = {
        "keys": len(keys),
        "violations": violations,
        "unknown": unknown,
        "by_rule": by_rule,
        "configurations": configurations,
    }
    return ClaimResult(verdict, tuple(findings), numbers)


def _search(calls: Sequence[Call], model: Model, name: str, budget: Budget, deadline: float) -> tuple[Found, str]:
    """What was found, and why the search was ended if it was."""
    if len(calls) <= SMALL:
        return search(calls, model), ""
    left = deadline - time.monotonic()
    nothing = Found(None, (), None, None, 0)
    if left <= 0:
        return nothing, f"the {budget.seconds:g} s for all keys were used up"
    reports, other_end = os.pipe()
    try:
        worker = subprocess.Popen(
            [sys.executable, "-m", "checker.search.worker", str(other_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            pass_fds=[other_end],
        )
    finally:
        os.close(other_end)
    with Connection(reports, writable=False) as connection:
        try:
            return _converse(worker, connection, (list(calls), name, budget.megabytes, sys.path), left, budget)
        finally:
            worker.kill()
            worker.wait()


def _converse(
    worker: subprocess.Popen[bytes], reports: Connection, task: Any, left: float, budget: Budget
) -> tuple[Found, str]:
    end = time.monotonic() + left
    progress = Found(None, (), None, None, 0)
    gone = f"the process that searches ended by itself; {budget.megabytes} MB may be too little"
    assert worker.stdin is not None
    try:
        with worker.stdin:
            pickle.dump(task, worker.stdin)
    except BrokenPipeError:
        return progress, gone
    while reports.poll(max(0.0, end - time.monotonic())):
        try:
            report = reports.recv()
        except EOFError:
            return progress, gone
        if isinstance(report, ModelError):
            raise report
        if isinstance(report, str):
            return progress, report
        progress = report
        if progress.fits is not None:
            return progress, ""
    return progress, f"the {budget.seconds:g} s were used up"


def _unknown(key: Any, calls: Sequence[Call], found: Found, reason: str) -> Finding:
    message = (
        f"key {key!r}: not decided: {reason}. {found.configurations} configurations were tried;"
        f" the longest order that fits has {len(found.order)} of {len(calls)} operations"
    )
    data = {"kind": "budget", "reason": reason, "reached": len(found.order), "operations": len(calls)}
    return Finding(CLAIM, Verdict.UNKNOWN, message, None if key is None else str(key), data=data)


def _violation(key: Any, calls: Sequence[Call], found: Found) -> Finding:
    lines = [f"key {key!r}: no order of the {len(calls)} operations fits the model"]
    if found.stuck is not None:
        lines[0] += f"; the longest that was found has {len(found.order)}"
        lines += [f"- {calls[number].words()}: then" for number in found.order[1 - CITED_MAX :]]
        lines.append(f"- {calls[found.stuck].words()}: has no place; the state was {found.state!r}")
    data = {
        "kind": "no-order",
        "stuck": None if found.stuck is None else calls[found.stuck].start,
        "order": [calls[number].start for number in found.order[1 - CITED_MAX :]],
    }
    return Finding(CLAIM, Verdict.INVALID, "\n".join(lines), None if key is None else str(key), data=data)
