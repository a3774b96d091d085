"""Seconds from nothing to five nodes in Docker that all serve, with the image built. The goal: under 10.

python -m bench.docker_start
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from cluster.places import node_names
from cluster.places.base import PlaceError
from cluster.places.docker import DockerPlace
from cluster.readiness import await_ready
from cluster.systems.lockd import Lockd

GOAL_SECONDS = 10.0
NODES = 5
REPEATS = 3


def main() -> None:
    try:
        DockerPlace.prepare(print)
    except PlaceError as problem:
        print(f"docker: not measured: {problem}")
        return
    print(f"docker: {NODES} nodes, best of {REPEATS}; goal from start to ready: {GOAL_SECONDS:g} s")
    print(f"{'start s':>8} {'ready s':>8} {'close s':>8}  goal")
    start_s, ready_s, close_s = min((asyncio.run(_measure()) for _ in range(REPEATS)), key=lambda times: times[1])
    goal = "met" if ready_s < GOAL_SECONDS else "MISSED"
    print(f"{start_s:>8.2f} {ready_s:>8.2f} {close_s:>8.2f}  {goal}")


async def _measure() -> tuple[float, float, float]:
    """Until every node's process was started, until every node served, and from there until all is gone."""
    with tempfile.TemporaryDirectory() as folder:
        place = DockerPlace(Lockd(), node_names(NODES), Path(folder))
        began = time.monotonic()
        await place.start()
        try:
            started = time.monotonic()
            readiness = await await_ready(place, place.nodes, 60)
            ready = time.monotonic()
        finally:
            closing = time.monotonic()
            await place.close()
        if not readiness.complete:
            raise SystemExit(readiness.describe())
        return started - began, ready - began, time.monotonic() - closing


if __name__ == "__main__":
    main()
