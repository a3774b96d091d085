"""Compares every way to decide a history with the exhaustive search, on many random histories.

python -m tests.checker.compare --histories 50000 --seed 1 [--jobs 2]

Each number stands for two small histories: one of a few keys, and one of a key whose leases last nanoseconds. On the
first every claim without time is decided: `linearizable` for each key by the sweep, the sweep over columns, the
monitor's incremental sweep and the verifier's; for all keys together by `together` and over columns; with dense tokens;
and `fencing`, within keys and over them, on operations and on columns, with every grant compared with each. On the
second, whether the leases can have been kept.

Every slice of a thousand is reported as soon as it is done, so that nothing is lost when the command is ended.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import msgspec

from checker import column_sweep, dense, fencing, online, together, verifier
from checker.column_together import Locks
from checker.columns import Columns, columns_of
from checker.history import Event, History
from checker.narrator import Narrator
from checker.operations import operation_of
from checker.sweep import decide
from checker.timeline import Timeline
from checker.verdict import Verdict
from tests.checker import exhaustive, generate

SLICE = 1000

#: So many histories become columns at once: numpy takes as long for a few operations as for many.
BATCH = 100


@dataclass
class Agreement:
    """How many histories were compared; `disagreements` holds the seeds of those where the verdicts differ."""

    valid: int = 0
    invalid: int = 0
    operations: int = 0
    unknown: int = 0
    together_only: int = 0
    dense_only: int = 0
    leases_only: int = 0
    timed: int = 0
    disagreements: list[str] = field(default_factory=list)

    def add(self, other: Agreement) -> None:
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def words(self) -> str:
        unknown = self.unknown / max(1, self.operations)
        return (
            f"{self.valid + self.invalid} histories ({self.valid} valid, {self.invalid} invalid;"
            f" {self.together_only} only for all keys together, {self.dense_only} only without gaps),"
            f" {self.operations} operations, {unknown:.0%} of unknown outcome; {self.timed} with leases"
            f" ({self.leases_only} invalid only for these): {len(self.disagreements)} disagreements"
        )


def history_of(seed: int, number: int, operations: int = 12) -> list[Event]:
    """The history with this number; any one can be made again alone. Every fourth is arbitrary."""
    rng = random.Random(f"{seed}/{number}")
    keys = rng.choice(["a", "a", "ab", "abc"])
    if number % 4 == 3:
        return generate.arbitrary(rng, operations, keys)
    return generate.damaged(rng, operations, keys)


def timed_history_of(seed: int, number: int, operations: int = 8) -> tuple[list[Event], float]:
    """The history with leases that has this number, and the declared error of its clocks."""
    rng = random.Random(f"{seed}/{number} timed")
    return generate.timed(rng, operations), rng.choice([0.0, 0.0, 0.25])


def sweep_accepts(history: History) -> bool:
    return all(decide(operations) is None for operations in history.by_key.values())


def together_accepts(history: History) -> bool | None:
    """None where nobody knows."""
    verdict = together.decide(history.by_key)
    return None if isinstance(verdict, together.Undecided) else isinstance(verdict, together.Fits)


def dense_accepts(history: History) -> bool:
    return all(dense.decide(operations) is None for operations in history.by_key.values())


def leases_accept(history: History, clock_error: float) -> bool | None:
    verdicts = [together.decide_leased(operations, clock_error) for operations in history.by_key.values()]
    if any(isinstance(verdict, together.Refused) for verdict in verdicts):
        return False
    return None if any(isinstance(verdict, together.Undecided) for verdict in verdicts) else True


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


class _Case:
    """A history with its true verdicts."""

    def __init__(self, name: str, events: list[Event]) -> None:
        self.name = name
        self.events = events
        self.history = History.of(events)
        self.fits = exhaustive.linearizable(events)
        several = len(self.history.by_key) > 1
        self.fits_together = self.fits and (not several or exhaustive.linearizable(events, joint=True))
        # What fits without gaps fits with them, as the tests say.
        self.fits_dense = self.fits and exhaustive.linearizable(events, dense=True)

    def differences(self, *, every_way: bool) -> Iterator[str]:
        history, fits = self.history, self.fits
        found: dict[str, tuple[object, bool]] = {
            "sweep": (sweep_accepts(history), fits),
            "together": (together_accepts(history), self.fits_together),
            "dense": (dense_accepts(history), self.fits_dense),
        }
        if every_way:
            found["monitor"] = monitor_accepts(self.events), fits
            found["verifier"] = all(map(verifier.fits, history.by_key.values())), fits
            for spans in (False, True):
                verdict = fencing.check(history, _NARRATOR, tokens_span_keys=spans).verdict
                found[f"fencing {spans}"] = verdict is Verdict.VALID, exhaustive.fenced(self.events, joint=spans)
        for way, (said, right) in found.items():
            if said is not right:
                yield f"{self.name} {way}"


_NARRATOR = Narrator(Timeline.of([]))


def _columns_differ(cases: Sequence[_Case]) -> Iterator[str]:
    """The same histories under keys of their own, as columns."""
    columns = columns_of(_joined([case.events for case in cases]))
    violations = 0
    for number, case in enumerate(cases):
        locks = [column_sweep.Lock(columns, columns.by_key[f"{number}/{key}"]) for key in case.history.by_key]
        if case.fits is not all(isinstance(column_sweep.decide(lock), column_sweep.Fits) for lock in locks):
            yield f"{case.name} columns"
        joint = Locks(locks)
        # What is neither found to fit nor to be impossible is left to `together`.
        if joint.fit() if not case.fits_together else (case.fits and joint.impossible()):
            yield f"{case.name} columns together"
        violations += not exhaustive.fenced(case.events)
    if violations != _fencing_violations(columns):
        yield f"{cases[0].name} and the next {len(cases) - 1} columns, fencing"


def _fencing_violations(columns: Columns) -> int:
    """Of how many histories some key is at odds."""
    found = set()
    for key, rows in columns.by_key.items():
        mask = [int(row) for row in rows if columns.f[row] == 0 and columns.outcome[row] == 1]
        spans = [(int(columns.index[row]), int(columns.end[row]), int(columns.token[row])) for row in mask]
        if spans and not _in_order(spans):
            found.add(key.partition("/")[0])
    return len(found)


def _in_order(grants: Sequence[tuple[int, int, int]]) -> bool:
    return not any(
        one is not other and (one[2] == other[2] or (one[1] < other[0] and one[2] > other[2]))
        for one in grants
        for other in grants
    )


def _joined(histories: Sequence[Sequence[Event]]) -> list[Event]:
    events: list[Event] = []
    time = process = 0
    for number, history in enumerate(histories):
        fresh = process
        for event in history:
            assert isinstance(event.process, int)
            fresh = max(fresh, process + event.process + 1)
            events.append(
                Event(
                    len(events), time + event.time, process + event.process, event.type, event.f,
                    f"{number}/{event.key}", event.value, event.error, event.node,
                )
            )  # fmt: skip
        process, time = fresh, events[-1].time
    return events


def compare(histories: int, seed: int, operations: int = 12, *, every_way: bool = False, first: int = 0) -> Agreement:
    """Decide each history by the sweeps, or every way. Empty ones (damage can do that) are passed over."""
    agreement = Agreement()
    waiting: list[_Case] = []
    for number in range(first, first + histories):
        _compare_timed(agreement, seed, number)
        events = history_of(seed, number, operations)
        if not events:
            continue
        case = _Case(f"{seed}/{number}", events)
        agreement.valid += case.fits
        agreement.invalid += not case.fits
        agreement.together_only += case.fits and not case.fits_together
        agreement.dense_only += case.fits and not case.fits_dense
        agreement.operations += len(case.history.operations)
        agreement.unknown += sum(operation.outcome == "info" for operation in case.history.operations)
        agreement.disagreements += case.differences(every_way=every_way)
        waiting.append(case)
        if every_way and len(waiting) == BATCH:
            agreement.disagreements += _columns_differ(waiting)
            waiting.clear()
    if every_way and waiting:
        agreement.disagreements += _columns_differ(waiting)
    return agreement


def _compare_timed(agreement: Agreement, seed: int, number: int) -> None:
    events, clock_error = timed_history_of(seed, number)
    if not events:
        return
    history = History.of(events)
    fits = exhaustive.linearizable(events, clock_error=clock_error)
    agreement.timed += 1
    agreement.leases_only += not fits and sweep_accepts(history)
    if leases_accept(history, clock_error) is not fits:
        agreement.disagreements.append(f"{seed}/{number} leases")


def _compare_slice(first: int, last: int, seed: int, operations: int) -> tuple[int, Agreement, float]:
    started = time.process_time()
    agreement = compare(min(SLICE, last - first), seed, operations, every_way=True, first=first)
    return first, agreement, time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--histories", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--operations", type=int, default=12, help="the most operations in one history")
    parser.add_argument("--first", type=int, default=0, help="the number of the first history")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes to use")
    arguments = parser.parse_args()
    started = time.perf_counter()
    total = Agreement()
    last = arguments.first + arguments.histories
    decide_slice = partial(_compare_slice, last=last, seed=arguments.seed, operations=arguments.operations)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for first, agreement, seconds in pool.map(decide_slice, range(arguments.first, last, SLICE)):
            total.add(agreement)
            print(f"from {first}, {seconds:.0f} s: {agreement.words()}", flush=True)
            for which in agreement.disagreements:
                print(f"  {which}", flush=True)
    print(f"all, {time.perf_counter() - started:.0f} s: {total.words()}")
    for which in total.disagreements[:5]:
        seed, _, number = which.split()[0].partition("/")
        print(f"\n{which}:")
        events = history_of(int(seed), int(number), arguments.operations)
        if which.endswith(" leases"):
            events, _ = timed_history_of(int(seed), int(number))
        for event in events:
            print(msgspec.json.encode(event).decode())
    return 1 if total.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
