"""tinylock: a lock server in one process, for docs/systems.md. It has a bug that a run of tinylock.yaml finds.

One JSON object a line, and one line in answer. Run as: tinylock_server.py HOST PORT
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

POLL_S = 0.005

locks: dict[str, tuple[int, float]] = {}  # key -> the token that holds it, and when its lease ends
counters = {"grants": 0, "releases": 0, "expiries": 0}


def holder(key: str) -> int | None:
    """The token that holds the key now. A lease that is over ends here."""
    if key in locks and locks[key][1] <= time.monotonic():
        del locks[key]
        counters["expiries"] += 1
    return locks[key][0] if key in locks else None


async def acquire(key: str, lease_ms: int, wait_ms: int) -> dict[str, Any]:
    give_up = time.monotonic() + wait_ms / 1000
    while holder(key) is not None:
        if time.monotonic() >= give_up:
            return {"error": "held" if wait_ms == 0 else "timeout"}
        await asyncio.sleep(POLL_S)
    counters["grants"] += 1
    locks[key] = (counters["grants"], time.monotonic() + lease_ms / 1000)
    return {"token": counters["grants"]}


async def release(key: str, token: int) -> dict[str, Any]:
    if holder(key) != token:
        return {"error": "not-held"}
    del locks[key]
    counters["releases"] += 1
    return {}


async def inspect(key: str) -> dict[str, Any]:
    return {"token": holder(key)}


async def status() -> dict[str, Any]:
    return {"incarnation": os.getpid(), "counters": counters}


Call = Callable[..., Awaitable[dict[str, Any]]]
CALLS: dict[str, Call] = {"acquire": acquire, "release": release, "inspect": inspect, "status": status}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        request = json.loads(line)
        answer = await CALLS[request.pop("call")](**request)
        writer.write(json.dumps(answer).encode() + b"\n")
    writer.close()


async def main(host: str, port: int) -> None:
    server = await asyncio.start_server(serve, host, port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
