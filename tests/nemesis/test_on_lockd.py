"""The nemesis and the monitor on five real lockd nodes."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from cluster.readiness import await_ready
from cluster.systems.lockd import Lockd
from nemesis.monitor import Monitor
from tests.nemesis.arena import fault, open_arena

NODES = ("n1", "n2", "n3", "n4", "n5")


async def test_every_kind_of_fault_and_the_cluster_serves_again(tmp_path: Path) -> None:
    arena = await open_arena(tmp_path, NODES, Lockd())
    try:
        monitor = Monitor(arena.place, record=arena.record)
        watching = asyncio.create_task(monitor.run())
        client = await arena.place.system.connect(arena.place.address("n1"), 2.0)
        granted = await client.acquire("a", 60_000, 0)
        assert granted.value is not None
        specs = [
            fault("kill", "leader", at=200, lasts=2500),
            fault("partition", shape="isolated-leader", at=2000, lasts=2500),
            fault("pause", "leader", at=4800, lasts=1500),
            fault("partition", shape="majorities-ring", at=6500, lasts=1500),
            fault("partition", shape="bridge", at=7000, lasts=1500),
            fault("partition", shape="one-way", target="leader", at=9000, lasts=1000),
            fault("kill", "all", at=10_500, lasts=600),
        ]
        await arena.nemesis(specs).run()
        readiness = await await_ready(arena.place, NODES, 15)
        assert readiness.complete, readiness.describe()
        for number in range(1, len(specs) + 1):
            assert arena.actions(f"f{number}") == ["inject", "injected", "heal", "healed"], arena.events

        await monitor.ask_once()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        assert len(monitor.leaders) >= 4, "killed, isolated, paused and killed with all: a leader for each, at least"
        assert monitor.totals()["grants"] == 1, "counted once, whatever the number of nodes and restarts"

        again = await arena.place.system.connect(arena.place.address("n2"), 2.0)
        assert (await again.inspect("a")).value == granted.value, "the grant has survived all of it"
        await client.close()
        await again.close()
    finally:
        await arena.place.close()
