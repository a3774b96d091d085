"""How far each node's clocks were off, as the run's monitor sampled them: the events `clocks` of the nemesis.

A sample is a node's clock less the testbed's, in milliseconds, counted from the first sample of that node.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from checker.history import Event
from fencepost.report.series import marks

#: The clocks, as an event and the page name them.
CLOCKS = {"lease_ms": "lease", "wall_ms": "wall"}

#: Samples of one clock that are drawn. A run of an hour has 3,600.
SAMPLES_MAX = 4_000
#: Further off than a century is no clock.
MS_MAX = 1e13


@dataclass(frozen=True, slots=True)
class Offsets:
    """One clock of one node: when it was sampled (ms since the start), and by how much it was off (ms)."""

    node: str
    clock: str
    times_ms: list[float]
    offsets_ms: list[float]
    total: int

    @property
    def drawn(self) -> int:
        return len(self.times_ms)

    def to_dict(self) -> dict[str, Any]:
        return {"node": self.node, "clock": self.clock, "times": self.times_ms, "offsets": self.offsets_ms}


def offsets(events: Iterable[Event]) -> list[Offsets]:
    """By node, then clock. What is no sample is left out: a history may be anybody's."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for time_ns, value in marks(events, "clocks"):
        for field, clock in CLOCKS.items():
            samples = value.get(field)
            for node, offset in samples.items() if isinstance(samples, dict) else ():
                if _is_offset(offset):
                    found.setdefault((str(node), clock), []).append((round(time_ns / 1e6, 1), float(offset)))
    return [_offsets(node, clock, samples) for (node, clock), samples in sorted(found.items())]


def _offsets(node: str, clock: str, samples: list[tuple[float, float]]) -> Offsets:
    kept = _thinned(samples)
    return Offsets(node, clock, [time for time, _ in kept], [offset for _, offset in kept], len(samples))


def _is_offset(offset: object) -> bool:
    return (
        isinstance(offset, int | float)
        and not isinstance(offset, bool)
        and math.isfinite(offset)
        and abs(offset) < MS_MAX
    )


def _thinned(samples: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Of each stretch the lowest and the highest, so that no excursion is lost."""
    if len(samples) <= SAMPLES_MAX:
        return samples
    stretch = math.ceil(2 * len(samples) / SAMPLES_MAX)
    kept: list[tuple[float, float]] = []
    for begin in range(0, len(samples), stretch):
        part = samples[begin : begin + stretch]
        ends = {min(part, key=lambda sample: sample[1]), max(part, key=lambda sample: sample[1])}
        kept += sorted(ends)
    return kept
