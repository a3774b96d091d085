"""What it takes to read, decide and explain histories, each in a process of its own, on one core.

python -m bench.checker [--full | --huge | --operations N]

Goals: 1,000,000 operations read and decided (all safety claims) in 4 s and 1 GB at most, for every number of processes
and every share of operations of unknown outcome, valid or not; 10,000,000 in 45 s; an explanation in 2 s more.
Times are of the processor, so that a busy machine changes them little.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.histories import write_simulated
from bench.planted import PLANTS, plant

KEYS = 10

#: Goals: operations -> seconds to read and decide, megabytes.
GOALS = {1_000_000: (4.0, 1000), 10_000_000: (45.0, 10_000)}
EXPLAIN_GOAL_S = 2.0

VALID = "valid"


@dataclass(frozen=True, slots=True)
class Size:
    operations: int
    processes: int
    unknown: float
    keys: int = KEYS


SHORT = [
    Size(1_000, 10, 0.01),
    Size(10_000, 10, 0.01),
    *(Size(100_000, processes, unknown) for processes in (5, 100) for unknown in (0.0, 0.2)),
    Size(100_000, 100, 0.2, keys=1),
    Size(1_000_000, 30, 0.05),
]
FULL = [
    *(
        Size(operations, processes, unknown)
        for operations in (1_000, 10_000, 100_000, 1_000_000)
        for processes in (5, 10, 30, 100)
        for unknown in (0.0, 0.01, 0.05, 0.2)
    ),
    Size(1_000_000, 10, 0.01, keys=1),
    Size(1_000_000, 100, 0.2, keys=1),
]
HUGE = [Size(10_000_000, 30, 0.05)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="every size up to a million, every kind of violation")
    parser.add_argument("--huge", action="store_true", help="ten million operations, once")
    parser.add_argument("--operations", type=int, help="of --full, only the histories of this length")
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args([] if arguments is None else arguments)
    if chosen.cell is not None:
        print(json.dumps(_measure(chosen.cell)))
        return
    sizes = HUGE if chosen.huge else FULL if chosen.full or chosen.operations else SHORT
    if chosen.operations is not None:
        sizes = [size for size in sizes if size.operations == chosen.operations]
    print("checker: CPU seconds on one core, peak memory; `others` are mutual-exclusion, fencing and resource")
    print(f"{'operations':>10} {'keys':>4} {'procs':>5} {'unknown':>7} {'history':<15}", end="")
    print(f" {'read':>6} {'decide':>6} {'others':>6} {'explain':>7} {'MB':>5}  verdict  goal")
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            kinds = [] if chosen.huge else PLANTS if sizes is not SHORT else ["duplicate token"]
            for kind, path in _histories(size, kinds, Path(folder)):
                _print(size, kind, _measured(path))


def _histories(size: Size, kinds: list[str] | dict[str, object], folder: Path) -> Iterator[tuple[str, Path]]:
    valid, planted = folder / "valid.jsonl", folder / "planted.jsonl"
    write_simulated(
        valid, size.operations, keys=size.keys, processes=size.processes, unknown_share=size.unknown, seed=1
    )
    yield VALID, valid
    for kind in kinds:
        plant(valid, planted, kind)
        yield kind, planted


def _measured(path: Path) -> dict[str, float | str]:
    """One history in a fresh process."""
    command = [sys.executable, "-m", "bench.checker", "--cell", str(path)]
    result: dict[str, float | str] = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return result


def _print(size: Size, kind: str, cell: dict[str, float | str]) -> None:
    print(f"{size.operations:>10} {size.keys:>4} {size.processes:>5} {size.unknown:>7.0%} {kind:<15}", end="")
    print(f" {cell['read']:>6.2f} {cell['decide']:>6.2f} {cell['others']:>6.2f} {cell['explain']:>7.2f}", end="")
    total = sum(float(cell[part]) for part in ("read", "decide", "others"))
    goal = ""
    if size.operations in GOALS:
        seconds, megabytes = GOALS[size.operations]
        met = total <= seconds and float(cell["peak"]) <= megabytes and float(cell["explain"]) <= EXPLAIN_GOAL_S
        goal = "met" if met else "MISSED"
    print(f" {cell['peak']:>5.0f}  {cell['verdict']:<7}  {goal}", flush=True)


def _measure(path: Path) -> dict[str, float | str]:
    import resource

    from checker import column_claims, column_sweep, linearizable
    from checker.column_reader import read_columns
    from checker.history import paused_collector
    from checker.narrator import Narrator
    from checker.timeline import Timeline

    marks = [time.process_time()]
    with paused_collector():
        columns = read_columns(path)
        marks.append(time.process_time())
        verdicts = [
            (key, column_sweep.decide(column_sweep.Lock(columns, rows))) for key, rows in columns.by_key.items()
        ]
        marks.append(time.process_time())
        narrator = Narrator(Timeline.of(columns.others))
        others = [
            column_claims.check_mutual_exclusion(columns, narrator, Timeline.of(columns.others), clock_error=0.01),
            column_claims.check_fencing(columns, narrator, tokens_span_keys=True),
            column_claims.check_resource(columns, narrator),
        ]
        marks.append(time.process_time())
        refused = [(key, one) for key, one in verdicts if isinstance(one, column_sweep.Refused)]
        findings = [linearizable.finding(key, column_sweep.explained(one), narrator) for key, one in refused]
        marks.append(time.process_time())
    assert len(others) == 3
    assert all(finding.operations for finding in findings)
    # The first mark comes after loading, which a short history takes most of its time for.
    read, decide, rest, explain = (later - earlier for earlier, later in pairwise(marks))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    verdict = "invalid" if refused else "valid"
    return {"read": read, "decide": decide, "others": rest, "explain": explain, "peak": peak, "verdict": verdict}


if __name__ == "__main__":
    main(sys.argv[1:])
