"""The network between nodes, and between clients and nodes.

Rules.

1. A link is one direction between two nodes: a stream, as over TCP. Its messages arrive in order, each after a latency
   of its own. Faults that TCP does not have (`duplicate`, `reorder`) are asked for by name.
2. A cut link either holds what is sent, and lets it go on when it is mended, or swallows it (a connection that is
   given up and opened again); each cut draws which. What was on its way already arrives.
3. What arrives at a node that is dead is lost; whether it is paused is the node's own matter.
4. A connection of a client is a stream in both directions, made by a handshake that a dead node refuses and a paused
   one's kernel completes. A client whose connection ends hears of it a latency later, and so does the node.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from cluster.node.protocol import LockRequest, Ping, StatusRequest, ToClient, ToNode, encode
from cluster.node.wire import frame
from cluster.places.base import LinkCounts, Shaping
from cluster.places.sim.draws import Quick
from cluster.places.sim.loop import VirtualLoop

US = 1_000
MS = 1_000_000

#: Between a client and its node: they are near each other.
CLIENT_LATENCY_NS = (50 * US, 500 * US)

#: What a cut link holds before what comes on top is lost.
HELD_MAX = 4_096

#: Opening a connection again after it was given up.
RECONNECT_NS = 20 * MS

PLAIN = Shaping()

_decoder = msgspec.msgpack.Decoder(ToNode)
_HEADER = 4


@dataclass(frozen=True, slots=True)
class Latency:
    """Even between `low` and `high` ns, and now and then, in a `slow_share` of all messages, up to `slow`."""

    low: int
    high: int
    slow: int
    slow_share: float

    def draw(self, draws: random.Random) -> int:
        random = draws.random
        if self.slow_share and random() < self.slow_share:
            return self.high + int(random() * (self.slow - self.high))
        return self.low + int(random() * (self.high - self.low))


class Receiver(Protocol):
    """A node, as the network sees it."""

    id: str
    life: int

    def receive(self, sender: str, message: Any) -> None: ...
    def client_message(self, connection: Connection, message: LockRequest | Ping | StatusRequest) -> None: ...
    def client_gone(self, connection: Connection) -> None: ...
    def accept(self, connection: Connection) -> bool: ...


class SimLink:
    """Rules 1 to 3."""

    def __init__(
        self, loop: VirtualLoop, source: str, target: Receiver, latency: Latency, draws: random.Random
    ) -> None:
        self._loop, self.source, self._target = loop, source, target
        self._latency, self._draws = latency, draws
        self._last = 0
        self._reset_at = -RECONNECT_NS
        self._cut = self._swallows = False
        self._held: deque[tuple[Any, Callable[[], None] | None]] = deque()
        self._shaping = PLAIN
        self._stalled = self._stuck = False
        self._busy_until = 0
        self._sent = self._duplicated = self._reordered = self._corrupted = 0

    def send(self, message: Any) -> None:
        if self._cut or self._stalled or self._stuck:
            if not self._swallows and len(self._held) < HELD_MAX:
                self._held.append((message, None))
            return
        self._transmit(message)

    def probe(self, arrived: Callable[[], None]) -> None:
        """Send something that calls `arrived` when it comes through, whatever the node there does with it. A probe has
        a connection of its own, so a cut holds it even where messages are swallowed, and a stall lets it pass."""
        if self._cut:
            self._held.append((None, arrived))
        else:
            self._loop.after(self._latency.draw(self._draws) + self._delay(), arrived)

    def set_cut(self, cut: bool) -> None:
        if cut and not self._cut:
            self._swallows = self._draws.random() < 0.5
        elif self._cut and not cut:
            self._cut = False
            self._let_go()
        self._cut = cut

    def shape(self, shaping: Shaping) -> None:
        """What waits in a connection that stalls goes on when it no longer does; what waits behind a piece that is too
        large is lost, as that connection is given up."""
        if self._stuck:
            self._stuck = False
            self.reset()
        if shaping.stall != self._stalled:
            self._stalled = shaping.stall
            if not shaping.stall and not self._cut:
                self._let_go()
        self._shaping = shaping

    def reset(self) -> None:
        """What is on its way is lost; a new connection takes a moment."""
        self._reset_at = self._loop.now
        self._held = deque(item for item in self._held if item[1] is not None)

    def measure(self) -> LinkCounts:
        """Bytes are not counted, messages are; of a link with a limited rate, the bytes that it has yet to carry."""
        waiting_ns = max(0, self._busy_until - self._loop.now) if self._shaping.rate is not None else 0
        waiting = len(self._held) + waiting_ns * (self._shaping.rate or 0) // (1_000 * MS)
        return LinkCounts(self._sent, waiting, self._duplicated, self._reordered, self._corrupted)

    def _let_go(self) -> None:
        held, self._held = self._held, deque()
        for message, arrived in held:
            if arrived is not None:
                self._loop.after(self._latency.draw(self._draws), arrived)
            else:
                self._transmit(message)

    def _delay(self) -> int:
        low, high = self._shaping.delay_ms
        return 0 if high == 0 else int((low + self._draws.random() * (high - low)) * MS)

    def _transmit(self, message: Any) -> None:
        now = self._loop.now
        if now < self._reset_at + RECONNECT_NS:
            return
        arrival = now + self._latency.draw(self._draws)
        if self._shaping is not PLAIN:
            arrival, copies = self._shaped(message, arrival)
            for _ in range(copies - 1):
                self._loop.at(arrival, self._arrive, self._target.life, now, message)
            if not copies:
                self._sent += 1
                return
        else:
            if arrival < self._last:
                arrival = self._last
            self._last = arrival
        self._sent += 1
        self._loop.at(arrival, self._arrive, self._target.life, now, message)

    def _shaped(self, message: Any, arrival: int) -> tuple[int, int]:
        shaping, draws = self._shaping, self._draws
        if shaping.corrupt and draws.random() < shaping.corrupt:
            # Whoever receives it finds the seal broken, and gives the connection up.
            self._corrupted += 1
            self.reset()
            return arrival, 0
        arrival += self._delay()
        size = len(encode(message)) if shaping.rate is not None or shaping.largest is not None else 0
        if shaping.largest is not None and size > shaping.largest:
            self._stuck = True
            self._held.append((message, None))
            return arrival, 0
        if shaping.rate is not None:
            self._busy_until = max(self._busy_until, self._loop.now) + size * 1_000 * MS // shaping.rate
            arrival = max(arrival, self._busy_until)
        copies = 1
        if shaping.duplicate and draws.random() < shaping.duplicate:
            copies = 2
            self._duplicated += 1
        if shaping.reorder and draws.random() < shaping.reorder:
            self._reordered += 1
            return arrival + int(draws.random() * 20 * MS), copies  # and whatever comes after may overtake it
        arrival = self._last = max(arrival, self._last)
        return arrival, copies

    def _arrive(self, life: int, sent: int, message: Any) -> None:
        if life == self._target.life and sent >= self._reset_at:
            self._target.receive(self.source, message)


@dataclass(slots=True, eq=False)
class Gateway:
    """The clients' side of one node: `cut` holds bytes in both directions."""

    cut: bool = False
    held: deque[Callable[[], None]] = field(default_factory=deque)

    def through(self, step: Callable[[], None]) -> None:
        if self.cut:
            self.held.append(step)
        else:
            step()

    def set_cut(self, cut: bool) -> None:
        self.cut = cut
        while self.held and not self.cut:
            self.held.popleft()()


