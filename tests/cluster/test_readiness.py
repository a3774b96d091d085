from __future__ import annotations

import asyncio
import time
from pathlib import Path

from cluster.places.local import LocalPlace
from cluster.readiness import await_ready
from tests.cluster.standin import Standin


async def test_all_nodes_are_waited_for_at_once(tmp_path: Path) -> None:
    place = LocalPlace(Standin(), ("n1", "n2", "n3"), tmp_path)
    await place.start()
    try:
        readiness = await await_ready(place, place.nodes, 10)
        assert readiness.complete, readiness.describe()
        assert 0 < readiness.seconds < 10
        await place.pause_node("n1")
        await place.kill_node("n2")
        started = time.monotonic()
        readiness = await await_ready(place, place.nodes, 1.5)
        assert 1.4 < time.monotonic() - started < 3
        assert set(readiness.missing) == {"n1", "n2"}
        assert "is paused" in readiness.missing["n1"]
        assert "was ended by SIGKILL" in readiness.describe()
        assert "n2 listens" in readiness.describe(), "the end of the log"

        async def resume_later() -> None:
            await asyncio.sleep(0.2)
            await place.resume_node("n1")

        resuming = asyncio.create_task(resume_later())
        assert set((await await_ready(place, place.nodes, 5)).missing) == {"n2"}
        await resuming
    finally:
        await place.close()


async def test_a_node_that_cannot_start_is_not_waited_for(tmp_path: Path) -> None:
    place = LocalPlace(Standin(exit_code=3), ("n1",), tmp_path)
    await place.start()
    try:
        readiness = await await_ready(place, place.nodes, 30)
        assert readiness.seconds < 10
        assert "exited with code 3" in readiness.missing["n1"]
        assert "no licence found" in readiness.missing["n1"]
    finally:
        await place.close()
