"""Why operations of several keys can't all be true under one order of tokens, as a cycle (see `checker.graph`).

An edge more than within a key says that a larger token was granted later, whatever its key. Of an edge that is counted
this holds: in whichever way each key uses its acquires of unknown outcome, with the moments of all other keys as late
as they can be. Where ways of several keys had to be told apart there is no cycle: each of the cases has a reason of its
own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence

from checker import graph
from checker.facts import Facts
from checker.graph import NEVER, Edge, Node, Window
from checker.operations import Operation
from checker.sweep import Refusal
from checker.together import Refused, Shortage

#: Tokens of all keys beyond which no graph is drawn: each has an edge to each larger one.
TOKENS_MAX = 16


def cycle_of(
    joint: Refused,
    keys: Mapping[str, Sequence[Operation]],
    cited: Sequence[Operation],
    tokens: Sequence[int],
    *,
    by_bounds: bool,
) -> list[Edge]:
    """`keys` are what was decided; `cited` the operations of the explanation, in the order of what follows from what,
    and `tokens` those whose moments it is about. `by_bounds`: the first of the two says that a moment can't be later
    than it, the second that it can't be earlier. Empty where there is no cycle."""
    reason = joint.reason
    if isinstance(reason, Shortage):
        return []
    if not isinstance(reason, Refusal):
        return _shared(reason.first, reason.second)
    paths = _Paths(joint.key, keys)
    if by_bounds:
        return paths.between(_moment(reason), cited[0], cited[1])
    windows = _windows(joint, keys, cited, tokens)
    cycle = graph.shortest_cycle(graph.build(windows)) if windows else []
    return cycle or (paths.counted(reason) if joint.cases == 1 else [])


def _shared(one: Operation, other: Operation) -> list[Edge]:
    first, second = Node("end", one.index), Node("end", other.index)
    because = f"both show {one.token}, and a token is granted under one key"
    rests_on = (one.index, other.index)
    return [Edge(first, second, because, rests_on, "once"), Edge(second, first, because, rests_on, "once")]


def _moment(refusal: Refusal) -> Node:
    number = refusal.moment // 2
    if number == len(refusal.tenures):
        return NEVER
    return Node("exit" if refusal.moment % 2 else "enter", refusal.tenures[number].token)


def _windows(
    joint: Refused, keys: Mapping[str, Sequence[Operation]], cited: Sequence[Operation], tokens: Sequence[int]
) -> list[Window]:
    """Of each key that has to do with it; empty where they would be too large."""
    named = {*tokens, *(operation.token for operation in cited if operation.token is not None)}
    facts = {key: Facts.of(operations) for key, operations in keys.items()}
    shown = {key: [tenure.token for tenure in of_key.tenures] for key, of_key in facts.items()}
    concerned = {joint.key, *(operation.key for operation in cited)}
    concerned |= {key for key, of_key in shown.items() if not named.isdisjoint(of_key)}
    windows = []
    for key in sorted(concerned):
        of_key = shown[key]
        first = max(0, bisect_left(of_key, min(named, default=0)) - 1)
        last = min(len(of_key), bisect_right(of_key, max(named, default=0)) + 1)
        owned = frozenset(tenure.token for tenure in facts[key].tenures if tenure.grant is not None)
        own = sorted((one for one in cited if one.key == key), key=lambda operation: operation.index)
        unknown = [operation.index for operation in facts[key].unknown]
        windows.append(Window(own, of_key[first:last], first == 0, last == len(of_key), unknown, owned))
    return windows if sum(len(window.tokens) for window in windows) <= TOKENS_MAX else []


class _Paths:
    """Ways from moment to moment by the order of tokens; `key` is that of the refusal."""

    def __init__(self, key: str, keys: Mapping[str, Sequence[Operation]]) -> None:
        self._key = key
        self._keys = keys

    def between(self, moment: Node, upper: Operation, lower: Operation) -> list[Edge]:
        """What bounds the moment from above had ended when what bounds it from below began."""
        low, high = _bounded(lower, last=True), _bounded(upper, last=False)
        end, begin = Node("end", upper.index), Node("invoke", lower.index)
        done = f"[{upper.index}] released {high.of}" if high.what == "exit" else f"[{upper.index}] showed {high.of}"
        before = f"[{upper.index}] had ended when [{lower.index}] began"
        return [
            *self._path(low, lower.key, moment, self._key),
            *self._path(moment, self._key, high, upper.key),
            Edge(high, end, f"{done} by then", (upper.index,), "effect"),
            Edge(end, begin, before, (upper.index, lower.index), "order"),
            _after(lower, low),
        ]

    def counted(self, refusal: Refusal) -> list[Edge]:
        """Through the moment that has no place."""
        moment = _moment(refusal)
        count = len(refusal.unknown.invokes)
        whichever = f"in whichever way the {count} acquires of unknown outcome of key {self._key!r} are used"
        if moment == NEVER:
            forced_by = refusal.candidates[-1].forced_by
            assert forced_by is not None
            end, index = Node("end", forced_by.index), forced_by.index
            must = f"[{index}] saw the lock held: {whichever}, none is left"
            nothing = "no token that was shown comes later"
            return [
                Edge(moment, end, must, (index,), "counted"),
                Edge(end, moment, nothing, (index,), "last"),
            ]
        lower = refusal.not_before.by
        if isinstance(lower, Operation):
            low = _bounded(lower, last=True)
            before = f"{whichever}, it comes before [{lower.index}] began"
            return [
                _after(lower, low),
                *self._path(low, lower.key, moment, self._key),
                Edge(moment, Node("invoke", lower.index), before, (lower.index,), "counted"),
            ]
        # What all ways to the moment have in common is the end of an operation that limits it.
        limit = refusal.limits[refusal.moment].gap + 1
        upper = next(one for operations in self._keys.values() for one in operations if one.end == limit)
        end, index = Node("end", upper.index), upper.index
        late = f"{whichever}, nobody is left who can have been granted it by then"
        return [
            Edge(moment, end, f"{whichever}, it comes before [{index}] ended", (index,), "counted"),
            Edge(end, moment, late, (index,), "counted"),
        ]

    def _path(self, start: Node, of_start: str, goal: Node, of_goal: str) -> list[Edge]:
        """From a moment of one key to a later one of another, or the same."""
        if start == goal:
            return []
        if of_start == of_goal:
            return [Edge(start, goal, "tokens are held in their order", (), "tokens")]
        path: list[Edge] = []
        if start.what == "exit":
            shown = (one.token for one in self._keys[of_start] if graph.shows(one) and one.token is not None)
            following = Node("enter", min(token for token in shown if token > start.of))
            path, start = self._path(start, of_start, following, of_start), following
        granted = Node("enter", goal.of)
        because = f"{start.of} is smaller than {goal.of}, and tokens grow over all keys"
        path.append(Edge(start, granted, because, (), "grants"))
        return path + self._path(granted, of_goal, goal, of_goal)


def _bounded(operation: Operation, *, last: bool) -> Node:
    """The moment that an operation bounds: from below its `last` one, from above the first."""
    assert operation.token is not None
    leaves = operation.f != "acquire" if last else operation.f == "release"
    return Node("exit" if leaves else "enter", operation.token)


def _after(operation: Operation, moment: Node) -> Edge:
    index = operation.index
    done = {"acquire": "asked for", "release": "released"}.get(operation.f, "saw")
    return Edge(Node("invoke", index), moment, f"[{index}] {done} {moment.of}", (index,), "effect")
