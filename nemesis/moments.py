"""Faults that wait for a moment: a line in a log, or a counter that has grown.

"Kill the leader after the next grant commits" finds what "kill the leader at 12 s" finds once in a thousand runs. Logs
and counters are looked at every few milliseconds; how long after the moment a fault acts is what that and the choice of
its target take, some ten milliseconds.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from cluster.places.base import Place, ReadsLogs
from nemesis.family import Skipped
from nemesis.spec import Moment
from nemesis.targets import ask_all

POLL_S = 0.005
#: A moment that has not come by then does not come: the fault is skipped.
MOMENT_BUDGET_S = 10.0


async def moment(place: Place, nodes: Sequence[str], wanted: Moment) -> str:
    """Wait for it; says what was seen. Raises Skipped when it doesn't come in time."""
    try:
        async with asyncio.timeout(MOMENT_BUDGET_S):
            if wanted.log is not None:
                return await _line(place, nodes, re.compile(wanted.log.encode()))
            return await _growth(place, nodes, wanted.counter or "", wanted.grows)
    except TimeoutError:
        what = f"no log had {wanted.log!r}" if wanted.log is not None else f"{wanted.counter} did not grow"
        raise Skipped(f"{what} within {MOMENT_BUDGET_S:g} s") from None


async def _line(place: Place, nodes: Sequence[str], pattern: re.Pattern[bytes]) -> str:
    if not isinstance(place, ReadsLogs):
        raise Skipped("the logs of nodes can't be read at this place while they run")
    offsets = dict.fromkeys(nodes, -1)
    rests = dict.fromkeys(nodes, b"")
    while True:
        for node in nodes:
            data, offsets[node] = await place.read_log(node, offsets[node])
            *lines, rests[node] = (rests[node] + data).split(b"\n")
            for line in lines:
                if pattern.search(line):
                    return f"{node} logged {line.decode(errors='replace')}"
        await asyncio.sleep(POLL_S)


async def _growth(place: Place, nodes: Sequence[str], counter: str, grows: int) -> str:
    first: dict[tuple[str, int], int] = {}
    while True:
        for status in await ask_all(place, nodes):
            if counter not in status.counters:
                known = ", ".join(status.counters) or "none"
                raise Skipped(f"{status.id} has no counter {counter}; it counts {known}")
            count = status.counters[counter]
            if count - first.setdefault((status.id, status.incarnation), count) >= grows:
                return f"{counter} of {status.id} grew to {count}"
        await asyncio.sleep(POLL_S)
