"""A real local place with stand-in nodes, and a nemesis on it, whose every event can be looked at."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cluster.places.base import Capability, Link, Place
from cluster.places.local import LocalPlace
from cluster.readiness import await_ready
from cluster.systems.base import System
from nemesis.clocks import EXACT, ClockBound
from nemesis.conductor import Nemesis
from nemesis.family import Family
from nemesis.kinds import Value
from nemesis.ledger import Ledger
from nemesis.schedule import plan
from nemesis.spec import FaultSpec, Moment
from tests.cluster.standin import Standin

MS = 1_000_000
LIMIT_NS = 30_000 * MS


def fault(
    kind: str,
    target: str | tuple[str, ...] | None = None,
    *,
    shape: str | None = None,
    at: int = 0,
    lasts: int = 600,
    cuts: tuple[tuple[str, str], ...] | None = None,
    when: Moment | None = None,
    **options: Value,
) -> FaultSpec:
    """`at` and `lasts` in milliseconds."""
    given = tuple(sorted(options.items()))
    return FaultSpec(kind, target, shape, at_ns=at * MS, for_ns=lasts * MS, cuts=cuts, options=given, when=when)


@dataclass
class Arena:
    place: Place
    folder: Path
    events: list[dict[str, Any]] = field(default_factory=list)

    def record(
        self, process: int | str, type: Literal["info"], f: str, /, *, value: dict[str, Any] | None = None
    ) -> None:
        assert (process, type) == ("nemesis", "info")
        self.events.append({"f": f, **json.loads(json.dumps(value))})

    def nemesis(
        self,
        specs: Sequence[FaultSpec],
        seed: int = 1,
        *,
        families: Sequence[Family] = (),
        clock_bound: ClockBound = EXACT,
    ) -> Nemesis:
        return Nemesis(
            self.place,
            plan(specs, seed, LIMIT_NS),
            record=self.record,
            ledger=Ledger(self.folder / "ledger.jsonl"),
            clock=time.monotonic_ns,
            time_limit_ns=LIMIT_NS,
            families=families,
            clock_bound=clock_bound,
        )

    def actions(self, fault: str) -> list[str]:
        return [event["action"] for event in self.events if event.get("fault") == fault]

    def event(self, fault: str, action: str) -> dict[str, Any]:
        (event,) = [event for event in self.events if event.get("fault") == fault and event["action"] == action]
        return event

    async def until(self, fault: str, action: str) -> dict[str, Any]:
        deadline = time.monotonic() + 10
        while action not in self.actions(fault):
            assert time.monotonic() < deadline, self.events
            await asyncio.sleep(0.005)
        return self.event(fault, action)

    def ledger(self) -> list[tuple[str, str]]:
        lines = (self.folder / "ledger.jsonl").read_text().splitlines()
        return [(entry["fault"], entry["action"]) for entry in map(json.loads, lines)]

    def lead(self, leader: str | None, term: int, **nodes: dict[str, Any]) -> None:
        """What the stand-in nodes say from now on; `nodes` say something of their own."""
        draft = self.folder / "leader.draft"
        draft.write_text(json.dumps({"leader": leader, "term": term, "nodes": nodes}))
        draft.rename(self.folder / "leader.json")

    async def passing(self, timeout: float = 0.2) -> set[Link]:
        """The links that let probes through, found out past the nemesis."""
        links = [Link(a, b) for a in self.place.nodes for b in self.place.nodes if a != b]
        passed = await asyncio.gather(*(self.place.probe_link(link, timeout) for link in links))
        return {link for link, answered in zip(links, passed, strict=True) if answered}

    def all_links(self) -> set[Link]:
        return {Link(a, b) for a in self.place.nodes for b in self.place.nodes if a != b}


async def open_arena(
    folder: Path, nodes: Sequence[str], system: System | None = None, equipment: Collection[Capability] = ()
) -> Arena:
    place = LocalPlace(system or Standin(), nodes, folder)
    place.equip(equipment)
    await place.start()
    readiness = await await_ready(place, nodes, 20)
    if not readiness.complete:
        await place.close()
        raise AssertionError(readiness.describe())
    return Arena(place, folder)
