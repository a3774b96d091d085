"""Verifies what a certificate says of all keys together, where tokens grow over all of them: a part of the verifier.

A witness of each key is replayed by `checker.verifier`. What is left is that the grants come in the order of their
tokens, over all keys, and that no two keys show one token.

A contradiction is a cycle of what must come before what (`checker.joint_cycles`), and mostly the few operations of
several keys that it is about: that they fit no order is found by trying all. Operations that it
does not name can't help, for the reasons that hold for one key: to leave out an observation allows more, and so does to
leave out a grant of another key; the grants of its own key that might help it are put back first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from checker import cycles, joint_cycles
from checker.history import OPEN, Operation
from checker.verifier import CONFIGURATIONS_MAX, Rejected, Witness, helpers, observes, shows

#: The holder under a token that nobody saw.
UNSEEN = -1.5


def in_order(keys: Mapping[str, Sequence[Operation]], witnesses: Mapping[str, Witness]) -> None:
    """Raises Rejected if the grants of the witnesses are not in the order of their tokens."""
    grants = sorted(
        (token, enter)
        for witness in witnesses.values()
        for token, enter in zip(witness.token, witness.enter, strict=True)
        if token is not None
    )
    for (token, enter), (other, later) in pairwise(grants):
        if token == other:
            raise Rejected(f"two keys were granted token {token}")
        if enter > later:
            raise Rejected(f"token {other} was granted before token {token}")
    for name, operations in keys.items():
        known = set(witnesses[name].token)
        for operation in operations:
            if shows(operation) and operation.token is not None and operation.token not in known:
                raise Rejected(f"key {name!r}: the witness does not know token {operation.token}")


class State(NamedTuple):
    """For each key who holds it; the largest token granted; what has begun and had no effect yet; for each key how many
    unknown acquires were granted something."""

    holders: tuple[Any, ...]
    last: int | None
    waiting: frozenset[int]
    used: tuple[int, ...]


def contradiction(keys: Mapping[str, Sequence[Operation]], named: Sequence[int], cycle: Sequence[cycles.Step]) -> None:
    """Raises Rejected unless the cycle holds, and the named operations can't all be true; one of the two is needed."""
    if cycle:
        try:
            joint_cycles.verify(keys, cycle)
        except cycles.Wrong as problem:
            raise Rejected(f"the cycle is broken: {problem}") from None
    if (named or not cycle) and not contradict(keys, named):
        raise Rejected("the operations that it names do not contradict each other")


def contradict(keys: Mapping[str, Sequence[Operation]], named: Sequence[int]) -> bool:
    """Whether the operations that begin at these events, of any keys, can't all be true."""
    by_index = {operation.index: operation for operations in keys.values() for operation in operations}
    if missing := [index for index in named if index not in by_index]:
        raise Rejected(f"no operation begins at event {missing[0]}")
    concerned = sorted({by_index[index].key for index in named})
    kept: dict[int, Operation] = {}
    for key in concerned:
        of_key = [by_index[index] for index in named if by_index[index].key == key]
        kept |= {operation.index: operation for operation in [*of_key, *helpers(keys[key], of_key)]}
    unknown = [[o.index for o in keys[key] if o.f == "acquire" and o.outcome == "info"] for key in concerned]
    considered = {i: o for i, o in kept.items() if observes(o) or shows(o)}
    return not _Walk(concerned, considered, unknown).fits()


class _Walk:
    def __init__(self, keys: Sequence[str], operations: Mapping[int, Operation], unknown: Sequence[Sequence[int]]):
        self._place = {key: place for place, key in enumerate(keys)}
        self._operations = operations
        self._unknown = unknown
        owned = {o.token for o in operations.values() if o.f == "acquire" and o.outcome == "ok"}
        self._ownerless = [
            sorted({o.token for o in operations.values() if o.key == key and shows(o) and o.token is not None} - owned)
            for key in keys
        ]
        self._tried = 0

    def fits(self) -> bool:
        count = len(self._place)
        reached = {State((None,) * count, None, frozenset(), (0,) * count)}
        ends = {o.index: o.index for o in self._operations.values()}
        ends |= {o.end: o.index for o in self._operations.values() if o.end != OPEN}
        for event in sorted(ends):
            index = ends[event]
            if event == index:
                reached = {state._replace(waiting=state.waiting | {index}) for state in reached}
                continue
            reached = {state for state in self._closure(reached, event) if index not in state.waiting}
            if not reached:
                return False
        return True

    def _closure(self, reached: set[State], event: int) -> set[State]:
        available = tuple(bisect_left(invokes, event) for invokes in self._unknown)
        frontier = list(reached)
        seen = set(frontier)
        while frontier:
            for state in self._successors(frontier.pop(), available):
                if state not in seen:
                    seen.add(state)
                    frontier.append(state)
                    self._tried += 1
                    if self._tried > CONFIGURATIONS_MAX:
                        raise Rejected("the operations that it names are too many to try all orders")
        return seen

    def _successors(self, state: State, available: Sequence[int]) -> Iterator[State]:
        for place, holder in enumerate(state.holders):
            if holder is not None:
                yield _held(state, place, None)
            elif state.used[place] < available[place]:
                used = (*state.used[:place], state.used[place] + 1, *state.used[place + 1 :])
                yield _held(state, place, UNSEEN)._replace(used=used)
                for unowned in self._ownerless[place]:
                    if state.last is None or unowned > state.last:
                        yield _held(state, place, unowned)._replace(used=used, last=unowned)
        for index in state.waiting:
            operation = self._operations[index]
            place, token = self._place[operation.key], operation.token
            holder = state.holders[place]
            done = state._replace(waiting=state.waiting - {index})
            if operation.outcome != "ok":
                if (holder is not None) if operation.f == "acquire" else (holder != token):
                    yield done
            elif operation.f == "acquire":
                if holder is None and token is not None and (state.last is None or token > state.last):
                    yield _held(done, place, token)._replace(last=token)
            elif holder == token:
                yield _held(done, place, None) if operation.f == "release" else done


def _held(state: State, place: int, holder: Any) -> State:
    return state._replace(holders=(*state.holders[:place], holder, *state.holders[place + 1 :]))
