"""The client library: asyncio, one connection to one node, which passes requests on to the leader.

Every call ends in a `Reply` that says what is known: `ok`, it happened; `fail`, it definitely did not; `info`, nobody
knows. A lock is the caller's only when `acquire` says `ok`: the library has then acknowledged the grant and the leader
has confirmed it. The lease counts from before the call, at the earliest.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec

from cluster.node.members import Member
from cluster.node.protocol import (
    Ack,
    Acquire,
    AddMember,
    Cancel,
    Confirmed,
    Done,
    GrantedTo,
    Holder,
    Inspect,
    LockRequest,
    MoveLeadership,
    Ping,
    Pong,
    Refused,
    ReleaseToken,
    RemoveMember,
    StatusReply,
    StatusRequest,
    ToClient,
    Unknown,
    problem,
)
from cluster.node.secure import Channel
from cluster.node.transport import tune
from cluster.node.wire import FRAME_BYTES_MAX, FrameError

#: Of the time that a waiting acquire may take, the share that is kept for asking to cancel it.
CANCEL_SHARE = 1 / 3

_decoder = msgspec.msgpack.Decoder(ToClient)


class Reply(msgspec.Struct, frozen=True):
    """`token`: of the grant, or of the holder that inspect found (None: free). `leader`: where to go instead."""

    type: Literal["ok", "fail", "info"]
    token: int | None = None
    error: str | None = None
    leader: str | None = None


async def connect(host: str, port: int, *, timeout_s: float, secret: bytes | None = None) -> Client:
    """Connect to a node; every call of the client then ends within `timeout_s` plus its own wait. `secret` is the
    cluster's, where it has one. Raises OSError (TimeoutError is one)."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(timeout_s):
        _, client = await loop.create_connection(lambda: Client(timeout_s, secret), host, port)
    return client


