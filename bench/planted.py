"""Violations, one of each kind, planted into the middle of a history that had none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec

from checker.history import Event

_DECODER = msgspec.json.Decoder(Event)

#: From the tokens of the last few grants of a key, and an event: what it becomes, or None.
Plant = Callable[[list[int], Event], Event | None]


def _duplicate(granted: list[int], event: Event) -> Event | None:
    """A token is granted again."""
    return _with_token(event, granted[-1]) if _grants(event) else None


def _order(granted: list[int], event: Event) -> Event | None:
    """A grant gets a token between two that were granted, released and gone by then."""
    if not _grants(event):
        return None
    token = next((one + 1 for one, other in pairwise(granted) if other > one + 1), None)
    return None if token is None else _with_token(event, token)


def _stale_read(granted: list[int], event: Event) -> Event | None:
    """A reader sees a holder of long ago."""
    return _with_token(event, granted[0]) if event.f == "inspect" and event.type == "ok" else None


def _unknown_token(_: list[int], event: Event) -> Event | None:
    """A reader sees a holder that was never granted the lock by anybody."""
    return _with_token(event, -1) if event.f == "inspect" and event.type == "ok" else None


PLANTS: dict[str, Plant] = {
    "duplicate token": _duplicate,
    "token order": _order,
    "stale read": _stale_read,
    "unknown token": _unknown_token,
}


def plant(source: Path, target: Path, kind: str) -> None:
    """Copy a history with one event changed, the first suitable one after its middle."""
    change = PLANTS[kind]
    granted: dict[str | None, deque[int]] = {}
    middle, position, done = source.stat().st_size // 2, 0, False
    with source.open("rb") as lines, target.open("wb") as file:
        for line in lines:
            position += len(line)
            if not done and b'"ok"' in line:
                event = _DECODER.decode(line)
                of_key = granted.setdefault(event.key, deque(maxlen=20))
                if position > middle and len(of_key) == of_key.maxlen:
                    changed = change(list(of_key), event)
                    if changed is not None:
                        line, done = msgspec.json.encode(changed) + b"\n", True
                if _grants(event) and event.value is not None:
                    of_key.append(event.value["token"])
            file.write(line)


def _grants(event: Event) -> bool:
    return event.f == "acquire" and event.type == "ok"


def _with_token(event: Event, token: int) -> Event:
    return msgspec.structs.replace(event, value={"token": token})
