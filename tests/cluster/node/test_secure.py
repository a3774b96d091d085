"""The handshake and the seals: whoever doesn't know the secret, or touches the bytes, is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.node.protocol import Inspect, Ping, Pong, encode
from cluster.node.secure import Channel
from cluster.node.wire import FRAME_BYTES_MAX, FrameError, framed

SECRET = b"sixteen bytes or more"


def pair(opens: bytes | None = SECRET, accepts: bytes | None = SECRET) -> tuple[Channel, Channel]:
    return (
        Channel(opens, opens=True, limit=FRAME_BYTES_MAX),
        Channel(accepts, opens=False, limit=FRAME_BYTES_MAX),
    )


def shake(client: Channel, server: Channel) -> list[bytes]:
    """Carry replies to and fro until nobody has one; gives what the server received."""
    received: list[bytes] = []
    while data := client.take_reply():
        received += server.receive(data)
        assert list(client.receive(server.take_reply())) == []
    return received


def test_what_is_sent_before_the_handshake_waits_for_it() -> None:
    client, server = pair()
    messages = [Inspect(1, "a"), Inspect(2, "b")]
    assert b"".join(map(client.seal, messages)) == b""
    assert shake(client, server) == list(map(encode, messages))
    assert list(server.receive(client.seal(Inspect(3, "c")))) == [encode(Inspect(3, "c"))]
    assert list(client.receive(server.seal(Pong()))) == [encode(Pong())]


def test_without_a_secret_bytes_are_plain() -> None:
    client, server = pair(None, None)
    assert client.take_reply() == b""
    assert list(server.receive(client.seal(Ping()))) == [encode(Ping())]


def test_a_ping_needs_no_secret_and_nothing_else_goes_without() -> None:
    _, server = pair()
    assert list(server.receive(framed(encode(Ping())))) == [encode(Ping())]
    with pytest.raises(FrameError, match="must begin with a proof"):
        list(server.receive(framed(encode(Inspect(1, "a")))))


@pytest.mark.parametrize(
    ("opens", "accepts", "words"),
    [
        (b"one secret of length", b"another of that length", "does not know"),
        (SECRET, None, "asks for no secret"),
        (None, SECRET, "must begin with a proof"),
    ],
)
def test_two_secrets_do_not_meet(opens: bytes | None, accepts: bytes | None, words: str) -> None:
    client, server = pair(opens, accepts)

    def talk() -> None:
        data = client.seal(Inspect(1, "a")) + client.take_reply()
        for _ in range(3):
            assert list(server.receive(data)) == []
            list(client.receive(server.take_reply()))
            data = client.take_reply()

    with pytest.raises(FrameError, match=words):
        talk()


def test_a_server_that_does_not_know_the_secret_gets_nothing() -> None:
    client, server = pair(SECRET, b"another of that length")
    client.seal(Inspect(1, "a"))
    list(server.receive(client.take_reply()))
    with pytest.raises(FrameError, match="does not know"):
        list(client.receive(server.take_reply()))
    assert client.take_reply() == b""


def test_a_recorded_connection_can_not_be_played_again() -> None:
    client, server = pair()
    record = client.take_reply()
    list(server.receive(record))
    list(client.receive(server.take_reply()))
    rest = client.take_reply() + client.seal(Inspect(1, "a"))
    assert list(server.receive(rest)) == [encode(Inspect(1, "a"))]
    _, again = pair()
    assert list(again.receive(record)) == []
    with pytest.raises(FrameError, match="does not know"):
        list(again.receive(rest))


@given(data=st.data())
def test_a_stream_that_was_touched_is_refused_at_the_first_touched_frame(data: st.DataObject) -> None:
    client, server = pair()
    shake(client, server)
    messages = [Inspect(i, "k" * i) for i in range(1, 5)]
    frames = [client.seal(message) for message in messages]
    how = data.draw(st.sampled_from(("flip", "repeat", "swap", "drop", "back")))
    at = data.draw(st.integers(0, 2))
    match how:
        case "flip":
            position = data.draw(st.integers(0, len(frames[at]) - 1))
            changed = bytearray(frames[at])
            changed[position] ^= data.draw(st.integers(1, 255))
            frames[at] = bytes(changed)
        case "repeat":
            frames.insert(at + 1, frames[at])
            at += 1
        case "swap":
            frames[at], frames[at + 1] = frames[at + 1], frames[at]
        case "drop":
            del frames[at]
        case "back":
            frames[at] = server.seal(Pong())
    received: list[bytes] = []

    def receive() -> None:
        for one in frames:
            received.extend(server.receive(one))

    with pytest.raises(FrameError, match=r"not sealed|the limit is"):
        receive()
    assert received == list(map(encode, messages[:at]))


def test_a_length_that_was_changed_is_noticed_before_the_rest_is_waited_for() -> None:
    client, server = pair()
    shake(client, server)
    frame = bytearray(client.seal(Inspect(1, "a")))
    frame[2] ^= 1  # 256 bytes more
    assert list(server.receive(bytes(frame[:11]))) == []
    with pytest.raises(FrameError, match="not sealed"):
        list(server.receive(bytes(frame[11:12])))
