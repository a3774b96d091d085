"""Whether the place still has what it made: an engine that is stopped in the middle of a run ends every node, and that
is no failure of the service under test."""

from __future__ import annotations

import asyncio

from cluster.places.base import NoticesLoss, Place, PlaceError

#: How often a place is asked, and how long its answer may take.
POLL_S = 2.0
ANSWER_BUDGET_S = 15.0


async def found(place: Place) -> str | None:
    """What the place has lost by now, if it can tell. Raises PlaceError when it gives no answer."""
    if not isinstance(place, NoticesLoss):
        return None
    try:
        async with asyncio.timeout(ANSWER_BUDGET_S):
            return await place.lost()
    except TimeoutError:
        raise PlaceError(f"{place.name} did not say within {ANSWER_BUDGET_S:g} s what it still has") from None


async def awaited(place: Place) -> str:
    """Waits until something is lost, or the place gives no answer twice in a row; returns which."""
    silent = False
    if not isinstance(place, NoticesLoss):
        await asyncio.Event().wait()
    while True:
        await asyncio.sleep(POLL_S)
        try:
            if (lost := await found(place)) is not None:
                return lost
            silent = False
        except PlaceError as problem:
            if silent:
                return str(problem)
            silent = True
