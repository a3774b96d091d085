"""The way to one other node: a connection that this node opens and on which only it speaks.

Raft expects messages to be lost now and then, so nothing is kept for a peer that can't be reached, or that doesn't
read as fast as this node writes: such messages are dropped, and the leader finds out from the answers.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence

import msgspec

from cluster.node.protocol import Hello, PeerMessage, Refused, ToClient, ToNode
from cluster.node.secure import Channel
from cluster.node.wire import REQUEST_BYTES_MAX, FrameError

log = logging.getLogger("lockd")

#: What may wait in the process for a peer that doesn't read. Beyond it new messages are dropped.
UNSENT_BYTES_MAX = 4 << 20

RECONNECT_S_MIN = 0.02
RECONNECT_S_MAX = 0.5
CONNECT_S_MAX = 2.0
#: A handshake that takes longer waits for something that was lost or changed on its way; meanwhile messages pile up.
HANDSHAKE_S_MAX = 5.0

#: After so long without a TCP acknowledgement the kernel gives the connection up, in ms.
UNACKNOWLEDGED_MS_MAX = 10_000

_decoder = msgspec.msgpack.Decoder(ToClient)


class Outbound(asyncio.Protocol):
    """The connection to a peer; what comes back is only its part of the handshake, or why it refuses."""

    def __init__(self, secret: bytes | None) -> None:
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.refused: str | None = None
        self._channel = Channel(secret, opens=True, limit=REQUEST_BYTES_MAX)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        tune(transport)
        transport.write(self._channel.take_reply())

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._channel.receive(data):
                message = _decoder.decode(body)
                if isinstance(message, Refused):
                    raise FrameError(message.error)
            self._transport.write(self._channel.take_reply())
        except (FrameError, msgspec.DecodeError) as error:
            self.refused = str(error)
            self._transport.abort()

    def send(self, messages: Sequence[ToNode]) -> None:
        self._transport.write(b"".join(map(self._channel.seal, messages)))

    def keeps_up(self) -> bool:
        return self._transport.get_write_buffer_size() < UNSENT_BYTES_MAX

    def expect_proof(self) -> None:
        """Give the connection up if the other side has not proved by now that it knows the secret."""
        if not self._channel.proved:
            self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


class PeerLink:
    """Keeps the connection to `peer` open, whatever happens to it, until it is closed."""

    def __init__(self, hello: Hello, peer: str, host: str, port: int, secret: bytes | None) -> None:
        self._hello, self._secret = hello, secret
        self._peer, self._host, self._port = peer, host, port
        self._connection: Outbound | None = None
        self._refusal_logged: str | None = None
        self._task = asyncio.create_task(self._keep_connected(), name=f"link to {peer}")

    def send(self, messages: Sequence[PeerMessage]) -> None:
        """Send them, in order, in as few packets as they take."""
        connection = self._connection
        if connection is not None and connection.keeps_up():
            connection.send(messages)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            self._connection.abort()

    async def _keep_connected(self) -> None:
        loop = asyncio.get_running_loop()
        pause = RECONNECT_S_MIN
        while True:
            try:
                async with asyncio.timeout(CONNECT_S_MAX):
                    _, connection = await loop.create_connection(lambda: Outbound(self._secret), self._host, self._port)
            except OSError:
                await asyncio.sleep(pause)
                pause = min(2 * pause, RECONNECT_S_MAX)
                continue
            log.info("peer=%s event=connected", self._peer)
            connection.send([self._hello])
            self._connection = connection
            connected_at = loop.time()
            if self._secret is not None:
                loop.call_later(HANDSHAKE_S_MAX, connection.expect_proof)
            await connection.lost
            self._connection = None
            self._log_loss(connection.refused)
            if loop.time() - connected_at > RECONNECT_S_MAX:
                pause = RECONNECT_S_MIN
            await asyncio.sleep(pause)
            pause = min(2 * pause, RECONNECT_S_MAX)

    def _log_loss(self, refused: str | None) -> None:
        if refused is None:
            log.info("peer=%s event=disconnected", self._peer)
        elif refused != self._refusal_logged:
            self._refusal_logged = refused
            log.error("peer=%s event=refused reason=%r", self._peer, refused)


def tune(transport: asyncio.BaseTransport) -> None:
    """No waiting for more bytes, and no connection that outlives a vanished peer for long."""
    sock = transport.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS_MAX)
