"""The replicated commands and the results of applying them; the words of the lock's specification."""

from __future__ import annotations

from cluster.node.members import Members
from cluster.node.message import Message


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


class Configure(Message, frozen=True):
    """Raft's own: from here on these are the members."""

    members: Members


Command = Grant | Release | Expire | Noop | Configure


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
