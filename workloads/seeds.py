"""Splittable seeds: randomness as a value.

A `random.Random` remembers where it is, so a generator that is asked twice would answer differently, and leaving one
client out would change what all others do. A `Seed` is a number that never changes. Draws are functions of it, and
`split` gives an independent seed for every name: one per thread, per turn, per decision.

The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood 2014). Nothing here depends on the platform,
the Python version or PYTHONHASHSEED.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

import msgspec

T = TypeVar("T")

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


class Seed(msgspec.Struct, frozen=True):
    """64 bits from which random values and further seeds are derived."""

    bits: int

    def split(self, name: str | int) -> Seed:
        """The seed of that name below this one; the same every time."""
        step = _digest(name) if isinstance(name, str) else (2 * name + 1) * _GOLDEN
        return Seed(_mix((_mix(self.bits) + step) & _MASK))

    def fraction(self) -> float:
        """Even in [0, 1)."""
        return (_mix(self.bits ^ _GOLDEN) >> 11) * 2.0**-53

    def between(self, low: int, high: int) -> int:
        """Even over the integers low..high, both included."""
        return low + int(self.fraction() * (high - low + 1))

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.fraction() * len(choices))]

    def chance(self, share: float) -> bool:
        """True with the probability `share`."""
        return self.fraction() < share


def _mix(bits: int) -> int:
    bits = (bits + _GOLDEN) & _MASK
    bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
    return bits ^ (bits >> 31)


@lru_cache(maxsize=4096)
def _digest(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")
