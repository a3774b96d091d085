"""Histories as a short text, for tests.

One event a line, a client's operation by its process, the nemesis' by the word:

    1 acquire a lease_ms=2000  process 1 (pinned to n1) invokes; also: `release a 3`, `inspect a`, `renew a 3`,
                               `write a 3 guarded=false`, `read a`
    1 ok 3                     completes with token 3; `ok null`, `ok`, `fail held`, `info`
    nemesis partition {...}    value as JSON
    @ 2.5                      the next event is at 2.5 s; each further one 1 ms later
"""

from __future__ import annotations

import json
from typing import Any

from checker.history import NEMESIS, Event

STEP_NS = 1_000_000
DEFAULT_LEASE_MS = 2000


def events(text: str) -> list[Event]:
    """The events of a script; empty lines and what follows a `#` are passed over."""
    found: list[Event] = []
    open_calls: dict[int, tuple[str, str]] = {}
    time = 0
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == "@":
            time = int(float(words[1]) * 1e9)
            continue
        index = len(found)
        if words[0] == NEMESIS:
            value = json.loads(line.split("#")[0].split(None, 2)[2])
            found.append(Event(index, time, NEMESIS, "info", words[1], None, value))
        else:
            process = int(words[0])
            if words[1] in ("ok", "fail", "info"):
                found.append(_completion(index, time, process, words[1:], open_calls.pop(process)))
            else:
                open_calls[process] = (words[1], words[2])
                found.append(_invoke(index, time, process, words[1:]))
        time += STEP_NS
    return found


def _invoke(index: int, time: int, process: int, words: list[str]) -> Event:
    f, key, *rest = words
    value: dict[str, Any] = {}
    for word in rest:
        name, equals, found = word.partition("=")
        value[name if equals else "token"] = json.loads(found if equals else word)
    if f in ("acquire", "renew"):
        value.setdefault("lease_ms", DEFAULT_LEASE_MS)
    if f == "write":
        value.setdefault("data", "x")
    return Event(index, time, process, "invoke", f, key, value or None, None, f"n{process}")


def _completion(index: int, time: int, process: int, words: list[str], call: tuple[str, str]) -> Event:
    f, key = call
    kind, *rest = words
    if kind == "ok":
        value = {"token": json.loads(rest[0])} if rest else None
        if f == "read":
            value = {**(value or {}), "data": "x"}
        return Event(index, time, process, "ok", f, key, value, None, f"n{process}")
    error = " ".join(rest) or "timeout"
    return Event(index, time, process, kind, f, key, None, error, f"n{process}")  # type: ignore[arg-type]
