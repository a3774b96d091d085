"""What clients and nodes say to each other, besides Raft.

A client numbers its requests upwards within a connection; every answer carries the number. `Granted` is not the end of
an acquire: the client answers `Ack`, and only `Confirmed` makes the lock the client's. Up to then the node takes the
grant back when the client goes away or stays silent.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cluster.node.members import Member
from cluster.node.message import Message
from cluster.node.messages import RaftMessage

KEY_BYTES_MAX = 512
TAG_LENGTH_MAX = 64
NODE_ID = re.compile(r"[A-Za-z0-9_.-]{1,32}")
TOKEN_LIMIT = 1 << 63
LEASE_MS_MIN = 1
LEASE_MS_MAX = 24 * 60 * 60 * 1000
WAIT_MS_MAX = 60 * 60 * 1000


# ---- client to node


class Acquire(Message, frozen=True):
    """`wait_ms` 0: refuse at once when the key is held. `forward` False: refuse unless this very node leads. `tag` is
    what the client calls this request, for the nodes' records (see `record`); it changes nothing else."""

    id: int
    key: str
    lease_ms: int
    wait_ms: int
    forward: bool = True
    tag: str = ""


class ReleaseToken(Message, frozen=True):
    id: int
    key: str
    token: int
    forward: bool = True
    tag: str = ""


class Inspect(Message, frozen=True):
    """Who holds the key: linearizable, or with `local` what this node has applied so far."""

    id: int
    key: str
    local: bool = False
    forward: bool = True


class Ack(Message, frozen=True):
    """The client knows that its acquire `id` was granted `token`."""

    id: int
    token: int


class Cancel(Message, frozen=True):
    """The client gives up waiting in acquire `id`; the answer to that acquire then comes at once and is definite."""

    id: int


class AddMember(Message, frozen=True):
    """Add a server, or give one another address; done when it votes. `forward`: as of an acquire."""

    id: int
    member: Member
    forward: bool = True


class RemoveMember(Message, frozen=True):
    """Remove a server, which may be the leader itself; done when that is committed. `forward`: as of an acquire."""

    id: int
    node: str
    forward: bool = True


class MoveLeadership(Message, frozen=True):
    """Hand leadership to `node`; done when it was asked to take over. `forward`: as of an acquire."""

    id: int
    node: str
    forward: bool = True


LockRequest = Acquire | ReleaseToken | Inspect | Ack | Cancel | AddMember | RemoveMember | MoveLeadership


class Ping(Message, frozen=True):
    pass


class StatusRequest(Message, frozen=True):
    id: int


# ---- node to client


class GrantedTo(Message, frozen=True):
    id: int
    token: int


class Confirmed(Message, frozen=True):
    id: int


class Done(Message, frozen=True):
    """The release, or the change of members, took effect."""

    id: int


class Holder(Message, frozen=True):
    """The token that holds the key, or None. `local`: from this node's own table, which may be behind."""

    id: int
    token: int | None
    local: bool


class Refused(Message, frozen=True):
    """The request definitely had no effect. "held" and "not-held" are observations, made like linearizable reads;
    other errors say nothing about the lock. `leader` is where to go instead, where that is known."""

    id: int
    error: str
    leader: str | None = None


class Unknown(Message, frozen=True):
    """Nobody can say whether the request took effect, or will."""

    id: int
    error: str


Answer = GrantedTo | Confirmed | Done | Holder | Refused | Unknown


class Pong(Message, frozen=True):
    pass


class StatusReply(Message, frozen=True):
    id: int
    status: dict[str, Any]


# ---- node to node


class Session(Message, frozen=True):
    """A client's connection, named so that it is never mistaken for another: the node that has it, that node's
    incarnation (drawn anew at every start) and a number."""

    node: str
    incarnation: int
    number: int


class Hello(Message, frozen=True):
    """The first frame on a connection between nodes, on which only the sender speaks. `cluster` is the cluster's name,
    so that nodes of two of them are not mixed up."""

    node: str
    cluster: str


class Forward(Message, frozen=True):
    """A request of a client of the sending node."""

    session: Session
    request: LockRequest


class Gone(Message, frozen=True):
    """The session's connection has ended."""

    session: Session


class Deliver(Message, frozen=True):
    """The leader's answer, to be passed on to the client."""

    session: Session
    answer: Answer


PeerMessage = RaftMessage | Forward | Gone | Deliver

ToNode = Hello | PeerMessage | LockRequest | Ping | StatusRequest
ToClient = Answer | Pong | StatusReply


def problem(request: LockRequest) -> str | None:
    """Why this request is refused whatever the state of the lock; None when nothing is wrong with it."""
    if isinstance(request, Acquire | ReleaseToken | Inspect):
        try:
            size = len(request.key.encode())
        except UnicodeEncodeError:
            return "a key is Unicode text"
        if not 1 <= size <= KEY_BYTES_MAX:
            return f"a key has 1 to {KEY_BYTES_MAX} bytes, this one has {size}"
    if isinstance(request, Acquire | ReleaseToken) and len(request.tag) > TAG_LENGTH_MAX:
        return f"a tag has up to {TAG_LENGTH_MAX} characters, this one has {len(request.tag)}"
    if isinstance(request, ReleaseToken) and not 0 <= request.token < TOKEN_LIMIT:
        return f"a token is a number from 0 to {TOKEN_LIMIT - 1}"
    if isinstance(request, AddMember | RemoveMember | MoveLeadership):
        node = request.member.id if isinstance(request, AddMember) else request.node
        if NODE_ID.fullmatch(node) is None:
            return f"{node!r} is no node name: 1 to 32 letters, digits, '.', '_' or '-'"
    if isinstance(request, Acquire):
        if not LEASE_MS_MIN <= request.lease_ms <= LEASE_MS_MAX:
            return f"a lease lasts {LEASE_MS_MIN} to {LEASE_MS_MAX} ms, not {request.lease_ms}"
        if not 0 <= request.wait_ms <= WAIT_MS_MAX:
            return f"a wait lasts 0 to {WAIT_MS_MAX} ms, not {request.wait_ms}"
    return None


encode = msgspec.msgpack.Encoder().encode
