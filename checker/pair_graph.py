"""Cycles (see `checker.graph`) for findings on two operations: of `fencing`, `mutual-exclusion` and `leases`."""

from __future__ import annotations

from typing import Any

from checker.graph import Edge, Node
from checker.operations import Operation


def twins(one: Operation, other: Operation) -> list[dict[str, Any]]:
    """Both were granted one token: each of the two would have to come before the other."""
    first, second = Node("end", one.index), Node("end", other.index)
    because = f"{one.token} was granted by both, and once only"
    rests_on = (one.index, other.index)
    return _plain(Edge(first, second, because, rests_on, "once"), Edge(second, first, because, rests_on, "once"))


def out_of_order(first: Operation, second: Operation) -> list[dict[str, Any]]:
    """`first` had got the larger token before `second` asked."""
    larger, smaller = Node("enter", first.token or 0), Node("enter", second.token or 0)
    end, begin = Node("end", first.index), Node("invoke", second.index)
    before = f"[{first.index}] had ended when [{second.index}] began"
    rule = "tokens" if first.key == second.key else "grants"
    return _plain(
        Edge(smaller, larger, f"{second.token} is smaller than {first.token}", (), rule),
        Edge(larger, end, f"[{first.index}] was granted {first.token}", (first.index,), "effect"),
        Edge(end, begin, before, (first.index, second.index), "order"),
        Edge(begin, smaller, f"[{second.index}] asked for {second.token}", (second.index,), "effect"),
    )


def too_early(grant: Operation, observation: Operation, shown_before: Operation | None = None) -> list[dict[str, Any]]:
    """`observation` shows that the token of `grant` had ended, before its lease can have been over: that began after
    `shown_before`, an operation that shows an earlier token, was invoked."""
    token = grant.token or 0
    left, end = Node("exit", token), Node("end", observation.index)
    rests_on = (grant.index, observation.index)
    if observation.outcome == "ok" and observation.token is not None:
        enter = Node("enter", observation.token)
        ended = [
            Edge(left, enter, f"{token} is smaller than {observation.token}", (), "tokens"),
            Edge(enter, end, f"[{observation.index}] shows {observation.token}", (observation.index,), "effect"),
        ]
    else:
        granted, begin = Node("end", grant.index), Node("invoke", observation.index)
        since = (
            Edge(Node("enter", token), granted, f"[{grant.index}] was granted {token}", (grant.index,), "effect"),
            Edge(granted, begin, f"[{grant.index}] had ended when [{observation.index}] began", rests_on, "order"),
        )
        ended = [Edge(left, end, f"[{observation.index}] saw that it had ended", rests_on, "leave", since)]
    cited = {grant.index, observation.index}
    start: tuple[Edge, ...] = ()
    if shown_before is not None and shown_before.invoke.time > grant.invoke.time:
        index, earlier = shown_before.index, shown_before.token or 0
        shown = Node("enter" if shown_before.f == "acquire" else "exit", earlier)
        cited.add(index)
        start = (
            Edge(Node("invoke", index), shown, f"[{index}] shows {earlier}", (index,), "effect"),
            Edge(shown, Node("enter", token), f"{earlier} is smaller than {token}", (), "tokens"),
        )
    because = f"the lease of {token} can't have been over when [{observation.index}] ended"
    return _plain(*ended, Edge(end, left, because, tuple(sorted(cited)), "lease", start))


def _plain(*edges: Edge) -> list[dict[str, Any]]:
    return [edge.to_dict() for edge in edges]
