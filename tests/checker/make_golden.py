"""Writes the golden histories: every script, random small histories, and ones whose leases last nanoseconds; their
verdicts by the exhaustive search.

python -m tests.checker.make_golden
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from checker.history import Event
from tests.checker import exhaustive, script
from tests.checker.compare import history_of, timed_history_of
from tests.checker.scripts import SCRIPTS
from tests.checker.test_together import TOGETHER

FOLDER = Path(__file__).parent / "golden"
RANDOM = 40
TIMED = 12
SEED = 2024


def main() -> None:
    histories = {name: script.events(text) for name, text in SCRIPTS.items()}
    histories |= {name.replace(" ", "-"): script.events(text) for name, (text, _) in TOGETHER.items()}
    number = 0
    # As many that fit as ones that don't, so that neither verdict is right by habit.
    wanted = {True: RANDOM // 2, False: RANDOM // 2}
    while any(wanted.values()):
        events = history_of(SEED, number)
        fits = exhaustive.linearizable(events)
        if len(events) >= 10 and wanted[fits]:
            wanted[fits] -= 1
            histories[f"random-{number:04}"] = events
        number += 1
    verdicts = {
        name: {
            "fencing": exhaustive.fenced(events),
            "linearizable": exhaustive.linearizable(events),
            "together": exhaustive.linearizable(events, joint=True),
            "dense": exhaustive.linearizable(events, dense=True),
        }
        for name, events in sorted(histories.items())
    }
    # Ones that fit but for their leases, and as many that keep these.
    kept = {True: TIMED // 2, False: TIMED // 2}
    number = 0
    while any(kept.values()):
        events, clock_error = timed_history_of(SEED, number)
        if clock_error == 0 and len(events) >= 8 and exhaustive.linearizable(events):
            fits = exhaustive.linearizable(events, clock_error=0)
            if kept[fits]:
                kept[fits] -= 1
                name = f"timed-{number:04}"
                histories[name], verdicts[name] = events, {"linearizable": True, "leases": fits}
        number += 1
    for old in FOLDER.glob("*.jsonl"):
        old.unlink()
    for name, events in histories.items():
        _write(FOLDER / f"{name}.jsonl", events)
    (FOLDER / "verdicts.json").write_text(json.dumps(verdicts, indent=1) + "\n")


def _write(path: Path, events: Sequence[Event]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


if __name__ == "__main__":
    main()
