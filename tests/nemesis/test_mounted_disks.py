"""Disks of a system that can't fail by themselves: a file system over the nodes' data."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cluster.mounted import mount
from cluster.places.base import Capability, ProcessState, lacking, usable
from cluster.readiness import await_ready
from cluster.systems.base import Feature
from cluster.systems.lockd import Lockd
from nemesis import kinds
from tests.cluster.standin import Standin
from tests.cluster.writer import Writer, lines
from tests.nemesis.arena import Arena, fault, open_arena

BOTH = {Capability.BREAK_DISKS, Capability.MOUNT_DISKS}

mounts = pytest.mark.skipif(
    mount.unsupported() is not None and not os.environ.get("CI"), reason=str(mount.unsupported())
)


@pytest.fixture
async def arena(tmp_path: Path) -> AsyncIterator[Arena]:
    arena = await open_arena(tmp_path, ("n1",), Writer(), {Capability.BREAK_DISKS})
    yield arena
    await arena.place.close()
    assert [one for one in mount.mounts() if one.run == tmp_path] == []


def log(arena: Arena) -> Path:
    return arena.folder / "nodes" / "n1" / "data" / "log"


def written(arena: Arena) -> int:
    """Past the file system, where nobody waits."""
    return len(lines(arena.folder / "nodes" / "n1" / mount.BEHIND / "log"))


@mounts
async def test_every_kind_takes_effect_and_ends(arena: Arena) -> None:
    modes = (kinds.DISK_STALL, kinds.DISK_FULL, kinds.DISK_ERROR, kinds.DISK_SLOW, kinds.DISK_LOSE_UNSYNCED)
    specs = [fault(kind, ("n1",), at=position * 2_500, lasts=1_000) for position, kind in enumerate(modes)]
    running = asyncio.create_task(arena.nemesis(specs).run())
    stalled = await arena.until("f1", "injected")
    assert "waits" in stalled["evidence"]
    before = written(arena)
    await asyncio.sleep(0.2)
    assert written(arena) == before
    await arena.until("f1", "healed")
    assert "exited with code 3" in (await arena.until("f2", "injected"))["evidence"]
    assert "exited with code 3" in (await arena.until("f3", "injected"))["evidence"]
    await running
    for number in range(1, len(modes) + 1):
        assert arena.actions(f"f{number}") == ["inject", "injected", "heal", "healed"]
    assert "killed with" in arena.event("f5", "injected")["evidence"]
    assert await arena.place.state("n1") is ProcessState.RUNNING
    account = (arena.folder / "nodes" / "n1" / "node.log").read_text()
    assert "No space left on device" in account
    assert "Input/output error" in account
    before, deadline = written(arena), time.monotonic() + 20
    while written(arena) <= before:
        assert time.monotonic() < deadline, "it writes again"
        await asyncio.sleep(0.05)
    await arena.place.close()
    assert lines(log(arena)) == list(range(len(lines(log(arena))))), "and its data is where it always is"


@mounts
async def test_what_a_node_has_synced_survives_every_kill(arena: Arena) -> None:
    specs = [fault(kinds.DISK_LOSE_UNSYNCED, ("n1",), at=n * 1_500, lasts=500, slow=(60, 60)) for n in range(4)]
    seen: list[int] = []
    running = asyncio.create_task(arena.nemesis(specs).run())
    lost = 0
    for number in range(1, 5):
        evidence = (await arena.until(f"f{number}", "injected"))["evidence"]
        lost += int(evidence.split("killed with ")[1].split()[0])
        await arena.until(f"f{number}", "healed")
        seen.append(written(arena))
    await running
    assert lost > 0
    assert seen == sorted(seen)
    assert (await await_ready(arena.place, ("n1",), 20)).complete


def test_who_says_where_its_data_is_gets_a_failing_disk() -> None:
    assert usable(BOTH, Writer()) == BOTH
    assert usable({Capability.BREAK_DISKS}, Writer()) == set(), "not where it can't be mounted"
    assert usable(BOTH, Lockd()) == {Capability.BREAK_DISKS}, "its own fails better"
    assert usable(BOTH, Standin()) == set()
    assert lacking({Capability.BREAK_DISKS}, Writer()) == {Capability.BREAK_DISKS: Feature.DISK}
