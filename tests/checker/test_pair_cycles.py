"""Cycles of `fencing`, `mutual-exclusion` and `leases`: true of the history, and none where time does not say so."""

from __future__ import annotations

import msgspec
import pytest

import checker
from checker import History, Options, cycles, joint_cycles
from checker.cycles import Step, Wrong
from tests.checker import script
from tests.checker.compare import history_of, timed_history_of

SAMPLE = 300


def test_every_finding_has_a_cycle_that_holds() -> None:
    found: dict[tuple[str, str], int] = {}
    for number in range(SAMPLE):
        timed, clock_error = timed_history_of(31, number)
        for events in (timed, history_of(32, number)):
            if not events:
                continue
            history = History.of(events)
            options = Options(clock_error=clock_error, tokens_span_keys=True)
            results = checker.check(events, ["fencing", "mutual-exclusion", "leases"], options)
            for claim, result in results.claims.items():
                for finding in result.findings:
                    if "cycle" not in finding.data:
                        assert finding.verdict is not checker.Verdict.INVALID or finding.data.get("together")
                        continue
                    cycle = msgspec.convert([edge["step"] for edge in finding.data["cycle"]], list[Step])
                    if finding.key is None:
                        joint_cycles.verify(history.by_key, cycle)
                    else:
                        cycles.verify(history.by_key[finding.key], cycle, (), clock_error=clock_error)
                    kind = finding.data["kind"]
                    found[claim, kind] = found.get((claim, kind), 0) + 1
    kinds = [("fencing", "duplicate"), ("fencing", "order"), ("mutual-exclusion", "overlap"), ("leases", "early")]
    assert min(found.get(kind, 0) for kind in kinds) > 3, found


EARLY = "1 acquire a lease_ms=2000\n1 ok 1\n{between}@ 1.9\n2 acquire a\n2 ok 2"


@pytest.mark.parametrize(
    ("text", "clock_error", "holds"),
    [
        ("", 0.0, True),
        ("", None, False),
        ("", 0.1, False),
        ("@ 0.5\n1 release a 1\n1 info\n", 0.0, False),
        ("@ 0.5\n1 release a 1\n1 fail not-held\n", 0.0, True),
        ("@ 0.5\n1 renew a 1 lease_ms=1000\n1 ok\n", 0.0, False),
        ("@ 0.5\n1 renew a 1 lease_ms=1000\n1 info\n", 0.0, False),
        ("@ 0.5\n1 renew a 1 lease_ms=1000\n1 ok\n1 renew a 1 lease_ms=2000\n1 ok\n", 0.4, False),
        ("@ 0.5\n1 renew a 1 lease_ms=1000\n1 ok\n1 renew a 1 lease_ms=2000\n1 ok\n", 0.0, True),
    ],
)
def test_a_lease_holds_as_long_as_nothing_can_have_ended_it(text: str, clock_error: float | None, holds: bool) -> None:
    operations = History.of(script.events(EARLY.format(between=text))).by_key["a"]
    last = operations[-1].index
    cycle = [
        Step(("exit", 1), ("enter", 2), "tokens"),
        Step(("enter", 2), ("end", last), "effect"),
        Step(("end", last), ("exit", 1), "lease"),
    ]
    if holds:
        cycles.verify(operations, cycle, (), clock_error=clock_error)
    else:
        with pytest.raises(Wrong, match=f"end {last} need not come before exit 1 by the rule 'lease'"):
            cycles.verify(operations, cycle, (), clock_error=clock_error)
