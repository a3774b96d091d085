"""Links between local nodes that can be cut in either direction, without root: one TCP proxy per directed link.

Problem. Nodes on one machine talk over loopback. A partition must stop that traffic as a firewall's DROP rule would:
bytes wait, nobody is told, and when the rule is gone they go on. Closing connections, the easy way, would be another
fault: the peers would know at once.

Rules.

1. Node i reaches node j only through the listener of link i->j. On a connection through it the bytes from i to j obey
   link i->j, and the bytes from j to i obey link j->i; so a one-way cut is one-way on every connection.
2. A cut link is not read from. What was not read stays in the kernel's buffers, whose size is bounded, and then in the
   sender, whose writes block: as behind DROP, where the sender keeps what was not acknowledged. Nothing is lost,
   reordered or altered, and the proxy itself holds nothing.
3. The end of a stream travels like its bytes: an EOF or a reset passes on only when the link in its direction is whole.
   A half-closed connection stays open the other way.
4. A connection that is opened while link i->j is cut is accepted (the kernel does that) but not dialled on: j learns of
   it when the link is mended. If i has hung up by then, j never does, as after a SYN that was dropped.
5. When j does not listen, the connection is reset: what "connection refused" comes to behind a proxy.

Difference from DROP: a stream that flows against a one-way cut would there stall for want of acknowledgements, here it
flows. That is wanted: "A hears B, but B doesn't hear A" is the state in which protocols break.

Probes (`Links.probe_address`) enter a link by a listener of their own, on which only the way there obeys the link and
the way back is always whole: so an answer, or none, tells about one direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import socket
import struct
import termios
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.places.base import Link
from cluster.systems.base import Address

LOOPBACK = "127.0.0.1"

#: What the kernel holds for each waiting direction of a connection; more would let a node send long into a cut link
#: before it notices, less would slow down the traffic of whole links.
RECEIVE_BUFFER_BYTES = 256 * 1024

#: Connections that may wait undialled behind one cut link. Nodes redial about once a second and cuts last seconds, so
#: this is only reached by a node that redials in a tight loop; then the oldest is reset.
WAITING_CONNECTIONS_MAX = 64

#: Dialling a loopback port is answered at once, unless the target's backlog is full (a paused node).
DIAL_TIMEOUT_S = 5.0

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class Gate:
    """One direction between two nodes: whether bytes pass, and who is to be told when that changes."""

    cut: bool = False
    forwarded_bytes: int = 0
    readers: set[_End] = field(default_factory=set)
    waiting: dict[_Connection, None] = field(default_factory=dict)

    def held_bytes(self) -> int:
        """How many bytes have come to this gate and wait for it to open (bytes still in the sender don't count)."""
        ends = (self.readers | {connection.front for connection in self.waiting}) if self.cut else ()
        return sum(end.unread_bytes() for end in ends)

    def set(self, cut: bool) -> None:
        if cut == self.cut:
            return
        self.cut = cut
        for end in tuple(self.readers):
            end.gate_changed()
        if not cut:
            for connection in tuple(self.waiting):
                connection.dial()


class _End(asyncio.Protocol):
    """One of the two sockets of a connection. What is read here goes through `gate` to the other end."""

    def __init__(self, connection: _Connection, gate: Gate) -> None:
        self._connection = connection
        self._gate = gate
        self.other: _End | None = None
        self._transport: asyncio.Transport | None = None
        self._other_full = False
        self._ended = False  # EOF was read and passed on
        self.gone = False  # this socket is; the other end is told when the gate lets it
        self._abrupt = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._gate.readers.add(self)
        self.steer()
        self._connection.end_made(self)

    def join(self, other: _End) -> None:
        """From now on what is read here is written there."""
        self.other = other
        self.steer()

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        assert not self._gate.cut
        self._gate.forwarded_bytes += len(data)
        self.other.write(data)

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.set_other_full(True)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.set_other_full(False)

    def set_other_full(self, full: bool) -> None:
        self._other_full = full
        self.steer()

    def eof_received(self) -> bool:
        self._ended = True
        if self.other is not None:
            self.other.finish()
        return True

    def finish(self) -> None:
        """The other side has said all it had to say."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write_eof()
        if self._ended:
            self._transport.close()

    def connection_lost(self, problem: Exception | None) -> None:
        self.gone = True
        self._abrupt = problem is not None
        if self.other is not None:
            self.other.steer()
        self.gate_changed()

    def gate_changed(self) -> None:
        if not self.gone:
            self.steer()
        elif not self._gate.cut or self._connection.closed:
            self._gate.readers.discard(self)
            self._connection.end_lost(self, self._abrupt)

    def steer(self) -> None:
        """Read exactly while what is read can go on."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._ended:
            return
        flows = not self._gate.cut and not self._other_full and self.other is not None and not self.other.gone
        if flows and not transport.is_reading():
            transport.resume_reading()
        elif not flows and transport.is_reading():
            transport.pause_reading()

    def close(self, abrupt: bool) -> None:
        if self._transport is None:
            return
        if abrupt:
            if not self._transport.is_closing():
                sock = self._transport.get_extra_info("socket")
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._transport.abort()
        else:
            self._transport.close()

    def unread_bytes(self) -> int:
        if self._transport is None or self._transport.is_closing():
            return 0
        answer = bytearray(4)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._transport.get_extra_info("socket").fileno(), termios.FIONREAD, answer)
        return int.from_bytes(answer, "little")

    def hung_up(self) -> bool:
        """Whether the peer of this socket has closed it, which reading can't tell while bytes wait."""
        if self._transport is None or self._transport.is_closing():
            return True
        poll = select.poll()
        poll.register(self._transport.get_extra_info("socket"), select.POLLRDHUP)
        return bool(poll.poll(0))


