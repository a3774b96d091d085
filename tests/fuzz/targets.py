"""What is fed arbitrary bytes: a port, a client, a data folder. None may crash, hang, or hold memory.

Each target takes bytes, checks what must hold whatever they are, and returns. `python -m tests.fuzz TARGET` lets a
coverage-guided fuzzer choose them; the inputs that it found worth keeping are in `corpus/`, which the tests feed again.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.node.client import Client
from cluster.node.protocol import Acquire, Inspect, Ping
from cluster.node.server import Config, Connection, Server
from cluster.node.storage import Contents, Storage, StorageError
from cluster.node.wire import FRAME_BYTES_MAX, REQUEST_BYTES_MAX, FrameReader, frame

CORPUS = Path(__file__).parent / "corpus"


class FakeTransport(asyncio.Transport):
    """Takes what is written and never delivers it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return FakeSocket() if name == "socket" else default


class FakeSocket:
    def setsockopt(self, *_: Any) -> None:
        pass


#: A timer that never rings needs no loop but to be cancelled.
_no_loop = asyncio.new_event_loop()


class QuietServer(Server):
    """A server of which only the connections are real: the loop, the disk and the peers are left out."""

    def __init__(self, folder: Path, secret: bytes | None) -> None:
        super().__init__(Config("n1", "127.0.0.1", 1, {}, folder, secret=secret), clock=itertools.count().__next__)
        self.core.tick(10**10)
        batch = self.core.collect(10**10).persist
        assert batch is not None
        self.core.persisted(10**10, batch)

    def _plan_flush(self) -> None:
        out = self.core.collect(10**10)
        if out.persist is not None:
            self.core.persisted(10**10, out.persist)
        for number, answer in self.core.collect(10**10).answers:
            if number in self.connections:
                self.connections[number].send(answer)

    def status(self) -> dict[str, Any]:
        return dict(self.core.status())

    def call_later(self, seconds: float, action: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.TimerHandle(seconds, action, (), _no_loop)

    def client_gone(self, number: int) -> None:
        self.core.gone(10**10, number)
        self._plan_flush()


_servers: dict[bytes | None, QuietServer] = {}
_folder: list[Path] = []


def _server(secret: bytes | None) -> QuietServer:
    if secret not in _servers:
        if not _folder:
            _folder.append(Path(tempfile.mkdtemp(prefix="fuzz-")))
        _servers[secret] = QuietServer(_folder[0] / ("secret" if secret else "open"), secret)
    return _servers[secret]


def clean_up() -> None:
    """Remove what the targets made."""
    for server in _servers.values():
        server._storage.close()
    _servers.clear()
    while _folder:
        shutil.rmtree(_folder.pop())


def _connection(data: bytes, secret: bytes | None) -> None:
    server = _server(secret)
    connection, transport = Connection(server, 7), FakeTransport()
    connection.connection_made(transport)
    for start in range(0, len(data), 700):
        connection.data_received(data[start : start + 700])
    held = len(connection._channel._frames._buffer)
    assert held <= FRAME_BYTES_MAX + 704, "a connection holds one frame at most"
    if connection._peer is None:
        assert held <= REQUEST_BYTES_MAX + 704
    connection.connection_lost(None)
    assert not server.connections
    assert not server.core._clients
    # Whatever the other one said, the next client is served.
    probe, answers = Connection(server, 8), FakeTransport()
    probe.connection_made(answers)
    probe.data_received(frame(Ping()))
    assert len(list(FrameReader().feed(bytes(answers.written)))) == 1
    probe.connection_lost(None)


def port(data: bytes) -> None:
    """What anybody sends to a node that asks for no secret. Frames of another node's Raft are left out: a node trusts
    those who know the secret, and an insecure one those on its own machine."""
    if b"Hello" not in data:
        _connection(data, None)


def secret_port(data: bytes) -> None:
    """What somebody sends who doesn't know the secret."""
    before = _server(b"sixteen bytes or more").core.raft.log.last_index
    _connection(data, b"sixteen bytes or more")
    assert _server(b"sixteen bytes or more").core.raft.log.last_index == before, "nothing was proposed"


def client(data: bytes) -> None:
    """What a client is told by something that is no node."""

    async def run() -> None:
        one, transport = Client(1.0), FakeTransport()
        one.connection_made(transport)
        calls = [one._send(Acquire(1, "a", 1000, 0)), one._send(Inspect(2, "a"))]
        one.data_received(data)
        one.connection_lost(None)
        assert all(call.done() for call in calls)

    asyncio.run(run())


def recovery(data: bytes) -> None:
    """A data folder with anything in it: it is read, or refused in words, and what was read once is read again."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        (folder / "log").write_bytes(data)
        try:
            storage = Storage(folder, "n1")
        except StorageError:
            assert (folder / "log").read_bytes() == data, "what is refused is left as it is"
            return
        storage.close()
        again = Storage(folder, "n1")
        again.close()
        assert again.found == storage.found
        Contents.read((folder / "log").read_bytes(), folder)
    finally:
        shutil.rmtree(folder)


TARGETS: dict[str, Callable[[bytes], None]] = {
    "port": port,
    "secret_port": secret_port,
    "client": client,
    "recovery": recovery,
}
