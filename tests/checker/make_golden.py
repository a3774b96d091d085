"""Writes the golden histories: every script, and random small histories; their verdicts by the exhaustive search.

python -m tests.checker.make_golden
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec

from checker.history import Event
from tests.checker import exhaustive, script
from tests.checker.compare import history_of
from tests.checker.scripts import SCRIPTS

FOLDER = Path(__file__).parent / "golden"
RANDOM = 40
SEED = 2024


def main() -> None:
    histories = {name: script.events(text) for name, text in SCRIPTS.items()}
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
        name: {"fencing": exhaustive.fenced(events), "linearizable": exhaustive.linearizable(events)}
        for name, events in sorted(histories.items())
    }
    for old in FOLDER.glob("*.jsonl"):
        old.unlink()
    for name, events in histories.items():
        _write(FOLDER / f"{name}.jsonl", events)
    (FOLDER / "verdicts.json").write_text(json.dumps(verdicts, indent=1) + "\n")


def _write(path: Path, events: Sequence[Event]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))


if __name__ == "__main__":
    main()
