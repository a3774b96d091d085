"""The precedence graph of a few operations, and the shortest cycle in it: why they can't all be true.

Nodes are the moments at which a token's interval is entered and left, and the two ends of each operation; an edge says
that one comes before the other, and why:

* an operation begins before it ends, and ends before each that begins later;
* tokens are held in their order: `enter 5`, `exit 5`, `enter 7`, ...;
* `acquire ok 5` puts `enter 5` between its ends, `release 5` `exit 5` between its own; who saw 5 held ended after
  `enter 5` and began before `exit 5`;
* an observation forces an exit: once a state that it contradicts was entered before it began, that state must be left
  before it ends. Such an edge rests on the path that shows the first; a cycle through it is one together with that.

Every edge is strict, so any cycle is a contradiction. Operations of unknown outcome never bound anything and so have no
part in it, except that acquires among them may explain why somebody saw the lock held, or who was granted a token: an
edge that says otherwise is drawn only if none of them had begun by then. So there may be no cycle, where one has to
count how many of them there are, and what they must have been used up for. Then the cycle goes through the moment that
the sweep found no place for, with an edge that is *counted*: in whichever way the acquires of unknown outcome are used,
this moment comes before that event. Who verifies such an edge counts as well, and finds all other edges in the history
(`checker.cycles`).

networkx takes seconds for graphs of whole histories: this is for the window that a finding cites.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise, permutations, product
from typing import Any, NamedTuple

import networkx as nx

from checker.facts import Duplicate
from checker.operations import OPEN, Operation
from checker.sweep import Refusal

#: Tokens between those that are cited, beyond which no graph is drawn.
TOKENS_MAX = 50

#: Adds an edge: before, after, because, and the operations that it rests on.
Add = Callable[..., None]


class Node(NamedTuple):
    """`what` is "enter" or "exit" of a token, or "invoke" or "end" of the operation that begins at an event."""

    what: str
    of: int

    def words(self) -> str:
        if self.of == OPEN:
            return "a grant after all that were shown"
        return f"{self.what} {self.of}" if self.what in ("enter", "exit") else f"{self.what} of [{self.of}]"

    def plain(self) -> list[str | int]:
        return ["never", 0] if self == NEVER else [self.what, self.of]


#: What would have to end the last free interval.
NEVER = Node("exit", OPEN)


@dataclass(frozen=True, slots=True)
class Edge:
    """`before` comes before `after`: `because` says why, in words, and `operations` are those that it rests on. `rule`
    is that of `checker.cycles` which makes it true; `since` are the edges from the moment at which a state was entered
    to the beginning of the observation that it contradicts."""

    before: Node
    after: Node
    because: str
    operations: tuple[int, ...]
    rule: str
    since: tuple[Edge, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": self.before.words(),
            "after": self.after.words(),
            "because": self.because,
            "operations": list(self.operations),
            "step": self.step(),
        }

    def step(self) -> dict[str, Any]:
        """What there is to verify."""
        plain = {"before": self.before.plain(), "after": self.after.plain(), "rule": self.rule}
        return {**plain, "since": [edge.step() for edge in self.since]} if self.since else plain


@dataclass(frozen=True, slots=True)
class Window:
    """Operations of one key, in the order of their invokes; `tokens`, all that are shown between the smallest and the
    largest of theirs; whether none is smaller (`starts`) or larger (`ends`); and the invokes of all acquires of the key
    of unknown outcome. `owned` are tokens that an ok acquire got."""

    operations: Sequence[Operation]
    tokens: Sequence[int]
    starts: bool
    ends: bool
    unknown: Sequence[int]
    owned: frozenset[int]


def window_of(refusal: Refusal, operations: Sequence[Operation]) -> Window:
    """What a refusal says about the surroundings of the operations that it cites."""
    tokens = [tenure.token for tenure in refusal.tenures]
    named = [operation.token for operation in operations if operation.token is not None]
    first, last = bisect_left(tokens, min(named, default=0)), bisect_right(tokens, max(named, default=0))
    if not named:
        first, last = 0, len(tokens)
    starts, ends = refusal.starts and first == 0, refusal.ends and last == len(tokens)
    ordered = sorted(operations, key=lambda operation: operation.index)
    return Window(ordered, tokens[first:last], starts, ends, refusal.unknown.invokes, refusal.owned)


def build(windows: Sequence[Window]) -> nx.DiGraph[Node]:
    """The graph; each edge has its `Edge` as `edge`. Several windows are of as many keys whose tokens have one order;
    then it does not matter which of their tokens are in the graph, and an edge says at once what several would."""
    graph: nx.DiGraph[Node] = nx.DiGraph()

    def add(before: Node, after: Node, because: str, *rests_on: int, rule: str, since: Sequence[Edge] = ()) -> None:
        if not graph.has_edge(before, after):
            operations = tuple(sorted(set(rests_on)))
            graph.add_edge(before, after, edge=Edge(before, after, because, operations, rule, tuple(since)))

    known = [operation for window in windows for operation in window.operations if operation.outcome != "info"]
    for operation in known:
        index = operation.index
        add(Node("invoke", index), Node("end", index), "it began before it ended", index, rule="lasts")
    for one in known:
        for other in known:
            if one.end < other.index:
                add(
                    Node("end", one.index),
                    Node("invoke", other.index),
                    f"[{one.index}] had ended when [{other.index}] began",
                    one.index,
                    other.index,
                    rule="order",
                )
    together = len(windows) > 1
    for window in windows:
        moments = _moments(window)
        for before, after in combinations(moments, 2) if together else pairwise(moments):
            because = (
                "it is held before it ends" if before.of == after.of else f"{before.of} is smaller than {after.of}"
            )
            add(before, after, because, rule="tokens")
    for here, there in permutations(windows, 2):
        for token, larger in product(here.tokens, there.tokens):
            if token < larger:
                because = f"{token} is smaller than {larger}, and tokens grow over all keys"
                add(Node("enter", token), Node("enter", larger), because, rule="grants")
    for operation in known:
        _bound(operation, add)
    for window in windows:
        _own(window, add)
    while any(_force(graph, window, add) for window in windows):
        pass
    if graph.has_node(NEVER):
        # Nothing follows, so what must be left never is.
        for before in list(graph.successors(NEVER)):
            rests_on = graph.edges[NEVER, before]["edge"].operations
            add(before, NEVER, "no token that was shown comes later", *rests_on, rule="last")
    return graph


def _moments(window: Window) -> list[Node]:
    return [Node(what, token) for token in window.tokens for what in ("enter", "exit")]


def _own(window: Window, add: Add) -> None:
    """A token that was shown before anybody can have been granted it."""
    known = [operation for operation in window.operations if operation.outcome != "info"]
    owned = {o.token for o in known if o.f == "acquire" and o.outcome == "ok"}
    for operation in known:
        if not shows(operation) or operation.token is None or operation.token in owned:
            continue
        if operation.token in window.owned or (window.unknown and window.unknown[0] < operation.end):
            continue
        because = f"nobody who can have been granted {operation.token} had asked before [{operation.index}] ended"
        add(Node("end", operation.index), Node("enter", operation.token), because, operation.index, rule="nobody")


def shows(operation: Operation) -> bool:
    return operation.outcome == "ok" and operation.f in ("acquire", "release", "renew", "inspect")


def _bound(operation: Operation, add: Add) -> None:
    """What an operation says of the moments of the token that it shows."""
    token, index = operation.token, operation.index
    if not shows(operation) or token is None:
        return
    begin, end = Node("invoke", index), Node("end", index)
    enter, left = Node("enter", token), Node("exit", token)
    if operation.f == "acquire":
        add(begin, enter, f"[{index}] asked for {token}", index, rule="effect")
        add(enter, end, f"[{index}] was granted {token}", index, rule="effect")
    elif operation.f == "release":
        add(begin, left, f"[{index}] released {token}", index, rule="effect")
        add(left, end, f"[{index}] had released {token}", index, rule="effect")
    else:
        add(enter, end, f"[{index}] saw {token} held", index, rule="effect")
        add(begin, left, f"[{index}] saw {token} held", index, rule="effect")


def _force(graph: nx.DiGraph[Node], window: Window, add: Add) -> bool:
    """Add forced exits until there are no more; whether there were any. The end of the history is the exit of the last
    free interval."""
    moments = _moments(window)
    intervals: list[tuple[Node | None, Node]] = list(pairwise(moments))
    if window.starts:
        intervals.insert(0, (None, moments[0] if moments else NEVER))
    if window.ends and moments:
        intervals.append((moments[-1], NEVER))
    watching = [(one, _refutes(one)) for one in window.operations if one.outcome != "info"]
    found = False
    changed = True
    while changed:
        changed = False
        for operation, refutes in watching:
            haunted = bool(window.unknown) and window.unknown[0] < operation.end
            if refutes is None or (haunted and operation.f == "acquire"):
                continue
            begin, end = Node("invoke", operation.index), Node("end", operation.index)
            for entered, left in intervals:
                if not refutes(entered) or graph.has_edge(left, end):
                    continue
                since: list[Edge] = []
                if entered is not None:
                    if not (graph.has_node(entered) and nx.has_path(graph, entered, begin)):
                        continue
                    since = path_edges(graph, nx.shortest_path(graph, entered, begin))
                rests_on = {operation.index} | _operations(since)
                because = f"[{operation.index}] {_saw(operation)}, so it had to change"
                add(left, end, because, *rests_on, rule="leave", since=since)
                changed = True
        found = found or changed
    return found


def _refutes(operation: Operation) -> Callable[[Node | None], bool] | None:
    """Which intervals, by the moment that enters them (None: the first, free one), an operation can't be within."""
    if operation.outcome == "ok":
        if operation.f == "inspect" and operation.token is None:
            return lambda entered: entered is not None and entered.what == "enter"
        return None
    if operation.f == "acquire" and operation.error == "held":
        return lambda entered: entered is None or entered.what == "exit"
    if operation.f in ("release", "renew") and operation.error == "not-held":
        return lambda entered: entered == Node("enter", operation.token or 0)
    return None


