"""CPU seconds to read and check histories with every claim, on one core. The goal: 100,000 operations in under 2 s.

python -m bench.checker
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import msgspec

import checker
from bench.histories import simulated

GOAL_OPERATIONS = 100_000
GOAL_SECONDS = 2.0

KEYS = 10
REPEATS = 3

#: (operations, keys, processes, share of operations of unknown outcome)
SIZES = [
    (1_000, KEYS, 10, 0.01),
    (10_000, KEYS, 10, 0.01),
    (GOAL_OPERATIONS, KEYS, 5, 0.0),
    (GOAL_OPERATIONS, KEYS, 10, 0.01),
    (GOAL_OPERATIONS, KEYS, 100, 0.05),
    (GOAL_OPERATIONS, KEYS, 100, 0.2),
    (GOAL_OPERATIONS, 1, 10, 0.01),
    (GOAL_OPERATIONS, 1, 100, 0.2),
]


def main() -> None:
    print(
        f"checker: best of {REPEATS}, all claims; goal for {GOAL_OPERATIONS} operations: {GOAL_SECONDS:g} CPU s in all"
    )
    print(f"{'operations':>10} {'keys':>4} {'processes':>9} {'unknown':>7} {'violated':>8}", end="")
    print(f" {'read s':>7} {'check s':>7} {'total s':>7}  goal")
    with tempfile.TemporaryDirectory() as folder:
        for operations, keys, processes, unknown in SIZES:
            events = simulated(operations, keys=keys, processes=processes, unknown_share=unknown, seed=1)
            for planted in (False, True):
                path = Path(folder) / "history.jsonl"
                _write(path, _with_duplicate(events) if planted else events)
                read_s, check_s, violated = min((_measure(path) for _ in range(REPEATS)), key=_seconds)
                total_s = read_s + check_s
                goal = "" if operations < GOAL_OPERATIONS else "met" if total_s < GOAL_SECONDS else "MISSED"
                print(f"{operations:>10} {keys:>4} {processes:>9} {unknown:>7.0%} {violated:>8}", end="")
                print(f" {read_s:>7.2f} {check_s:>7.2f} {total_s:>7.2f}  {goal}")


def _measure(path: Path) -> tuple[float, float, int]:
    started = time.process_time()
    history = checker.read(path)
    middle = time.process_time()
    claims = [claim for claim in checker.CLAIMS if claim != "recovery"]
    results = checker.check(history, claims, checker.Options(tokens_span_keys=True))
    return middle - started, time.process_time() - middle, len(results.violated)


def _seconds(measured: tuple[float, float, int]) -> float:
    return measured[0] + measured[1]


def _with_duplicate(events: list[checker.Event]) -> list[checker.Event]:
    """A grant in the middle gets the token of the one before it."""
    grants = [e for e in events if e.type == "ok" and e.f == "acquire"]
    earlier, later = grants[len(grants) // 2 - 1 : len(grants) // 2 + 1]
    changed = list(events)
    changed[later.index] = msgspec.structs.replace(later, value=earlier.value)
    return changed


def _write(path: Path, events: list[checker.Event]) -> None:
    encode = msgspec.json.Encoder().encode
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events))


if __name__ == "__main__":
    main()
