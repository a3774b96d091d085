"""From specs to planned injections: pure, and the same for the same seed on every machine.

Each spec draws from a random stream of its own, named by the seed and by what the spec says (not by its place in the
list), and each injection from one named by its number within the spec. So taking a spec away, or skipping an injection,
leaves all other draws as they were: that is what lets a failing scenario be made smaller.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nemesis.spec import FaultSpec, first_start_ns


@dataclass(frozen=True, slots=True)
class Planned:
    """One injection: `id` is unique in the run, times are nanoseconds since the start of its main phase."""

    id: str
    spec: FaultSpec
    start_ns: int
    end_ns: int
    stream: str

    def draws(self) -> random.Random:
        """This injection's own random stream, from its beginning."""
        # Seeding with text, unlike `hash`, gives the same in every process.
        return random.Random(self.stream)


def plan(specs: Iterable[FaultSpec], seed: int, time_limit_ns: int) -> tuple[Planned, ...]:
    """All injections that last in full within the time limit, in the order of their starts."""
    seen: Counter[FaultSpec] = Counter()
    drafts = []
    for position, spec in enumerate(specs):
        stream = f"{seed}/{_identity(spec)}/{seen[spec]}"
        seen[spec] += 1
        for number, start_ns in enumerate(_starts(spec, time_limit_ns)):
            drafts.append((start_ns, position, spec, f"{stream}/{number}"))
    drafts.sort(key=lambda draft: draft[:2])
    return tuple(
        Planned(f"f{number}", spec, start_ns, start_ns + spec.for_ns, stream)
        for number, (start_ns, _, spec, stream) in enumerate(drafts, start=1)
    )


def _identity(spec: FaultSpec) -> str:
    parts: list[object] = [spec.fault, spec.target, spec.shape, spec.at_ns, spec.every_ns, spec.for_ns, spec.cuts]
    parts += [part for part in (spec.options, spec.when) if part]
    return "|".join(str(part) for part in parts)


def _starts(spec: FaultSpec, time_limit_ns: int) -> Iterator[int]:
    start_ns = first_start_ns(spec)
    while start_ns + spec.for_ns <= time_limit_ns:
        yield start_ns
        if spec.every_ns is None:
            return
        start_ns += spec.every_ns
