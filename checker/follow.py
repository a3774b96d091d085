"""Checks a history while somebody else writes it, in a process of its own, so that it costs the writer nothing.

    python -m checker.follow HISTORY [--clock-error E] [--tokens-span-keys]

It reads what is appended until its standard input ends, and then what is left. As soon as a claim is violated it says
so, in one line of JSON on standard output, and ends; see `checker.online` for what an alarm means.
"""

from __future__ import annotations

import argparse
import os
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from checker.events import Event
from checker.online import Alarm, Monitor

#: How long to wait, in s, where nothing has been appended since the last look.
LOOK_EVERY_S = 0.05
READ_BYTES = 1 << 20
#: Whoever is watched comes first.
NICENESS = 5


def lines(path: Path, ends: Callable[[float], bool]) -> Iterator[bytes]:
    """Pieces of whole lines, as they are appended to the file, which need not be there yet. `ends(seconds)` waits, and
    says whether there will be no more."""
    over = False
    while not path.exists():
        if over:
            return
        over = ends(LOOK_EVERY_S)
    rest = b""
    with path.open("rb", buffering=0) as file:
        while True:
            data = file.read(READ_BYTES)
            if data:
                whole, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    yield whole
            elif over:
                return
            else:
                over = ends(LOOK_EVERY_S)


def follow(pieces: Iterator[bytes], monitor: Monitor) -> Alarm | None:
    """The first alarm of a history that comes in pieces. Raises msgspec.DecodeError for what is no history."""
    decode = msgspec.json.Decoder(Event).decode_lines
    for piece in pieces:
        for event in decode(piece):
            alarm = monitor.observe(event)
            if alarm is not None:
                return alarm
    return monitor.finish()


def _input_ends(seconds: float) -> bool:
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and not os.read(sys.stdin.fileno(), 1024)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m checker.follow", description=__doc__)
    parser.add_argument("history", type=Path)
    parser.add_argument("--clock-error", type=float, default=0.0)
    parser.add_argument("--tokens-span-keys", action="store_true")
    chosen = parser.parse_args()
    os.nice(NICENESS)
    monitor = Monitor(clock_error=chosen.clock_error, tokens_span_keys=chosen.tokens_span_keys)
    alarm = follow(lines(chosen.history, _input_ends), monitor)
    if alarm is not None:
        print(msgspec.json.encode(alarm).decode(), flush=True)


if __name__ == "__main__":
    main()