def _saw(operation: Operation) -> str:
    if operation.f == "inspect":
        return "saw the lock free"
    return "saw the lock held" if operation.f == "acquire" else f"saw that {operation.token} did not hold the lock"


def path_edges(graph: nx.DiGraph[Node], path: Sequence[Node]) -> list[Edge]:
    return [graph.edges[before, after]["edge"] for before, after in pairwise(path)]


def _operations(edges: Sequence[Edge]) -> set[int]:
    return {operation for edge in edges for operation in edge.operations}


def shortest_cycle(graph: nx.DiGraph[Node]) -> list[Edge]:
    """The cycle that rests on the fewest operations, and of these the one with the fewest edges; none: empty."""
    best: list[Edge] = []
    for component in nx.strongly_connected_components(graph):
        if len(component) < 2:
            continue
        part = graph.subgraph(component)
        for start in sorted(component):
            for second in sorted(part.successors(start)):
                path = nx.shortest_path(part, second, start)
                cycle = path_edges(graph, [start, *path])
                if not best or _size(cycle) < _size(best):
                    best = cycle
    return best


def _size(cycle: Sequence[Edge]) -> tuple[int, int]:
    return len(_operations(cycle)), len(cycle)


def cycle_of(reason: Duplicate | Refusal, operations: Sequence[Operation]) -> list[Edge]:
    """Why these operations of one key can't all be true, as a cycle."""
    if isinstance(reason, Duplicate):
        return _twins(reason.first, reason.second)
    window = window_of(reason, operations)
    cycle = shortest_cycle(build([window])) if len(window.tokens) <= TOKENS_MAX else []
    return cycle or _counted(reason)


