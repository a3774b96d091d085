"""Which transitions of the core a run has reached: what steers fuzzing to where it has not been yet.

A transition is what a message of one kind, heartbeats left out, did to a node: the role before and after, whether its
log and what is committed grew or shrank. An edge is two transitions of one node, one after the other. Nothing of it
depends on how Python runs the code, so the same seed reaches the same edges on every version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any

from cluster.node.core import Core
from cluster.node.messages import Append, AppendReply, SnapshotChunk, VoteReply, VoteRequest
from cluster.node.protocol import Deliver, Forward

#: What tells messages of one kind apart.
_FORMS: Mapping[type, Callable[[Any], object]] = {
    Append: lambda append: len(append.entries) > 0,
    AppendReply: lambda reply: reply.ok,
    VoteRequest: lambda request: (request.pre, request.transfer),
    VoteReply: lambda reply: (reply.granted, reply.pre),
    SnapshotChunk: lambda chunk: chunk.offset > 0,
    Forward: lambda forward: type(forward.request).__name__,
    Deliver: lambda deliver: type(deliver.answer).__name__,
}

State = tuple[str, int, int, int]


def idle(message: Any) -> bool:
    """A heartbeat and its answer: most of all messages, and nothing that would tell two runs apart."""
    kind = type(message)
    return (kind is AppendReply and message.ok) or (kind is Append and not message.entries)


def state(core: Core) -> State:
    """Of a node, as far as transitions tell it apart."""
    raft = core.raft
    return raft.role, raft.hard_state.term, raft.commit, raft.log.last_index


class Reached:
    """The edges that one node has reached, over all its lives."""

    __slots__ = ("_edges", "_last", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[tuple[object, ...], int] = {}
        self._edges: set[tuple[int, int]] = set()
        self._last = 0

    def note(self, message: Any, before: State, after: State) -> None:
        kind = type(message)
        form = _FORMS.get(kind)
        grown = after[3] - before[3]
        transition = (
            kind.__name__, None if form is None else form(message), before[0], after[0], after[1] > before[1],
            after[2] > before[2], (grown > 0) - (grown < 0),
        )  # fmt: skip
        number = self._numbers.setdefault(transition, len(self._numbers) + 1)
        self._edges.add((self._last, number))
        self._last = number

    def edges(self) -> frozenset[int]:
        """Each as a number that is the same in every process."""
        words = ["", *(repr(tuple(map(str, transition))) for transition in self._numbers)]
        return frozenset(_number(f"{words[first]}>{words[second]}") for first, second in self._edges)


def _number(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
