"""Links between local nodes that can be cut and shaped in either direction, without root: one TCP proxy per directed
link, and one for the clients of each node.

Problem. Nodes on one machine talk over loopback. A partition must stop that traffic as a firewall's DROP rule would:
bytes wait, nobody is told, and when the rule is gone they go on. Closing connections, the easy way, would be another
fault: the peers would know at once.

Rules.

1. Node i reaches node j only through the listener of link i->j. On a connection through it the bytes from i to j obey
   link i->j, and the bytes from j to i obey link j->i; so a one-way cut is one-way on every connection.
2. A cut link is not read from. What was not read stays in the kernel's buffers, whose size is bounded, and then in the
   sender, whose writes block: as behind DROP, where the sender keeps what was not acknowledged. Nothing is lost,
   reordered or altered, and the proxy itself holds nothing (but see "shaped").
3. The end of a stream travels like its bytes: an EOF or a reset passes on only when the link in its direction is whole.
   A half-closed connection stays open the other way.
4. A connection that is opened while link i->j is cut is accepted (the kernel does that) but not dialled on: j learns of
   it when the link is mended. If i has hung up by then, j never does, as after a SYN that was dropped.
5. When j does not listen, the connection is reset: what "connection refused" comes to behind a proxy.

Difference from DROP: a stream that flows against a one-way cut would there stall for want of acknowledgements, here it
flows. That is wanted: "A hears B, but B doesn't hear A" is the state in which protocols break.

Links can also be shaped (`cluster.places.shaping`): late, narrow, stuck, with frames twice or out of order. Then the
proxy does hold bytes, as a line and its queue do, and rules 1 to 3 hold for what leaves that queue.

Probes (`Links.probe_address`) enter a link by a listener of their own, on which only the way there obeys the link and
the way back is always whole: so an answer, or none, tells about one direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import random
import select
import socket
import struct
import termios
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cluster.places.base import Link, LinkCounts, Shaping
from cluster.places.shaping import PLAIN, Flow, Tally
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
    """One direction between two nodes: whether and how bytes pass, and who is to be told when that changes.
    `framed`: what passes are frames (see Feature.FRAMES), and may have to be cut between them."""

    draws: random.Random
    framed: bool = False
    cut: bool = False
    shaping: Shaping = PLAIN
    tally: Tally = field(default_factory=Tally)
    readers: set[_End] = field(default_factory=set)
    waiting: dict[_Connection, None] = field(default_factory=dict)

    def held_bytes(self) -> int:
        """How many bytes have come to this gate and wait for it to open (bytes still in the sender don't count)."""
        ends = self.readers | {connection.front for connection in self.waiting}
        return sum(end.queued_bytes() + (end.unread_bytes() if end.halted else 0) for end in ends)

    def shape(self, shaping: Shaping) -> None:
        if shaping == self.shaping:
            return
        stalls = shaping.stall and not self.shaping.stall
        self.shaping = shaping
        for end in tuple(self.readers):
            end.shaping_changed(stalls=stalls)

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
        self._ended = False  # EOF was read
        self._finished = False  # and passed on
        self._flow = Flow(gate.draws, gate.tally, framed=gate.framed)
        self._timer: asyncio.TimerHandle | None = None
        self._stalled = False
        self.gone = False  # this socket is; the other end is told when the gate lets it
        self._abrupt = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._gate.readers.add(self)
        # Not at once: in older Pythons (3.11.2 is one) a transport begins to read after this call, whatever was said.
        asyncio.get_running_loop().call_soon(self.steer)
        self._connection.end_made(self)

    def join(self, other: _End) -> None:
        """From now on what is read here is written there."""
        self.other = other
        self.steer()

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        gate = self._gate
        assert not gate.cut
        if gate.shaping is PLAIN and self._flow.empty and not gate.framed:
            gate.tally.forwarded_bytes += len(data)
            self.other.write(data)
        else:
            self._flow.push(_now(), data, gate.shaping)
            self._pump()

    def _pump(self) -> None:
        """Pass on what is due, see that the rest follows, and what comes behind it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.halted or self.other is None:
            return
        now = _now()
        for piece in self._flow.pop(now):
            self._gate.tally.forwarded_bytes += len(piece)
            self.other.write(piece)
        due = self._flow.next_due()
        if due is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, due - now), self._pump)
        elif self._ended and not self._finished and self._flow.empty:
            self._finished = True
            self.other.finish()
        if self.gone:
            self._leave()
        else:
            self.steer()

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
        self._pump()
        return True

    def finish(self) -> None:
        """The other side has said all it had to say."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write_eof()
        if self._finished:
            self._transport.close()

    def connection_lost(self, problem: Exception | None) -> None:
        self.gone = True
        self._abrupt = problem is not None
        if self.other is not None:
            self.other.steer()
        self.gate_changed()

    def gate_changed(self) -> None:
        if not self.gone or not self._flow.empty:
            self.steer()
            self._pump()
        if self.gone:
            self._leave()

    def shaping_changed(self, *, stalls: bool) -> None:
        self._stalled = stalls or (self._stalled and self._gate.shaping.stall)
        self._flow.hurry(_now())
        self.gate_changed()

    def _leave(self) -> None:
        """This socket is gone: tell the other end, once what was read here has gone on."""
        if self._connection.closed or (not self.halted and self._flow.empty) or self.other is None:
            if self._timer is not None:
                self._timer.cancel()
            self._gate.readers.discard(self)
            self._connection.end_lost(self, self._abrupt)

    @property
    def halted(self) -> bool:
        """Nothing goes on through the gate, whatever waits."""
        return self._gate.cut or self._stalled or self._flow.stuck

    def queued_bytes(self) -> int:
        return self._flow.waiting_bytes

    def steer(self) -> None:
        """Read exactly while what is read can go on."""
        transport = self._transport
        if transport is None or transport.is_closing() or self._ended:
            return
        flows = not self.halted and not self._flow.full and not self._other_full
        flows = flows and self.other is not None and not self.other.gone
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
    """All directed links between the nodes that listen at `targets`, and where wanted (`doors`) a proxied way in for
    the clients of each. `framed`: nodes send each other frames."""

    def __init__(self, targets: Mapping[str, Address], *, framed: bool = False, doors: bool = False) -> None:
        self._targets = targets
        pairs = [Link(source, target) for source in targets for target in targets if source != target]
        self._gates = {link: Gate(_draws(link), framed) for link in pairs}
        self._doors = {
            node: _Entrance(target, Gate(_draws(node)), Gate(_draws(node))) for node, target in targets.items() if doors
        }
        self._door_addresses: dict[str, Address] = {}
        self._entrances = {
            link: _Entrance(targets[link.target], self._gates[link], self._gates[link.reverse]) for link in pairs
        }
        self._addresses: dict[Link, Address] = {}

    async def open(self, sources: Collection[str] | None = None) -> None:
        """Start to listen; for these sources alone, where each has proxies of its own. Raises OSError."""
        for link, entrance in self._entrances.items():
            if sources is None or link.source in sources:
                self._addresses[link] = await entrance.open()
        for node, door in self._doors.items():
            self._door_addresses[node] = await door.open()

    def door(self, node: str) -> Address | None:
        """Where clients of the node come in, if they have a way of their own."""
        return self._door_addresses.get(node)

    def shut_doors(self, nodes: Collection[str]) -> None:
        """Cut clients off from exactly these nodes, in both directions. Raises KeyError for one without a door."""
        shut = {node: self._doors[node] for node in nodes}
        for node, door in self._doors.items():
            door.there.set(node in shut)
            door.back.set(node in shut)

    def shape(self, shapings: Mapping[Link, Shaping]) -> None:
        """Shape exactly these links. Raises KeyError for a link that there isn't."""
        wanted = {link: shaping for link, shaping in shapings.items() if self._gates[link] and shaping != PLAIN}
        for link, gate in self._gates.items():
            gate.shape(wanted.get(link, PLAIN))

    def reset(self, links: Collection[Link]) -> int:
        """Reset every connection that the links' sources opened; says how many."""
        connections = [connection for link in links for connection in tuple(self._entrances[link].connections)]
        for connection in connections:
            connection.close()
        return len(connections)

    def counts(self, link: Link) -> LinkCounts:
        gate = self._gates[link]
        tally = gate.tally
        return LinkCounts(tally.forwarded_bytes, gate.held_bytes(), tally.duplicated, tally.reordered, tally.corrupted)

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
        return self._gates[link].tally.forwarded_bytes

    def held_bytes(self, link: Link) -> int:
        return self._gates[link].held_bytes()

    @contextlib.asynccontextmanager
    async def probe_address(self, link: Link, via: Address | None = None) -> AsyncIterator[Address]:
        """An address that leads to the link's target, or to `via`, through this link alone; gone when the context
        ends."""
        target = via or self._targets[link.target]
        entrance = _Entrance(target, self._gates[link], Gate(random.Random(0)))
        try:
            yield await entrance.open()
        finally:
            entrance.close()

    def close(self) -> None:
        for entrance in (*self._entrances.values(), *self._doors.values()):
            entrance.close()


def _draws(name: Link | str) -> random.Random:
    """A stream of its own for each link; what it is drawn for depends on timing, so the run's seed would not help."""
    return random.Random(str(name))


_now = time.monotonic
