"""The shell around the core: sockets, the disk's thread, the clock.

Whatever arrives goes to the core at once; what the core wants done is collected once for everything that arrived in
the same turn of the event loop. That is where appends, read rounds and fsyncs are batched.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cluster.node.address import join_address, split_address
from cluster.node.admin import AdminServer
from cluster.node.core import SNAPSHOT_EVERY, Core, Outputs
from cluster.node.disk import Disk, Written
from cluster.node.members import Members
from cluster.node.protocol import (
    Hello,
    LockRequest,
    PeerMessage,
    Ping,
    Pong,
    Refused,
    StatusReply,
    StatusRequest,
    ToClient,
    ToNode,
)
from cluster.node.record import Record
from cluster.node.secure import Channel
from cluster.node.storage import DamageError, Storage, StorageError
from cluster.node.transport import PeerLink, tune
from cluster.node.wire import FRAME_BYTES_MAX, REQUEST_BYTES_MAX, FrameError

log = logging.getLogger("lockd")

#: Answers that a client doesn't read; beyond it the connection is closed.
UNREAD_BYTES_MAX = 1 << 20

#: Open connections, of clients and nodes together. With the limit on requests it bounds what idle ones make us hold.
CONNECTIONS_MAX = 4096

#: Files that a node has open beside its connections, with room to spare.
OTHER_FILES = 64

#: How long a connection may stay open without a word, in s; a client that has one speaks at once.
INTRODUCTION_S_MAX = 10.0

_decoder = msgspec.msgpack.Decoder(ToNode)


@dataclass(frozen=True, slots=True)
class Config:
    """How one node is run. `peers` maps other nodes' names to the addresses under which this one reaches them. With
    `join` they are only that: the node waits to be added to their cluster. Otherwise they and this node begin it.
    `advertise` is where other nodes find this one; into `applied` it writes what it has applied (see `record`)."""

    id: str
    host: str
    port: int
    peers: Mapping[str, tuple[str, int]]
    data: Path
    cluster: str = "lockd"
    join: bool = False
    advertise: str = ""
    snapshot_every: int = SNAPSHOT_EVERY
    admin: tuple[str, int] | None = None
    secret: bytes | None = None
    applied: Path | None = None

    def first_members(self) -> Members:
        if self.join:
            return Members(())
        own = self.advertise or join_address(self.host, self.port)
        return Members.of_voters({self.id: own} | {peer: join_address(*at) for peer, at in self.peers.items()})


def _open_files_max() -> int:
    """How many files this process may have open, after asking for as many as it can get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + OTHER_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


class NodeFailedError(Exception):
    """The node had to stop: it says why."""


class Connection(asyncio.Protocol):
    """What comes in: a client, or a peer that says Hello first and is then only listened to."""

    def __init__(self, server: Server, number: int) -> None:
        self._server = server
        self.number = number
        self._channel = Channel(server.config.secret, opens=False, limit=REQUEST_BYTES_MAX)
        self._peer: str | None = None
        self._spoke = False
        self._transport: asyncio.Transport
        self._introduction: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        tune(transport)
        if not self._server.make_room():
            self._refuse(f"{self._server.connections_max} connections are open, which is the limit")
        self._server.connections[self.number] = self
        self._introduction = self._server.call_later(INTRODUCTION_S_MAX, self._expect_introduction)

    @property
    def introduced(self) -> bool:
        """Whether the other side has proved that it knows the secret, or, where there is none, has said anything."""
        return self._spoke if self._server.config.secret is None else self._channel.proved

    def _expect_introduction(self) -> None:
        if not self.introduced:
            self._refuse(f"nothing was said within {INTRODUCTION_S_MAX:g} s")

    def connection_lost(self, exc: Exception | None) -> None:
        self._introduction.cancel()
        self._server.connections.pop(self.number, None)
        if self._peer is None:
            self._server.client_gone(self.number)

    def data_received(self, data: bytes) -> None:
        if self._transport.is_closing():
            return
        try:
            for body in self._channel.receive(data):
                self._take(_decoder.decode(body))
            self._transport.write(self._channel.take_reply())
        except (FrameError, msgspec.DecodeError, UnicodeDecodeError) as error:
            self._refuse(str(error))

    def send(self, message: ToClient) -> None:
        if self._transport.is_closing():
            return
        self._transport.write(self._channel.seal(message))
        if self._transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def _take(self, message: ToNode) -> None:
        if self._transport.is_closing():
            return
        self._spoke = True
        match message:
            case Ping():
                self.send(Pong())
            case StatusRequest():
                self.send(StatusReply(message.id, self._server.status()))
            case Hello():
                self._greet(message)
            case _ if isinstance(message, LockRequest):
                if self._peer is None:
                    self._server.on_request(self.number, message)
                else:
                    self._refuse("a client's request on a connection between nodes")
            case _ if self._peer is None:
                self._refuse("a message between nodes on a connection that did not begin with Hello")
            case _:
                self._server.on_peer_message(self._peer, message)

    def _greet(self, hello: Hello) -> None:
        config = self._server.config
        if hello.cluster != config.cluster:
            self._refuse(f"node {hello.node} belongs to cluster {hello.cluster!r}, this one to {config.cluster!r}")
        elif hello.node == config.id:
            self._refuse(f"another node calls itself {hello.node}, as this one does")
        else:
            self._peer = hello.node
            self._channel.allow(FRAME_BYTES_MAX)

    def _refuse(self, why: str) -> None:
        log.warning("connection=%d event=refused reason=%r", self.number, why)
        self.send(Refused(0, f"bad-request: {why}"))
        self._transport.close()


