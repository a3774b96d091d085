"""The way to one other node: a connection that this node opens and on which only it speaks.

Raft expects messages to be lost now and then, so nothing is kept for a peer that can't be reached, or that doesn't
read as fast as this node writes: such messages are dropped, and the leader finds out from the answers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence

from cluster.node.protocol import Hello, PeerMessage
from cluster.node.wire import frame

log = logging.getLogger("lockd")

#: What may wait in the process for a peer that doesn't read. Beyond it new messages are dropped.
UNSENT_BYTES_MAX = 4 << 20

RECONNECT_S_MIN = 0.02
RECONNECT_S_MAX = 0.5
CONNECT_S_MAX = 2.0

#: After so long without a TCP acknowledgement the kernel gives the connection up, in ms.
UNACKNOWLEDGED_MS_MAX = 10_000


class Outbound(asyncio.Protocol):
    def __init__(self) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class PeerLink:
    """Keeps the connection to `peer` open, whatever happens to it, until it is closed."""

    def __init__(self, me: str, cluster: str, peer: str, host: str, port: int) -> None:
        self._hello = frame(Hello(me, cluster))
        self._peer, self._host, self._port = peer, host, port
        self._transport: asyncio.Transport | None = None
        self._task = asyncio.create_task(self._keep_connected(), name=f"link to {peer}")

    def send(self, messages: Sequence[PeerMessage]) -> None:
        """Send them, in order, in as few packets as they take."""
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() < UNSENT_BYTES_MAX:
            transport.write(b"".join(map(frame, messages)))

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._transport is not None:
            self._transport.abort()

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        pause = RECONNECT_S_MIN
        while True:
            try:
                async with asyncio.timeout(CONNECT_S_MAX):
                    transport, protocol = await loop.create_connection(Outbound, self._host, self._port)
            except OSError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, RECONNECT_S_MAX)
                continue
            log.info("peer=%s event=connected", self._peer)
            tune(transport)
            transport.write(self._hello)
            self._transport = transport
            connected_at = loop.time()
            await protocol.lost
            self._transport = None
            log.info("peer=%s event=disconnected", self._peer)
            if loop.time() - connected_at > RECONNECT_S_MAX:
                pause = RECONNECT_S_MIN
            await asyncio.sleep(pause)
            pause = min(2 * pause, RECONNECT_S_MAX)


def tune(transport: asyncio.BaseTransport) -> None:
    """No waiting for more bytes, and no connection that outlives a vanished peer for long."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
