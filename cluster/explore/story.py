"""A trace in words, and as a Mermaid sequence diagram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cluster.explore.promises import Violation
from cluster.explore.space import Event, Space, State
from cluster.node.message import Message
from cluster.node.messages import Append, AppendReply, TimeoutNow, VoteReply, VoteRequest
from cluster.node.protocol import Deliver, Forward, PeerMessage
from cluster.node.raftlog import Entry

#: What happens to a node by itself.
_OF_NODES = {
    "start": "starts",
    "silence": "has not heard of a leader for long enough to vote",
    "timeout": "begins an election: its time-out is over",
    "beat": "is due to speak to its followers",
    "sync": "has its oldest write on disk",
    "patience-over": "waits no longer for clients",
}
_OF_CLIENTS = {
    "acquire": "acquires",
    "acknowledge": "acknowledges the grant",
    "release": "releases",
    "read": "asks who holds the key",
    "leave": "loses its connection",
}


class Line(NamedTuple):
    """One event: from whom, to whom (empty: it happens there), and in words."""

    source: str
    target: str
    words: str


def lines(space: Space, trace: Sequence[Event]) -> Iterator[Line]:
    """The trace from the first state on, with its violation, if it ends in one, as the last line."""
    state: State | None = space.first()
    for event in trace:
        assert state is not None, "a trace stays within the bounds"
        line = _line(space, state, event)
        yield line
        try:
            state = space.step(state, event)
        except Violation as violation:
            yield Line(line.target or line.source, "", f"VIOLATION: {violation}")
            return


def _line(space: Space, state: State, event: Event) -> Line:
    name, a, b = event
    if name in ("deliver", "lose"):
        message = words(space.nodes.messages[space.waiting(state, a, b)[0]])
        return Line(space.names[a], space.names[b], message if name == "deliver" else f"lost: {message}")
    if name == "crash":
        kept = f", with {b} of its writes on disk" if space.bounds.slow_disks else ""
        return Line(space.names[a], "", f"crashes{kept}")
    if name == "lease-over":
        return Line(space.names[a], "", f"the lease of token {b} is over")
    if name in _OF_NODES:
        return Line(space.names[a], "", _OF_NODES[name])
    return Line(f"client_{a}", space.names[space.home(a)], _OF_CLIENTS[name])


def words(message: PeerMessage) -> str:
    match message:
        case VoteRequest(term=term, pre=pre, last_index=index, last_term=last):
            return f"{'would you vote' if pre else 'vote'} for me in term {term}? (log ends at {index} of term {last})"
        case VoteReply(term=term, granted=granted, pre=pre):
            return f"{'I would' if pre else 'my vote'}, term {term}" if granted else f"no, term {term}"
        case Append(term=term, prev_index=prev, entries=entries, commit=commit):
            what = ", ".join(map(_entry, entries)) or "nothing new"
            return f"term {term}, after {prev}: {what}; committed {commit}"
        case AppendReply(term=term, ok=True, index=index):
            return f"agree up to {index}, term {term}"
        case AppendReply(term=term, index=index, rejected=rejected):
            return f"no, not after {rejected}, try {index}, term {term}"
        case TimeoutNow(term=term):
            return f"take over from term {term}"
        case Forward(request=request):
            return f"forwarded: {_plain(request)}"
        case Deliver(answer=answer):
            return f"for a client: {_plain(answer)}"
    return _plain(message)


def _entry(entry: Entry) -> str:
    return f"{entry.index}/{entry.term} {_plain(entry.command)}"


def _plain(message: Message) -> str:
    parts = (f"{name} {getattr(message, name)}" for name in message.__struct_fields__ if name in ("token", "error"))
    return " ".join((type(message).__name__, *parts))


def mermaid(told: Sequence[Line]) -> str:
    diagram = ["sequenceDiagram"]
    for number, line in enumerate(told, 1):
        text = f"{number}. {line.words}".replace(";", ",").replace("#", " ")
        if line.target:
            arrow = "-x" if line.words.startswith("lost") else "->>"
            diagram.append(f"  {line.source}{arrow}{line.target}: {text}")
        else:
            diagram.append(f"  Note over {line.source}: {text}")
    return "\n".join(diagram) + "\n"
