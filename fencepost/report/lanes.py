"""Who held which key when, as the clients saw it.

A grant's bar begins when its acquire came back `ok`. It ends when its release came back `ok`, and at the latest when
its lease, counted from that acquire's completion, is over: until then the service may let the client keep it. What a
client held beyond that (it released, or tried to, only later) is drawn as a thin tail: a belief, not a right.

A bar is red when a finding names its token, when the token was granted twice, or when a later token was granted while
it was in force (as the claim `mutual-exclusion` has it: counted from the *invocation*, shortened by the declared clock
error, and ended by any release that may have taken effect), and so is the bar of that later token.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from fencepost.report.calls import Call, Ending

MS = 1_000_000

#: Pictures stay legible and small; what is left out is said on the page.
LANES_MAX = 40
GRANTS_MAX = 20_000
#: Bars of one key that overlap are drawn above each other, in at most so many rows.
ROWS_MAX = 4


@dataclass(slots=True)
class Grant:
    """Times in nanoseconds since the start of the run; indices are those of the invocations."""

    key: str
    token: int
    process: int | str
    node: str | None
    index: int
    invoked: int
    start: int
    lease: int | None
    end: int
    believed: int
    released: str
    in_force_until: int
    red: bool = False
    row: int = 0


@dataclass(slots=True)
class Lane:
    key: str
    grants: list[Grant]
    rows: int
    total: int


@dataclass(slots=True)
class Lanes:
    lanes: list[Lane] = field(default_factory=list)
    keys_total: int = 0
    grants_total: int = 0
    grants_drawn: int = 0


def lanes(calls: Iterable[Call], end: int, clock_error: float = 0.0, named: Collection[tuple[str, int]] = ()) -> Lanes:
    """Every key's grants. `end` is the end of the run in nanoseconds, `named` the (key, token) that findings name."""
    by_key: dict[str, list[Grant]] = {}
    for grant in _grants(calls, end, clock_error):
        by_key.setdefault(grant.key, []).append(grant)
    for grants in by_key.values():
        _mark_overlaps(grants)
        for grant in grants:
            grant.red = grant.red or (grant.key, grant.token) in named
    total = sum(map(len, by_key.values()))
    # The keys with something to see come first when not all can be shown.
    chosen = sorted(by_key, key=lambda key: (-sum(grant.red for grant in by_key[key]), -len(by_key[key]), key))
    chosen = sorted(chosen[:LANES_MAX], key=_natural)
    budget = GRANTS_MAX // max(1, len(chosen))
    shown = [_lane(key, by_key[key], budget) for key in chosen]
    return Lanes(shown, len(by_key), total, sum(len(lane.grants) for lane in shown))


def _natural(key: str) -> list[tuple[int, str]]:
    """k2 before k10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", key)]


def _grants(calls: Iterable[Call], end: int, clock_error: float) -> list[Grant]:
    grants: dict[tuple[str, int], list[Grant]] = {}
    for call in calls:
        completion, key = call.completion, call.invoke.key
        if key is None:
            continue
        if call.invoke.f == "acquire" and call.ending is Ending.OK and completion is not None:
            token = call.answered("token")
            if token is None:
                continue
            lease_ms = call.asked("lease_ms")
            lease = None if lease_ms is None else lease_ms * MS
            over = end if lease is None else completion.time + lease
            safe = end if lease is None else call.invoke.time + int(lease * (1 - clock_error))
            grant = Grant(
                key=key,
                token=token,
                process=call.invoke.process,
                node=call.invoke.node or completion.node,
                index=call.invoke.index,
                invoked=call.invoke.time,
                start=completion.time,
                lease=lease,
                end=min(over, end),
                believed=min(over, end),
                released="",
                in_force_until=safe,
            )
            grants.setdefault((key, token), []).append(grant)
        elif call.invoke.f == "release":
            token = call.asked("token")
            if token is not None and (key, token) in grants:
                _release(_own(grants[key, token], call.invoke.process), call, end)
    for twins in grants.values():
        for grant in twins:
            grant.red = len(twins) > 1
    return sorted((grant for twins in grants.values() for grant in twins), key=lambda grant: grant.start)


def _own(grants: list[Grant], process: int | str) -> Grant:
    """A token has one grant; where a broken service gave it twice, a client releases its own."""
    return next((grant for grant in grants if grant.process == process), grants[-1])


def _release(grant: Grant, call: Call, end: int) -> None:
    at = end if call.completion is None else call.completion.time
    if call.ending is Ending.OK:
        grant.end = min(grant.end, at)
    if call.ending is not Ending.FAIL:
        grant.in_force_until = min(grant.in_force_until, call.invoke.time)
    error = call.completion.error if call.completion is not None else None
    grant.released = call.ending.name.lower() + (f": {error}" if error else "")
    grant.believed = max(grant.end, call.invoke.time)


def _mark_overlaps(grants: list[Grant]) -> None:
    """Grants in order of start; a grant is compared with those that were in force when it completed."""
    in_force: list[Grant] = []
    for grant in grants:
        in_force = [other for other in in_force if other.in_force_until > grant.start]
        for other in in_force:
            if other.token < grant.token:
                other.red = grant.red = True
        in_force.append(grant)


def _lane(key: str, grants: list[Grant], budget: int) -> Lane:
    ends: list[int] = []
    for grant in grants:
        free = next((row for row, busy in enumerate(ends) if busy <= grant.start), None)
        if free is None and len(ends) < ROWS_MAX:
            ends.append(0)
            free = len(ends) - 1
        grant.row = free if free is not None else min(range(len(ends)), key=ends.__getitem__)
        ends[grant.row] = max(ends[grant.row], grant.end)
    drawn = grants
    if len(grants) > budget:
        red = [grant for grant in grants if grant.red][:budget]
        others = [grant for grant in grants if not grant.red]
        keep = max(0, budget - len(red))
        chosen = [others[position * len(others) // keep] for position in range(min(keep, len(others)))] if keep else []
        drawn = sorted([*red, *chosen], key=lambda grant: grant.start)
    return Lane(key, drawn, max(1, len(ends)), len(grants))
