"""The link proxy against plain sockets: what a cut does to bytes, connections and their ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncIterator

import pytest

from cluster.places.base import Link, Shaping
from cluster.places.links import LOOPBACK, RECEIVE_BUFFER_BYTES, WAITING_CONNECTIONS_MAX, Links
from cluster.systems.base import Address

THERE = Link("a", "b")
BACK = Link("b", "a")

#: Long enough that bytes which could pass would have passed.
SILENCE_S = 0.15

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Pair:
    """Nodes a and b; b listens for real, and hands out the connections that came to it."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[Stream] = asyncio.Queue()
        self.opened: list[asyncio.StreamWriter] = []

    async def open(self) -> None:
        self.server = await asyncio.start_server(self._accept, LOOPBACK, 0)
        port = self.server.sockets[0].getsockname()[1]
        self.links = Links({"a": Address(LOOPBACK, 1), "b": Address(LOOPBACK, port)})
        await self.links.open()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened.append(writer)
        await self.arrived.put((reader, writer))

    async def dial(self) -> Stream:
        address = self.links.peers("a")["b"]
        reader, writer = await asyncio.open_connection(address.host, address.port)
        self.opened.append(writer)
        return reader, writer

    async def connect(self) -> tuple[Stream, Stream]:
        ours = await self.dial()
        return ours, await asyncio.wait_for(self.arrived.get(), 2)

    def close(self) -> None:
        for writer in self.opened:
            writer.transport.abort()
        self.links.close()
        self.server.close()


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()
    await pair.open()
    yield pair
    pair.close()
    await asyncio.sleep(0.01)


async def silent(reader: asyncio.StreamReader) -> bool:
    """Whether neither bytes nor an end come."""
    try:
        await asyncio.wait_for(reader.read(1), SILENCE_S)
    except TimeoutError:
        return True
    return False


async def test_bytes_pass_both_ways_and_are_counted(pair: Pair) -> None:
    (a_in, a_out), (b_in, b_out) = await pair.connect()
    a_out.write(b"question")
    assert await b_in.readexactly(8) == b"question"
    b_out.write(b"answer")
    assert await a_in.readexactly(6) == b"answer"
    assert (pair.links.forwarded_bytes(THERE), pair.links.forwarded_bytes(BACK)) == (8, 6)


async def test_cut_bytes_wait_and_go_on_in_order(pair: Pair) -> None:
    (_, a_out), (b_in, _) = await pair.connect()
    a_out.write(b"before ")
    assert await b_in.readexactly(7) == b"before "
    pair.links.set_cuts([THERE])
    a_out.write(b"during ")
    assert await silent(b_in)
    assert pair.links.held_bytes(THERE) == 7
    pair.links.set_cuts([])
    a_out.write(b"after")
    assert await asyncio.wait_for(b_in.readexactly(12), 2) == b"during after"
    assert pair.links.held_bytes(THERE) == 0


async def test_a_cut_is_one_way(pair: Pair) -> None:
    (a_in, a_out), (b_in, b_out) = await pair.connect()
    pair.links.set_cuts([BACK])
    a_out.write(b"heard")
    assert await b_in.readexactly(5) == b"heard"
    b_out.write(b"unheard")
    assert await silent(a_in)
    pair.links.set_cuts([THERE])
    assert await asyncio.wait_for(a_in.readexactly(7), 2) == b"unheard"
    a_out.write(b"now not")
    assert await silent(b_in)


async def test_much_data_survives_cuts_unaltered_and_in_bounded_memory(pair: Pair) -> None:
    (_, a_out), (b_in, _) = await pair.connect()
    sent = os.urandom(8 * 1024 * 1024)
    pair.links.set_cuts([THERE])
    a_out.write(sent)
    await asyncio.sleep(SILENCE_S)
    # Linux doubles what is asked for, for its bookkeeping; the rest waits in the sender.
    assert 0 < pair.links.held_bytes(THERE) <= 2 * RECEIVE_BUFFER_BYTES
    assert a_out.transport.get_write_buffer_size() > 0

    async def flap() -> None:
        while True:
            pair.links.set_cuts([])
            await asyncio.sleep(0.003)
            pair.links.set_cuts([THERE])
            await asyncio.sleep(0.003)

    flapping = asyncio.create_task(flap())
    received = await asyncio.wait_for(b_in.readexactly(len(sent)), 20)
    flapping.cancel()
    assert received == sent


async def test_a_slow_reader_slows_the_writer_down(pair: Pair) -> None:
    (_, a_out), (b_in, _) = await pair.connect()
    total = 32 * 1024 * 1024
    a_out.write(bytes(total))
    await asyncio.sleep(0.3)  # b reads nothing beyond its StreamReader's limit
    assert pair.links.forwarded_bytes(THERE) < total / 2
    received = 0
    while received < total:
        received += len(await asyncio.wait_for(b_in.read(1 << 20), 5))
    assert pair.links.forwarded_bytes(THERE) == total


