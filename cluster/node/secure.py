"""The cluster's secret: who may speak to a node, and that nobody else has put in a word.

Problem. Whoever can reach a node's port could release other people's locks, or vote.

Protocol. Nodes and clients share a secret of at least 16 bytes. The side that opens a connection sends a random number;
the other answers with one of its own and a proof that it knows the secret, an HMAC over both numbers; the first proves
the same. Two keys, one for each direction, are derived from the secret and both numbers, and from then on each frame
begins with a keyed hash of its position in the stream and its length, and ends in one of its position and its content.
So a frame that was changed, repeated, left out, moved or made up by somebody else is noticed, and the connection is
closed; one whose length was changed at once, and not when as many bytes have come. The labels differ by role and
direction, so that no proof or frame can be played back to its sender.

What it does not do: hide. Keys and tokens travel in the clear; where that matters, put the connection into a tunnel.
Only `Ping` is answered without the secret: it tells that somebody listens, which a connection tells already.

HMAC: RFC 2104, with SHA-256. Keyed hash: BLAKE2b, RFC 7693.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator

import msgspec

from cluster.node.message import Message
from cluster.node.protocol import Ping, Refused, ToClient, ToNode, encode
from cluster.node.wire import FrameError, FrameReader, framed

SECRET_BYTES_MIN = 16
NONCE_BYTES = 32
SEAL_BYTES = 16
HEAD_BYTES = 8

NOT_SEALED = "a frame that was not sealed with this cluster's secret"
WRONG_SECRET = "the other side does not know this cluster's secret"


class Hail(Message, frozen=True):
    nonce: bytes


class Counter(Message, frozen=True):
    nonce: bytes
    proof: bytes


class Proof(Message, frozen=True):
    proof: bytes


_handshake = msgspec.msgpack.Decoder(Hail | Counter | Proof | Refused)
_PING = encode(Ping())
_HAIL = encode(Hail(b""))[:-2]


class _Seal:
    """One direction of a connection."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._position = 0

    def head(self, size: int) -> bytes:
        """Of the next frame, which has `size` bytes behind its length."""
        told = self._position.to_bytes(8, "big") + size.to_bytes(4, "big")
        return hashlib.blake2b(told, key=self._key, digest_size=HEAD_BYTES, person=b"length").digest()

    def check(self, size: int, head: bytes) -> None:
        if not hmac.compare_digest(head, self.head(size)):
            raise FrameError(NOT_SEALED)

    def next(self, body: bytes) -> bytes:
        position = self._position.to_bytes(8, "big")
        self._position += 1
        return hashlib.blake2b(position + body, key=self._key, digest_size=SEAL_BYTES).digest()


class Channel:
    """One end of a connection: bytes in, bodies of frames out, and the other way round. Without a secret nothing is
    proved and nothing sealed.

    What has to be sent because of what was received is in `take_reply`. Frames that the opening side seals before the
    other has proved itself wait, and are part of a later reply.
    """

    def __init__(self, secret: bytes | None, *, opens: bool, limit: int) -> None:
        self._secret, self._opens = secret, opens
        self._frames = FrameReader(limit, HEAD_BYTES)
        self._own_nonce = secrets.token_bytes(NONCE_BYTES) if secret is not None else b""
        self._nonces = b""
        self._out: _Seal | None = None
        self._in: _Seal | None = None
        self._waiting: list[bytes] = []
        self._reply: list[bytes] = []
        if secret is not None and opens:
            self._reply.append(framed(encode(Hail(self._own_nonce))))

    @property
    def proved(self) -> bool:
        """Whether the other side has proved that it knows the secret; never, where there is none."""
        return self._in is not None

    def allow(self, limit: int) -> None:
        """From now on accept frames of up to `limit` bytes."""
        self._frames.limit = limit

    def receive(self, data: bytes) -> Iterator[bytes]:
        """The bodies that `data` completes, one after another. Raises FrameError."""
        for body in self._frames.feed(data):
            if self._secret is None and body.startswith(_HAIL):
                raise FrameError("this node asks for no secret; connect without one")
            if self._secret is None or (not self._opens and self._in is None and body == _PING):
                yield body
            elif self._in is None:
                self._shake_hands(body)
            else:
                yield self._unsealed(self._in, body)

    def seal(self, message: ToNode | ToClient) -> bytes:
        """The bytes to send now for `message`; none while it has to wait."""
        body = encode(message)
        if self._out is not None:
            return self._sealed(self._out, body)
        if self._secret is None or not self._opens:
            return framed(body)
        self._waiting.append(body)
        return b""

    def take_reply(self) -> bytes:
        reply, self._reply = b"".join(self._reply), []
        return reply

    def _shake_hands(self, body: bytes) -> None:
        try:
            message = _handshake.decode(body)
        except msgspec.DecodeError as error:
            raise FrameError("this cluster has a secret; the connection must begin with a proof of it") from error
        match message:
            case Hail(nonce) if not self._opens and not self._nonces:
                self._nonces = nonce + self._own_nonce
                self._reply.append(framed(encode(Counter(self._own_nonce, self._derive(b"accepts")))))
            case Counter(nonce, proof) if self._opens:
                self._nonces = self._own_nonce + nonce
                self._expect(proof, b"accepts")
                self._reply.append(framed(encode(Proof(self._derive(b"opens")))))
                self._begin(self._derive(b"there"), self._derive(b"back"))
            case Proof(proof) if not self._opens and self._nonces:
                self._expect(proof, b"opens")
                self._begin(self._derive(b"back"), self._derive(b"there"))
            case Refused(error=reason):
                raise FrameError(reason.removeprefix("bad-request: "))
            case _:
                raise FrameError("a proof of the cluster's secret out of turn")

    def _begin(self, out: bytes, back: bytes) -> None:
        self._out, self._in = _Seal(out), _Seal(back)
        for body in self._waiting:
            self._reply.append(self._sealed(self._out, body))
        self._waiting.clear()
        self._frames.check = self._in.check

    def _derive(self, label: bytes) -> bytes:
        assert self._secret is not None
        return hmac.digest(self._secret, label + b"\0" + self._nonces, "sha256")

    def _expect(self, proof: bytes, label: bytes) -> None:
        if not hmac.compare_digest(proof, self._derive(label)):
            raise FrameError(WRONG_SECRET)

    @staticmethod
    def _sealed(seal: _Seal, body: bytes) -> bytes:
        return framed(seal.head(HEAD_BYTES + len(body) + SEAL_BYTES) + body + seal.next(body))

    @staticmethod
    def _unsealed(seal: _Seal, sealed: bytes) -> bytes:
        body, given = sealed[HEAD_BYTES:-SEAL_BYTES], sealed[-SEAL_BYTES:]
        if not hmac.compare_digest(given, seal.next(body)):
            raise FrameError(NOT_SEALED)
        return body
