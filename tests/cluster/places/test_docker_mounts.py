"""Data folders that are mounted on this machine and used in a container."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.mounted import mount
from cluster.places.base import Capability, DiskMode, ProcessState
from cluster.places.docker import DockerPlace
from cluster.readiness import await_ready
from tests.cluster.writer import Writer, lines
from tests.docker_engine import engine, left

pytestmark = pytest.mark.skipif(
    mount.unsupported() is not None and not os.environ.get("CI"), reason=str(mount.unsupported())
)


async def test_the_disk_of_a_node_in_a_container_stalls_forgets_and_fails(tmp_path: Path) -> None:
    engine()
    place = DockerPlace(Writer(), ("n1",), tmp_path)
    place.equip({Capability.BREAK_DISKS})
    log = tmp_path / "nodes" / "n1" / mount.BEHIND / "log"

    async def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)

    async def writes() -> None:
        before = len(lines(log))
        await until(lambda: len(lines(log)) > before)

    await place.start()
    try:
        assert (await await_ready(place, place.nodes, 30)).complete
        await until(log.exists)
        await writes()
        await place.break_disk("n1", DiskMode.STALL)
        while not (await place.disk_report("n1")).waiting:
            await asyncio.sleep(0.01)
        before = len(lines(log))
        await asyncio.sleep(0.3)
        assert len(lines(log)) == before
        await place.break_disk("n1", DiskMode.VOLATILE, 500)
        while not (await place.disk_report("n1")).unsynced_bytes:
            await asyncio.sleep(0.005)
        await place.kill_node("n1")
        assert (await place.disk_report("n1")).unsynced_bytes > 0
        assert len(lines(log)) == before
        await place.break_disk("n1", None)
        await place.start_node("n1")
        await writes()
        await place.break_disk("n1", DiskMode.ERROR)
        while await place.state("n1") is not ProcessState.DEAD:
            await asyncio.sleep(0.02)
        assert "Input/output error" in await place.account("n1")
    finally:
        await place.close()
    assert left(place.run) == []
    assert [one for one in mount.mounts() if one.run == tmp_path] == []
    whole = lines(tmp_path / "nodes" / "n1" / "data" / "log")
    assert whole == list(range(len(whole)))