async def test_a_new_connection_through_a_cut_link_reaches_the_target_after_mending(pair: Pair) -> None:
    pair.links.set_cuts([THERE])
    _, a_out = await pair.dial()
    a_out.write(b"hello")
    await asyncio.sleep(SILENCE_S)
    assert pair.arrived.empty()
    assert pair.links.held_bytes(THERE) == 5
    pair.links.set_cuts([])
    b_in, _ = await asyncio.wait_for(pair.arrived.get(), 2)
    assert await b_in.readexactly(5) == b"hello"


async def test_a_caller_that_gave_up_behind_a_cut_link_never_reaches_the_target(pair: Pair) -> None:
    pair.links.set_cuts([THERE])
    _, a_out = await pair.dial()
    a_out.write(b"hello")
    await asyncio.sleep(0.05)
    a_out.close()
    await asyncio.sleep(0.05)
    pair.links.set_cuts([])
    await asyncio.sleep(SILENCE_S)
    assert pair.arrived.empty()


async def test_an_end_waits_behind_a_cut_like_the_bytes_before_it(pair: Pair) -> None:
    (_, a_out), (b_in, _) = await pair.connect()
    pair.links.set_cuts([THERE])
    a_out.write(b"last words")
    a_out.close()
    assert await silent(b_in)
    pair.links.set_cuts([])
    assert await asyncio.wait_for(b_in.read(), 2) == b"last words"


async def test_a_half_closed_connection_still_answers(pair: Pair) -> None:
    (a_in, a_out), (b_in, b_out) = await pair.connect()
    a_out.write(b"question")
    a_out.write_eof()
    assert await asyncio.wait_for(b_in.read(), 2) == b"question"
    b_out.write(b"answer")
    b_out.close()
    assert await asyncio.wait_for(a_in.read(), 2) == b"answer"


async def test_when_one_side_closes_so_does_the_other(pair: Pair) -> None:
    (a_in, a_out), (_, b_out) = await pair.connect()
    b_out.close()
    assert await asyncio.wait_for(a_in.read(), 2) == b""
    a_out.close()
    deadline = asyncio.get_running_loop().time() + 2
    while any(entrance.connections for entrance in pair.links._entrances.values()):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


async def test_a_reset_passes_on_as_a_reset(pair: Pair) -> None:
    (a_in, _), (_, b_out) = await pair.connect()
    b_out.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    b_out.transport.abort()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(a_in.read(1), 2)


async def test_a_reset_waits_behind_a_cut(pair: Pair) -> None:
    (a_in, a_out), (_, b_out) = await pair.connect()
    pair.links.set_cuts([BACK])
    b_out.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    b_out.transport.abort()
    a_out.write(b"anybody there?")  # meets the reset at the proxy
    assert await silent(a_in)
    a_out.write(bytes(16_000_000))
    await asyncio.sleep(SILENCE_S)
    assert a_out.transport.get_write_buffer_size() > 0, "what nobody can take must not be swallowed"
    pair.links.set_cuts([])
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(a_in.read(1), 2)


async def test_a_dead_target_resets_the_caller_and_is_reachable_again_later(pair: Pair) -> None:
    port = pair.server.sockets[0].getsockname()[1]
    pair.server.close()
    await pair.server.wait_closed()
    a_in, _ = await pair.dial()
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(a_in.read(1), 2) == b""
    pair.server = await asyncio.start_server(pair._accept, LOOPBACK, port)
    (_, a_out), (b_in, _) = await pair.connect()
    a_out.write(b"back")
    assert await b_in.readexactly(4) == b"back"


async def test_a_caller_that_redials_without_end_is_bounded(pair: Pair) -> None:
    pair.links.set_cuts([THERE])
    streams = [await pair.dial() for _ in range(WAITING_CONNECTIONS_MAX + 5)]
    await asyncio.sleep(0.05)
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(streams[0][0].read(1), 2) == b""
    assert await silent(streams[-1][0])
    pair.links.set_cuts([])
    for _ in range(WAITING_CONNECTIONS_MAX):
        await asyncio.wait_for(pair.arrived.get(), 2)
    await asyncio.sleep(SILENCE_S)
    assert pair.arrived.empty()


async def test_a_probe_tells_about_one_direction(pair: Pair) -> None:
    async def answered() -> bool:
        async with pair.links.probe_address(THERE) as address:
            _, writer = await asyncio.open_connection(address.host, address.port)
            writer.write(b"ping")
            try:
                b_in, b_out = await asyncio.wait_for(pair.arrived.get(), SILENCE_S)
            except TimeoutError:
                return False
            finally:
                pair.opened.append(writer)
            b_out.write(await b_in.readexactly(4))
            return True

    assert await answered()
    pair.links.set_cuts([BACK])
    assert await answered()
    pair.links.set_cuts([THERE])
    assert not await answered()