class Client(asyncio.Protocol):
    """Make one with `connect`. Calls may overlap."""

    def __init__(self, timeout_s: float, secret: bytes | None = None) -> None:
        self._timeout_s = timeout_s
        self._channel = Channel(secret, opens=True, limit=FRAME_BYTES_MAX)
        self._transport: asyncio.Transport
        self._next_id = 0
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self._tokens: dict[int, int] = {}
        self._statuses: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._pongs: list[asyncio.Future[None]] = []
        self._lost: str | None = None
        #: What acquires and releases are called in the nodes' records (see `record`), from now on.
        self.tag = ""
        #: Nothing that was asked on this connection can have been served: it was refused from the start.
        self._turned_away = False
        self._served = False

    # ---- calls

    async def acquire(self, key: str, lease_ms: int, wait_ms: int = 0, *, forward: bool = True) -> Reply:
        """Acquire `key` for `lease_ms`, waiting up to `wait_ms` for it. fail: "held", "timeout" (waited in vain), or
        something that says nothing about the lock."""
        request = Acquire(self._new_id(), key, lease_ms, wait_ms, forward, self.tag)
        reply = self._send(request)
        patience_s = wait_ms / 1000 + self._timeout_s * (1 - CANCEL_SHARE)
        try:
            answer = await self._within(reply, patience_s)
            if answer is None and self._lost is None:
                self._transport.write(self._channel.seal(Cancel(request.id)))
                answer = await self._within(reply, self._timeout_s * CANCEL_SHARE)
        except asyncio.CancelledError:
            # The caller can't take the grant any more: say so before the answer is dropped.
            if self._lost is None:
                self._transport.write(self._channel.seal(Cancel(request.id)))
            raise
        finally:
            self._forget(request.id)
        return answer or Reply("info", error="timeout")

    async def release(self, key: str, token: int, *, forward: bool = True) -> Reply:
        """Release the grant `token`. fail: "not-held", or something that says nothing about the lock."""
        return await self._call(ReleaseToken(self._new_id(), key, token, forward, self.tag))

    async def inspect(self, key: str, *, local: bool = False, forward: bool = True) -> Reply:
        """Who holds `key`. Linearizable, unless `local`: then it is what this node knows, which may be old."""
        return await self._call(Inspect(self._new_id(), key, local, forward))

    async def add_member(self, node: str, address: str, *, forward: bool = True) -> Reply:
        """Add a server, found at `address` ("HOST:PORT"); ok when it votes, and that is committed."""
        return await self._call(AddMember(self._new_id(), Member(node, address, False), forward))

    async def remove_member(self, node: str, *, forward: bool = True) -> Reply:
        """Remove a server; ok when that is committed."""
        return await self._call(RemoveMember(self._new_id(), node, forward))

    async def move_leadership(self, node: str, *, forward: bool = True) -> Reply:
        """Hand leadership to `node`; ok when it was asked to take over."""
        return await self._call(MoveLeadership(self._new_id(), node, forward))

    async def status(self) -> dict[str, Any]:
        """What the node knows of itself (see `Core.status`). Raises ConnectionError, TimeoutError."""
        id = self._new_id()
        self._check_connected()
        reply = self._statuses[id] = asyncio.get_running_loop().create_future()
        self._transport.write(self._channel.seal(StatusRequest(id)))
        try:
            async with asyncio.timeout(self._timeout_s):
                status: dict[str, Any] = await reply
        finally:
            del self._statuses[id]
        return status

    async def ping(self) -> None:
        """Raises ConnectionError, TimeoutError."""
        self._check_connected()
        pong: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pongs.append(pong)
        self._transport.write(self._channel.seal(Ping()))
        async with asyncio.timeout(self._timeout_s):
            await pong

    async def close(self) -> None:
        """Close at once; calls that are still open end with `info`."""
        self._transport.abort()

    # ---- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        tune(transport)
        transport.write(self._channel.take_reply())

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = self._lost or "connection-lost"
        for reply in self._replies.values():
            _finish(reply, Reply("fail" if self._turned_away else "info", error=self._lost))
        waiting: list[asyncio.Future[Any]] = [*self._statuses.values(), *self._pongs]
        for future in waiting:
            if not future.done():
                future.set_exception(ConnectionError(self._lost))

    def data_received(self, data: bytes) -> None:
        try:
            for body in self._channel.receive(data):
                self._take(_decoder.decode(body))
            self._transport.write(self._channel.take_reply())
        except (FrameError, msgspec.DecodeError) as error:
            self._on_refused(str(error))
            self._transport.abort()

    def _take(self, message: ToClient) -> None:
        self._served = self._served or not isinstance(message, Pong | Refused)
        match message:
            case Pong():
                for pong in self._pongs:
                    if not pong.done():
                        pong.set_result(None)
                self._pongs.clear()
            case StatusReply(id, status):
                if id in self._statuses and not self._statuses[id].done():
                    self._statuses[id].set_result(status)
            case GrantedTo(id, token):
                self._on_granted(id, token)
            case Refused(id=0, error=error):
                self._on_refused(error.removeprefix("bad-request: "))
            case Confirmed(id):
                self._reply(id, Reply("ok", token=self._tokens.get(id)))
            case Done(id):
                self._reply(id, Reply("ok"))
            case Holder(id, token):
                self._reply(id, Reply("ok", token=token))
            case Refused(id, error, leader):
                self._reply(id, Reply("fail", error=error, leader=leader))
            case Unknown(id, error):
                self._reply(id, Reply("info", error=error))

    def _on_refused(self, why: str) -> None:
        """The connection is refused, not a request. Before the secret is proved, and before anything was answered where
        there is none, that is the fate of all that was asked on it."""
        self._lost = self._lost or why
        self._turned_away = not self._channel.proved and not self._served

    def _on_granted(self, id: int, token: int) -> None:
        """Acknowledge, unless the call is over: then the leader shall take the grant back."""
        if id in self._replies:
            self._tokens[id] = token
            self._transport.write(self._channel.seal(Ack(id, token)))

    # ---- calls in progress

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _check_connected(self) -> None:
        if self._lost is not None:
            raise ConnectionError(self._lost)

    def _send(self, request: LockRequest) -> asyncio.Future[Reply]:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        trouble = problem(request)
        if trouble is not None:
            reply.set_result(Reply("fail", error=f"bad-request: {trouble}"))
        elif self._lost is not None:
            reply.set_result(Reply("fail", error=self._lost if self._turned_away else "not-connected"))
        else:
            self._replies[request.id] = reply
            self._transport.write(self._channel.seal(request))
        return reply

    async def _call(self, request: LockRequest) -> Reply:
        try:
            answer = await self._within(self._send(request), self._timeout_s)
        finally:
            self._forget(request.id)
        return answer or Reply("info", error="timeout")

    @staticmethod
    async def _within(reply: asyncio.Future[Reply], seconds: float) -> Reply | None:
        done, _ = await asyncio.wait([reply], timeout=seconds)
        return reply.result() if done else None

    def _reply(self, id: int, reply: Reply) -> None:
        if id in self._replies:
            _finish(self._replies[id], reply)

    def _forget(self, id: int) -> None:
        self._replies.pop(id, None)
        self._tokens.pop(id, None)


def _finish(future: asyncio.Future[Reply], reply: Reply) -> None:
    if not future.done():
        future.set_result(reply)