def _counted(refusal: Refusal) -> list[Edge]:
    """The cycle through the moment that has no place, in whichever way acquires of unknown outcome are used."""
    tenures, number = refusal.tenures, refusal.moment // 2
    count = len(refusal.unknown.invokes)
    whichever = f"in whichever way the {count} acquires of unknown outcome are used"
    if number == len(tenures):
        forced_by = refusal.candidates[-1].forced_by
        assert forced_by is not None
        end, index = Node("end", forced_by.index), forced_by.index
        must = Edge(NEVER, end, f"[{index}] {_saw(forced_by)}: {whichever}, none is left", (index,), "counted")
        return [must, Edge(end, NEVER, "no token that was shown comes later", (index,), "last")]
    moment = Node("exit" if refusal.moment % 2 else "enter", tenures[number].token)
    lower = refusal.not_before.by
    if isinstance(lower, Operation):
        begin, index = Node("invoke", lower.index), lower.index
        bounded = Node("enter" if lower.f == "acquire" else "exit", lower.token or 0)
        done = {"acquire": "asked for", "release": "released"}.get(lower.f, "saw")
        cycle = [Edge(begin, bounded, f"[{index}] {done} {lower.token}", (index,), "effect")]
        if bounded != moment:
            cycle.append(Edge(bounded, moment, "tokens are held in their order", (), "tokens"))
        before = f"{whichever}, it comes before [{index}] began"
        return [*cycle, Edge(moment, begin, before, (index,), "counted")]
    shown = tenures[number].first_shown
    assert shown is not None
    end, index = Node("end", shown.index), shown.index
    return [
        Edge(moment, end, f"[{index}] shows {shown.token}", (index,), "effect"),
        Edge(end, moment, f"{whichever}, nobody is left who can have been granted it by then", (index,), "counted"),
    ]


def _twins(one: Operation, other: Operation) -> list[Edge]:
    """Tokens grow, and a token is released once: each of the two would have to come before the other."""
    first, second = Node("end", one.index), Node("end", other.index)
    done = "granted" if one.f == "acquire" else "released"
    because = f"{one.token} was {done} by both, and once only"
    rests_on = (one.index, other.index)
    return [Edge(first, second, because, rests_on, "once"), Edge(second, first, because, rests_on, "once")]