class _NoSocket:
    """Takes what callers would tell the kernel of a connection."""

    def setsockopt(self, *_: object) -> None:
        """Nothing is to be set."""


class Connection(asyncio.Transport):
    """Rule 4. The transport of a client; for the node, what it answers on. `number` is the node's name for it."""

    def __init__(
        self,
        loop: VirtualLoop,
        node: Receiver,
        gateway: Gateway | None,
        protocol: asyncio.Protocol,
        draws: Quick,
    ) -> None:
        super().__init__()
        self.number = 0
        self._loop, self._node, self._gateway = loop, node, gateway
        self._protocol, self._draws = protocol, draws
        self._life = node.life
        self._open = True  # as the client sees it
        self._served = True  # as the node sees it
        self._up = self._down = 0

    # ---- the client's end

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return _NoSocket() if name == "socket" else default

    def is_closing(self) -> bool:
        return not self._open

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Takes whole frames, as the client library writes them."""
        data = bytes(data)
        while data and self._open:
            end = _HEADER + int.from_bytes(data[:_HEADER], "big")
            self._send_up(_decoder.decode(data[_HEADER:end]))
            data = data[end:]

    def abort(self) -> None:
        if self._open:
            self._open = False
            self._loop.call_soon(self._protocol.connection_lost, None)
            self._to_node(self._hang_up)

    def close(self) -> None:
        self.abort()

    # ---- the node's end

    def answer(self, message: ToClient) -> None:
        if self._served:
            self._to_client(lambda: self._protocol.data_received(frame(message)))

    def drop(self) -> None:
        """The node closes it, or is gone."""
        if self._served:
            self._served = False
            self._to_client(self._lost)

    # ---- between them

    def _send_up(self, message: Any) -> None:
        self._to_node(lambda: self._node.client_message(self, message))

    def _to_node(self, step: Callable[[], None]) -> None:
        self._up = max(self._up, self._loop.now + self._draws.between(*CLIENT_LATENCY_NS))
        self._loop.at(self._up, self._pass, lambda: step() if self._served and self._life == self._node.life else None)

    def _to_client(self, step: Callable[[], None]) -> None:
        self._down = max(self._down, self._loop.now + self._draws.between(*CLIENT_LATENCY_NS))
        self._loop.at(self._down, self._pass, lambda: step() if self._open else None)

    def _pass(self, step: Callable[[], None]) -> None:
        if self._gateway is None:
            step()
        else:
            self._gateway.through(step)

    def _hang_up(self) -> None:
        self._served = False
        self._node.client_gone(self)

    def _lost(self) -> None:
        self._open = False
        self._protocol.connection_lost(ConnectionResetError("connection reset by the node"))


async def connect(
    loop: VirtualLoop, node: Receiver, gateway: Gateway | None, protocol: asyncio.Protocol, draws: Quick
) -> Connection:
    """Raises ConnectionRefusedError when nobody listens there."""
    answered: asyncio.Future[Connection] = loop.create_future()

    def arrive() -> None:
        connection = Connection(loop, node, gateway, protocol, draws)
        accepted = node.accept(connection)
        loop.after(draws.between(*CLIENT_LATENCY_NS), back, connection, accepted)

    def back(connection: Connection, accepted: bool) -> None:
        if answered.done():
            if accepted:
                connection.abort()
        elif accepted:
            answered.set_result(connection)
        else:
            answered.set_exception(ConnectionRefusedError(f"{node.id} refuses connections"))

    loop.after(draws.between(*CLIENT_LATENCY_NS), arrive if gateway is None else lambda: gateway.through(arrive))
    connection = await answered
    protocol.connection_made(connection)
    return connection
