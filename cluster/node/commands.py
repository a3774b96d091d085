"""The replicated commands and the results of applying them; the words of the lock's specification."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of everything that travels or is stored: an immutable value, encoded as a tagged array."""


class Grant(Message, frozen=True):
    """Acquire a key. The token is assigned by the state machine when it applies this."""

    key: str
    lease_ms: int


class Release(Message, frozen=True):
    """Release a key. The leader proposes it only when the projected holder is the one that asked."""

    key: str


class Expire(Message, frozen=True):
    """End the lease of `token`; removes the lock only while that very grant holds the key."""

    key: str
    token: int


class Noop(Message, frozen=True):
    """The first entry of every leader's term (Raft, section 8)."""


Command = Grant | Release | Expire | Noop


class Granted(Message, frozen=True):
    token: int


class GrantRejected(Message, frozen=True):
    """A Grant met a key that is held: never in the normal flow, since the leader looks first."""


class Released(Message, frozen=True):
    pass


class NotFound(Message, frozen=True):
    pass


class Expired(Message, frozen=True):
    existed: bool


class NothingDone(Message, frozen=True, tag="Noop"):
    """The result `Noop` of the specification."""


Result = Granted | GrantRejected | Released | NotFound | Expired | NothingDone