class Server:
    """One node, from start to stop. `clock` is in nanoseconds, monotonic."""

    def __init__(
        self,
        config: Config,
        *,
        core_type: type[Core] = Core,
        storage_type: type[Storage] = Storage,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Recovers the node from its data folder. Raises StorageError; OSError when its record can't be written."""
        self.config = config
        self.connections: dict[int, Connection] = {}
        self.connections_max = min(CONNECTIONS_MAX, _open_files_max() - OTHER_FILES)
        self._clock = clock
        self._record = None if config.applied is None else Record(config.applied)
        self._storage = self._open_storage(storage_type)
        self.core = core_type(
            id=config.id,
            members=config.first_members(),
            incarnation=secrets.randbits(62),
            draw=secrets.randbelow,
            now=clock(),
            found=self._storage.found,
            snapshot_every=config.snapshot_every,
        )
        self._links: dict[str, PeerLink] = {}
        self._linked: Members | None = None
        self._disk: Disk
        self._writing = 0
        self._next_connection = 0
        self._flush_planned = False
        self._timer: asyncio.TimerHandle | None = None
        self._stop: asyncio.Future[None]
        self._role_logged = ""
        self._leaving = False
        self._admin: AdminServer | None = None

    def _open_storage(self, storage_type: type[Storage]) -> Storage:
        try:
            return storage_type(self.config.data, self.config.id)
        except StorageError as problem:
            # What the operating system refuses, or the disk has lost, is no fault of the node's; anything else it has
            # done to itself.
            blameless = isinstance(problem, DamageError) or isinstance(problem.__cause__, OSError)
            if self._record is not None and not blameless:
                self._record.fail(f"StorageError: {problem}")
            raise

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT; hand over leadership before stopping. Raises NodeFailedError when the disk
        fails, OSError when it can't listen."""
        loop = asyncio.get_running_loop()
        self._stop = loop.create_future()
        loop.set_exception_handler(self._on_error)
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self._on_signal)
        config = self.config
        listener = await loop.create_server(self._connection, config.host, config.port)
        self._disk = Disk(self._storage, self._on_written, self._on_disk_failure)
        if config.admin is not None:
            self._admin = self._serve_admin(*config.admin)
        self._follow_members()
        log.info(
            "node=%s event=started listen=%s:%d term=%d last=%d torn_bytes=%d",
            config.id, config.host, config.port, self.core.raft.term, self.core.raft.log.last_index,
            self._storage.torn_bytes,
        )  # fmt: skip
        self._plan_flush()
        try:
            await self._stop
        finally:
            await self._shut_down(listener)

    def _serve_admin(self, host: str, port: int) -> AdminServer:
        try:
            return AdminServer(host, port, self.status)
        except OSError as error:
            raise NodeFailedError(f"cannot serve the admin port at {host}:{port}: {error.strerror}") from error

    def status(self) -> dict[str, Any]:
        """What this node knows of itself: the core's status, the shell's numbers, and what its clocks say."""
        status = dict(self.core.status())
        status |= {"connections": len(self.connections), "log_bytes": self._storage.log_bytes}
        status |= {"clock_ns": self._clock(), "wall_ns": time.time_ns()}
        status["counters"] |= {"fsyncs": self._disk.fsyncs, "fsync_seconds": self._disk.fsync_seconds}
        return status

    # ---- inputs

    def on_request(self, number: int, request: LockRequest) -> None:
        self.core.request(self._clock(), number, request)
        self._plan_flush()

    def on_peer_message(self, peer: str, message: PeerMessage) -> None:
        self.core.receive(self._clock(), peer, message)
        self._plan_flush()

    def client_gone(self, number: int) -> None:
        if not self._stop.done():
            self.core.gone(self._clock(), number)
            self._plan_flush()

    def _on_timer(self) -> None:
        self._timer = None
        self.core.tick(self._clock())
        self._plan_flush()

    def _on_written(self, items: list[Written]) -> None:
        now = self._clock()
        for item in items:
            self._writing -= 1
            if item.batch is not None:
                self.core.persisted(now, item.batch)
            self._send(item.sends)
        self._plan_flush()

    def _on_disk_failure(self, error: OSError) -> None:
        self._stop_with(NodeFailedError(f"the disk failed ({error}); stopping, since what it holds is now unknown"))

    # ---- outputs

    def _plan_flush(self) -> None:
        if not self._flush_planned:
            self._flush_planned = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_planned = False
        if self._stop.done():
            return
        out = self.core.collect(self._clock())
        if not self._write_down(out):
            return
        self._send(out.now)
        for number, answer in out.answers:
            connection = self.connections.get(number)
            if connection is not None:
                connection.send(answer)
        if out.persist is not None or (out.after_persist and self._writing):
            self._writing += 1
            self._disk.put(Written(out.persist, out.after_persist))
        else:
            self._send(out.after_persist)
        self._log_role()
        self._follow_members()
        if self._leaving and not self.core.leads:
            self._stop_with(None)
            return
        if self._timer is not None:
            self._timer.cancel()
        wait_ns = self.core.deadline() - self._clock()
        self._timer = asyncio.get_running_loop().call_later(max(0, wait_ns) / 1e9, self._on_timer)

    def _write_down(self, out: Outputs) -> bool:
        """Before anybody is told; False when that was impossible, which ends the node."""
        if self._record is None:
            return True
        try:
            self._record.add(out.proposed, out.applied, self.core.raft.term if self.core.leads else 0)
        except OSError as error:
            self._stop_with(NodeFailedError(f"cannot write to {self.config.applied}: {error.strerror or error}"))
            return False
        return True

    def _send(self, messages: list[tuple[str, PeerMessage]]) -> None:
        by_peer: dict[str, list[PeerMessage]] = {}
        for peer, message in messages:
            by_peer.setdefault(peer, []).append(message)
        for peer, together in by_peer.items():
            link = self._links.get(peer) or self._link(peer)
            if link is not None:
                link.send(together)

    def _follow_members(self) -> None:
        """Keep a connection to every member, so that it is there when there is something to say; and to the nodes that
        this one was told of, which may be about to add it."""
        members = self.core.raft.members
        if members is not self._linked:
            self._linked = members
            for peer in {member.id for member in members.all} | self.config.peers.keys():
                if peer != self.config.id and peer not in self._links:
                    self._link(peer)

    def _link(self, peer: str) -> PeerLink | None:
        """Begin to connect to `peer`: where this node was told, else where the configuration says."""
        member = self.core.raft.members.get(peer)
        address = self.config.peers.get(peer) or (split_address(member.address) if member else None)
        if address is None:
            return None
        hello = Hello(self.config.id, self.config.cluster)
        link = self._links[peer] = PeerLink(hello, peer, *address, self.config.secret)
        return link

    def _log_role(self) -> None:
        raft = self.core.raft
        role = f"role={raft.role} term={raft.term} leader={raft.leader}"
        if role != self._role_logged:
            self._role_logged = role
            log.info("node=%s event=role %s commit=%d last=%d", self.config.id, role, raft.commit, raft.log.last_index)

    # ---- start and stop

    def call_later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, action)

    def make_room(self) -> bool:
        """Whether one more connection may be held. At the limit the oldest that has not introduced itself goes, so that
        silent ones lock nobody out."""
        if len(self.connections) < self.connections_max:
            return True
        silent = next((one for one in self.connections.values() if not one.introduced), None)
        if silent is None:
            return False
        silent.abort()
        del self.connections[silent.number]
        return True

    def _connection(self) -> Connection:
        self._next_connection += 1
        return Connection(self, self._next_connection)

    def _stop_with(self, error: Exception | None) -> None:
        if self._stop.done():
            return
        if error is None:
            self._stop.set_result(None)
        else:
            self._stop.set_exception(error)

    def _on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error of the network is some connection's matter. Any other means that the core, or this shell, broke one
        of its own rules: what the node would say from now on can't be trusted."""
        loop.default_exception_handler(context)
        error = context.get("exception")
        if error is None or isinstance(error, OSError):
            return
        words = f"{type(error).__name__}: {error}"
        if self._record is not None:
            with contextlib.suppress(OSError):
                self._record.fail(words)
        self._stop_with(NodeFailedError(f"the node found its own rules broken ({words}); this is a bug"))

    def _on_signal(self) -> None:
        """The first asks to stop, which a leader does when somebody else leads; the second doesn't wait."""
        if self._leaving or not self.core.leave(self._clock()):
            self._stop_with(None)
            return
        self._leaving = True
        self._plan_flush()

    async def _shut_down(self, listener: asyncio.Server) -> None:
        listener.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections.values()):
            connection.abort()
        for link in self._links.values():
            await link.close()
        if self._admin is not None:
            await asyncio.to_thread(self._admin.close)
        await asyncio.to_thread(self._disk.close)
        self._storage.close()
        if self._record is not None:
            self._record.close()
        log.info("node=%s event=stopped", self.config.id)
