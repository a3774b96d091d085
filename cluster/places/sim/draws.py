"""Random numbers by name: a stream for every link, node and connection, all from one seed.

What happens on one link must not change what is drawn for another: else leaving out one event would give another run,
and no failing run could be made smaller. So nothing here is shared, and every stream is named by what it is for.
"""

from __future__ import annotations

import random

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def stream(seed: int, *name: object) -> random.Random:
    """The stream of that name; the same numbers in every process (text, unlike `hash`, seeds alike everywhere)."""
    return random.Random("/".join(map(str, (seed, *name))))


class Quick:
    """A stream that costs nothing to make, for things as short-lived as a connection (SplitMix64: Steele, Lea, Flood
    2014). `name` is any sequence of whole numbers."""

    __slots__ = ("_state",)

    def __init__(self, *name: int) -> None:
        state = 0
        for part in name:
            state = _mix((state ^ part) & _MASK)
        self._state = state

    def between(self, low: int, high: int) -> int:
        """Even over the whole numbers low..high, both included."""
        self._state = (self._state + _GOLDEN) & _MASK
        return low + (_mix(self._state) * (high - low + 1) >> 64)


def _mix(bits: int) -> int:
    bits = (bits + _GOLDEN) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)