class _Connection:
    """A connection of one node to another: the end that the node opened (front), and the one that the proxy dialled."""

    def __init__(self, entrance: _Entrance) -> None:
        self._entrance = entrance
        self.front = _End(self, entrance.there)
        self._back = _End(self, entrance.back)
        self._dialling: asyncio.Task[None] | None = None
        self.closed = False

    def end_made(self, end: _End) -> None:
        if end is not self.front:
            return
        self._entrance.connections.add(self)
        gate = self._entrance.there
        if gate.cut:
            self._wait(gate)
        else:
            self.dial()

    def _wait(self, gate: Gate) -> None:
        for connection in [connection for connection in gate.waiting if connection.front.hung_up()]:
            connection.close()
        if len(gate.waiting) >= WAITING_CONNECTIONS_MAX:
            next(iter(gate.waiting)).close()
        gate.waiting[self] = None

    def dial(self) -> None:
        waited = self in self._entrance.there.waiting
        self._entrance.there.waiting.pop(self, None)
        if waited and self.front.hung_up():
            self.close()
        else:
            self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        host, port = self._entrance.target.host, self._entrance.target.port
        try:
            async with asyncio.timeout(DIAL_TIMEOUT_S):
                await asyncio.get_running_loop().create_connection(lambda: self._back, host, port)
        except OSError:  # a time-out among them
            self.close()
            return
        if self.front.gone:
            self.close()
            return
        self._back.join(self.front)
        self.front.join(self._back)

    def end_lost(self, end: _End, abrupt: bool) -> None:
        """One socket is gone, and the other end may know."""
        other = self._back if end is self.front else self.front
        if end is self.front and self._dialling is not None and not self._dialling.done():
            self._dialling.cancel()
        other.close(abrupt)
        self._forget()

    def close(self) -> None:
        """Reset both sides, whatever is cut."""
        self.closed = True
        if self._dialling is not None and self._dialling is not asyncio.current_task():
            self._dialling.cancel()
        self.front.close(abrupt=True)
        self._back.close(abrupt=True)
        self._forget()

    def _forget(self) -> None:
        self._entrance.there.waiting.pop(self, None)
        self._entrance.connections.discard(self)


class _Entrance:
    """A listener that leads to a node through two gates."""

    def __init__(self, target: Address, there: Gate, back: Gate) -> None:
        self.target = target
        self.there = there
        self.back = back
        self.connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> Address:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)  # accepted sockets inherit it
        listener.bind((LOOPBACK, 0))
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self).front, sock=listener)
        return Address(LOOPBACK, listener.getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.close()


class Links:
    """All directed links between the nodes that listen at `targets`."""

    def __init__(self, targets: Mapping[str, Address]) -> None:
        self._targets = targets
        pairs = [Link(source, target) for source in targets for target in targets if source != target]
        self._gates = {link: Gate() for link in pairs}
        self._entrances = {
            link: _Entrance(targets[link.target], self._gates[link], self._gates[link.reverse]) for link in pairs
        }
        self._addresses: dict[Link, Address] = {}

    async def open(self) -> None:
        """Start to listen. Raises OSError."""
        for link, entrance in self._entrances.items():
            self._addresses[link] = await entrance.open()

    def peers(self, node: str) -> dict[str, Address]:
        """Under which address `node` reaches each other node."""
        return {link.target: address for link, address in self._addresses.items() if link.source == node}

    def set_cuts(self, links: Iterable[Link]) -> None:
        """Cut exactly these links, at once. Raises KeyError for a link that there isn't."""
        cuts = {link: self._gates[link] for link in links}
        for link, gate in self._gates.items():
            gate.set(link in cuts)

    def cuts(self) -> Sequence[Link]:
        return [link for link, gate in self._gates.items() if gate.cut]

    def forwarded_bytes(self, link: Link) -> int:
        return self._gates[link].forwarded_bytes

    def held_bytes(self, link: Link) -> int:
        return self._gates[link].held_bytes()

    @contextlib.asynccontextmanager
    async def probe_address(self, link: Link) -> AsyncIterator[Address]:
        """An address that leads to the link's target through this link alone; gone when the context ends."""
        entrance = _Entrance(self._targets[link.target], self._gates[link], Gate())
        try:
            yield await entrance.open()
        finally:
            entrance.close()

    def close(self) -> None:
        for entrance in self._entrances.values():
            entrance.close()
