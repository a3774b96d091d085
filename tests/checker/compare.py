"""Compares every way to decide a history with the exhaustive search, on many random histories.

python -m tests.checker.compare --histories 50000 --seed 1

The ways: the sweep, the sweep over columns, the monitor's incremental sweep, the verifier's sweep; and `fencing`, on
operations and on columns, with every grant compared with each.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from checker import column_claims, column_sweep, fencing, online, verifier
from checker.columns import columns_of
from checker.history import Event, History
from checker.narrator import Narrator
from checker.operations import operation_of
from checker.sweep import decide
from checker.timeline import Timeline
from checker.verdict import Verdict
from tests.checker import exhaustive, generate


@dataclass
class Agreement:
    """How many histories were compared; `disagreements` holds the seeds of those where the verdicts differ."""

    valid: int = 0
    invalid: int = 0
    operations: int = 0
    unknown: int = 0
    disagreements: list[str] = field(default_factory=list)


def history_of(seed: int, number: int, operations: int = 12) -> list[Event]:
    """The history with this number; any one can be made again alone. Every fourth is arbitrary."""
    rng = random.Random(f"{seed}/{number}")
    return generate.arbitrary(rng, operations) if number % 4 == 3 else generate.damaged(rng, operations)


def sweep_accepts(history: History) -> bool:
    return all(decide(operations) is None for operations in history.by_key.values())


def columns_accept(events: Sequence[Event]) -> bool:
    columns = columns_of(events)
    locks = (column_sweep.Lock(columns, rows) for rows in columns.by_key.values())
    return all(isinstance(column_sweep.decide(lock), column_sweep.Fits) for lock in locks)


def monitor_accepts(events: Sequence[Event]) -> bool:
    """The incremental sweeps alone."""
    locks: dict[str, online.Lock] = {}
    waiting: dict[int | str, Event] = {}
    for event in events:
        assert event.key is not None
        lock = locks.setdefault(event.key, online.Lock())
        if event.type == "invoke":
            waiting[event.process] = event
            lock.opened(event)
        else:
            assert isinstance(event.process, int)
            if not lock.completed(operation_of(event.process, waiting.pop(event.process), event)):
                return False
    return all(lock.sweep() for lock in locks.values())


def _others_accept(events: Sequence[Event], history: History) -> dict[str, bool]:
    return {
        "columns": columns_accept(events),
        "monitor": monitor_accepts(events),
        "verifier": all(map(verifier.fits, history.by_key.values())),
    }


def _fencing_accepts(events: Sequence[Event], history: History) -> dict[str, bool]:
    narrator = Narrator(Timeline.of(events))
    return {
        "fencing": fencing.check(history, narrator, tokens_span_keys=False).verdict is Verdict.VALID,
        "fencing, columns": column_claims.check_fencing(columns_of(events), narrator, tokens_span_keys=False).verdict
        is Verdict.VALID,
    }


def compare(histories: int, seed: int, operations: int = 12, *, every_way: bool = False, first: int = 0) -> Agreement:
    """Decide each history by the sweep, or every way. Empty ones (damage can do that) are passed over."""
    agreement = Agreement()
    for number in range(first, first + histories):
        events = history_of(seed, number, operations)
        if not events:
            continue
        history = History.of(events)
        expected = exhaustive.linearizable(events)
        if expected:
            agreement.valid += 1
        else:
            agreement.invalid += 1
        agreement.operations += len(history.operations)
        agreement.unknown += sum(operation.outcome == "info" for operation in history.operations)
        verdicts = {"sweep": sweep_accepts(history)} | (_others_accept(events, history) if every_way else {})
        agreement.disagreements += [f"{seed}/{number} {way}" for way, fits in verdicts.items() if fits != expected]
        if every_way:
            fenced = exhaustive.fenced(events)
            ways = _fencing_accepts(events, history)
            agreement.disagreements += [f"{seed}/{number} {way}" for way, fits in ways.items() if fits != fenced]
    return agreement


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=12, help="the most operations in one history")
    parser.add_argument("--first", type=int, default=0, help="the number of the first history")
    arguments = parser.parse_args()
    started = time.perf_counter()
    agreement = compare(
        arguments.histories, arguments.seed, arguments.operations, every_way=True, first=arguments.first
    )
    seconds = time.perf_counter() - started
    unknown = agreement.unknown / max(1, agreement.operations)
    print(
        f"{agreement.valid + agreement.invalid} histories ({agreement.valid} valid, {agreement.invalid} invalid),"
        f" {agreement.operations} operations, {unknown:.0%} of unknown outcome, {seconds:.0f} s:"
        f" {len(agreement.disagreements)} disagreements"
    )
    for which in agreement.disagreements[:5]:
        seed, _, number = which.split()[0].partition("/")
        print(f"\n{which}:")
        for event in history_of(int(seed), int(number), arguments.operations):
            print(msgspec.json.encode(event).decode())
    return 1 if agreement.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
