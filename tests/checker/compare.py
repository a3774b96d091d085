"""Compares the sweep with the exhaustive search on many random histories.

python -m tests.checker.compare --histories 50000 --seed 1
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import dataclass, field

import msgspec

from checker.history import Event, History
from checker.sweep import decide
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


def compare(histories: int, seed: int, operations: int = 12) -> Agreement:
    """Decide each history both ways. Empty ones (damage can do that) are passed over."""
    agreement = Agreement()
    for number in range(histories):
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
        if sweep_accepts(history) != expected:
            agreement.disagreements.append(f"{seed}/{number}")
    return agreement


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=12, help="the most operations in one history")
    arguments = parser.parse_args()
    started = time.perf_counter()
    agreement = compare(arguments.histories, arguments.seed, arguments.operations)
    seconds = time.perf_counter() - started
    unknown = agreement.unknown / max(1, agreement.operations)
    print(
        f"{agreement.valid + agreement.invalid} histories ({agreement.valid} valid, {agreement.invalid} invalid),"
        f" {agreement.operations} operations, {unknown:.0%} of unknown outcome, {seconds:.0f} s:"
        f" {len(agreement.disagreements)} disagreements"
    )
    for which in agreement.disagreements[:5]:
        seed, _, number = which.partition("/")
        print(f"\n{which}:")
        for event in history_of(int(seed), int(number), arguments.operations):
            print(msgspec.json.encode(event).decode())
    return 1 if agreement.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
