"""A minimal etcd client for benchmarks: its JSON gateway over one kept HTTP/1.1 connection."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any


class EtcdClient:
    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        data = json.dumps(body).encode()
        head = f"POST /v3/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        found: dict[str, Any] = json.loads(await self._reader.readexactly(int(length.split(b":")[1])))
        if not answer.startswith(b"HTTP/1.1 200"):
            raise OSError(f"etcd: {path}: {found}")
        return found

    async def grant_lease(self, ttl_s: int) -> str:
        return str((await self.call("lease/grant", {"TTL": ttl_s}))["ID"])

    async def lock(self, name: str, lease: str) -> str:
        answer = await self.call("lock/lock", {"name": base64.b64encode(name.encode()).decode(), "lease": lease})
        return str(answer["key"])

    async def unlock(self, key: str) -> None:
        await self.call("lock/unlock", {"key": key})

    async def revoke(self, lease: str) -> None:
        await self.call("lease/revoke", {"ID": lease})

    def close(self) -> None:
        self._writer.close()