async def test_cutting_a_link_that_there_is_not_is_refused(pair: Pair) -> None:
    with pytest.raises(KeyError):
        pair.links.set_cuts([Link("a", "c")])
    assert pair.links.cuts() == []


async def test_a_delayed_link_is_late_in_its_direction_alone(pair: Pair) -> None:
    (a_in, a_out), (b_in, b_out) = await pair.connect()
    pair.links.shape({THERE: Shaping(delay_ms=(300, 300))})
    started = time.monotonic()
    a_out.write(b"late")
    b_out.write(b"soon")
    assert await a_in.readexactly(4) == b"soon"
    assert time.monotonic() - started < 0.3
    assert await b_in.readexactly(4) == b"late"
    assert time.monotonic() - started >= 0.3


async def test_what_is_on_its_way_waits_for_a_cut_and_arrives_before_the_end(pair: Pair) -> None:
    (_, a_out), (b_in, _) = await pair.connect()
    pair.links.shape({THERE: Shaping(delay_ms=(50, 50))})
    a_out.write(b"last words")
    a_out.close()
    await asyncio.sleep(0.01)
    pair.links.set_cuts([THERE])
    assert await silent(b_in)
    assert pair.links.counts(THERE).held_bytes == 10
    pair.links.set_cuts([])
    assert await asyncio.wait_for(b_in.read(), 2) == b"last words"


async def test_a_plain_link_passes_on_at_once_what_was_late(pair: Pair) -> None:
    (_, a_out), (b_in, _) = await pair.connect()
    pair.links.shape({THERE: Shaping(delay_ms=(60_000, 60_000))})
    a_out.write(b"held")
    assert await silent(b_in)
    pair.links.shape({})
    assert await asyncio.wait_for(b_in.readexactly(4), 2) == b"held"


async def test_a_narrow_link_pushes_back_and_loses_nothing(pair: Pair) -> None:
    (_, a_out), (b_in, _) = await pair.connect()
    pair.links.shape({THERE: Shaping(rate=1000)})
    sent = os.urandom(4 * RECEIVE_BUFFER_BYTES)
    a_out.write(sent)
    await asyncio.sleep(SILENCE_S)
    assert pair.links.counts(THERE).held_bytes <= 3 * RECEIVE_BUFFER_BYTES, "what waits in a link is bounded"
    pair.links.shape({})
    assert await asyncio.wait_for(b_in.readexactly(len(sent)), 5) == sent


async def test_old_connections_stall_and_new_ones_pass(pair: Pair) -> None:
    (_, old_out), (old_in, _) = await pair.connect()
    pair.links.shape({THERE: Shaping(stall=True)})
    old_out.write(b"stuck")
    (_, new_out), (new_in, _) = await pair.connect()
    new_out.write(b"fine")
    assert await asyncio.wait_for(new_in.readexactly(4), 2) == b"fine"
    assert await silent(old_in)
    pair.links.shape({})
    assert await asyncio.wait_for(old_in.readexactly(5), 2) == b"stuck"


async def test_a_reset_is_seen_on_both_sides_and_counted(pair: Pair) -> None:
    (a_in, _), (b_in, _) = await pair.connect()
    assert pair.links.reset([BACK]) == 0, "nobody has connected in that direction"
    assert pair.links.reset([THERE]) == 1
    for reader in (a_in, b_in):
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(1), 2) == b""


async def test_shaping_a_link_that_there_is_not(pair: Pair) -> None:
    with pytest.raises(KeyError):
        pair.links.shape({Link("a", "c"): Shaping(stall=True)})


async def test_a_door_can_be_shut_and_holds_what_came_meanwhile() -> None:
    server = await asyncio.start_server(_echo, LOOPBACK, 0)
    target = Address(LOOPBACK, server.sockets[0].getsockname()[1])
    links = Links({"a": target}, doors=True)
    await links.open()
    try:
        door = links.door("a")
        assert door is not None
        reader, writer = await asyncio.open_connection(door.host, door.port)
        writer.write(b"one")
        assert await asyncio.wait_for(reader.readexactly(3), 2) == b"one"
        links.shut_doors(["a"])
        writer.write(b"two")
        assert await silent(reader)
        links.shut_doors([])
        assert await asyncio.wait_for(reader.readexactly(3), 2) == b"two"
        writer.transport.abort()
    finally:
        links.close()
        server.close()


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100):
        writer.write(data)
    writer.close()
