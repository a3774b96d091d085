from __future__ import annotations

from typing import Any

from cluster.places.base import ProcessState
from nemesis.disks import Disks
from nemesis.kinds import DISK_LOSE_UNSYNCED
from nemesis.processes import Holds
from nemesis.schedule import plan
from tests.nemesis.arena import LIMIT_NS, fault


class Running:
    """A place, as far as choosing targets needs one."""

    async def state(self, node: str) -> ProcessState:
        return ProcessState.RUNNING


async def slow_ms(seed: int, **options: Any) -> int:
    place: Any = Running()
    disks = Disks(DISK_LOSE_UNSYNCED, place, ["n1", "n2"], Holds(), {})
    (planned,) = plan([fault(DISK_LOSE_UNSYNCED, ("n1",), **options)], seed, LIMIT_NS)
    prepared = await disks.prepare(planned)
    low, high = prepared.explicit.span_ms("slow")
    assert low == high == prepared.detail["slow_ms"]
    return low


async def test_how_slow_a_disk_becomes_is_drawn_from_all_of_the_range() -> None:
    drawn = [await slow_ms(seed, slow=(1, 5)) for seed in range(100)]
    assert set(drawn) == {1, 2, 3, 4, 5}
    assert drawn == [await slow_ms(seed, slow=(1, 5)) for seed in range(100)]
    assert 20 <= await slow_ms(1) <= 60
