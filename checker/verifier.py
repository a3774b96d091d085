"""Verifies certificates: no code in common with what makes them, except for reading a history.

A verdict of the checker need not be believed; its certificate can be verified instead.

`valid` comes with a witness: for every key the intervals in which it was held, by whom, and in which gaps between
events they were entered and left (gap g follows event g). Replaying it takes one pass over the events: at every event
it is known through which states the key went while an operation was open, and so whether the operation can have seen
what it reports.

`invalid` comes with a cycle of what must come before what, which is verified edge by edge (`checker.cycles`), and
with the few operations of a key that contradict each other. That these are operations of the history is
looked up, and that no order of them fits is found by trying all, which is no effort for a few. What remains is that the
operations that were left out can't help:

* Observations, releases and renewals never help: with fewer of them more is possible, as a held lock may expire.
* A grant helps where a kept operation names its token, or saw the lock held and can have done so because of it. So
  these are put back first: the owners of all tokens that kept operations name; every grant but those that were over
  before an operation that saw the lock held was invoked (a larger token had been shown by then), or were asked for only
  after it had completed; and every acquire of unknown outcome.

Sometimes the reason is that acquires of unknown outcome are used up by what they must have been granted for, far and
wide. Then a certificate names no operations, and an edge of its cycle is found by counting from the beginning of the
history, by `reaches`: a second implementation of the sweep, simpler and without explanations.

The certificate is bound to the history by a digest and sealed by one of its own, so that no change to either file goes
unnoticed, even one that would turn a witness into another witness.
"""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from checker import cycles
from checker.history import OPEN, History, Operation, read

FORMAT = "fencepost-certificate-2"

#: Configurations that are tried for one key before a certificate counts as too large to verify.
CONFIGURATIONS_MAX = 200_000


class Rejected(Exception):
    """The certificate proves nothing about this history; the message says why."""


class Witness(msgspec.Struct, forbid_unknown_fields=True):
    """When a key was held: columns of one length. A token is None where nobody saw it, an exit where it never came.

    `acquire` holds the positions of the invokes of the acquires that were granted.
    """

    token: list[int | None]
    enter: list[int]
    exit: list[int | None]
    acquire: list[int]


class Contradiction(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Operations of a key, by the positions of their invokes, that can't all be true; none: look at all of them.
    `cycle`: why, edge by edge. Without a key they are operations of several, under one order of tokens."""

    key: str | None
    operations: list[int]
    cycle: list[cycles.Step] = []


class Certificate(msgspec.Struct, forbid_unknown_fields=True):
    """`history` and `seal` are SHA-256 digests in hexadecimal: of the history file, and of this without the seal.

    With `tokens_span_keys` the verdict is about all keys together, whose tokens have one order."""

    format: str
    claim: str
    verdict: str
    history: str
    witnesses: dict[str, Witness]
    contradictions: list[Contradiction]
    seal: str
    tokens_span_keys: bool


def digest(path: str | os.PathLike[str]) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sealed(certificate: Certificate) -> str:
    """The seal that the certificate should have."""
    bare = msgspec.structs.replace(certificate, seal="")
    return hashlib.sha256(msgspec.json.encode(bare, order="deterministic")).hexdigest()


def load(path: str | os.PathLike[str]) -> Certificate:
    """Raises Rejected for what is no certificate."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Certificate)
    except OSError as problem:
        raise Rejected(f"{path}: cannot be read: {problem.strerror or problem}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise Rejected(f"{path}: not a certificate: {problem}") from None


def verify(history_path: str | os.PathLike[str], certificate: Certificate) -> str:
    """The verdict that the certificate proves. Raises Rejected if it proves none, HistoryError for a bad history."""
    if certificate.format != FORMAT:
        raise Rejected(f"unknown format {certificate.format!r}; {FORMAT!r} is known")
    if certificate.claim != "linearizable":
        raise Rejected(f"certificates are about 'linearizable', this one is about {certificate.claim!r}")
    if sealed(certificate) != certificate.seal:
        raise Rejected("the certificate was changed after it was sealed")
    if digest(history_path) != certificate.history:
        raise Rejected("the certificate is for another history, or the history was changed")
    verify_claims(read(history_path), certificate)
    return certificate.verdict


def verify_claims(history: History, certificate: Certificate) -> None:
    """What `verify` does about the contents alone."""
    # It builds on this module.
    from checker import verify_together

    if certificate.verdict == "valid":
        if certificate.contradictions:
            raise Rejected("a valid history with a contradiction")
        _replay(history, certificate.witnesses)
        if certificate.tokens_span_keys:
            verify_together.in_order(history.by_key, certificate.witnesses)
    elif certificate.verdict == "invalid":
        if certificate.witnesses or not certificate.contradictions:
            raise Rejected("an invalid history needs contradictions, and nothing else")
        for contradiction in certificate.contradictions:
            if contradiction.key is not None:
                _contradict(history, contradiction.key, contradiction)
            elif not certificate.tokens_span_keys:
                raise Rejected("a contradiction between keys that share no order of tokens")
            else:
                verify_together.contradiction(history.by_key, contradiction.operations, contradiction.cycle)
    else:
        raise Rejected(f"the verdict is {certificate.verdict!r}; 'valid' and 'invalid' can be certified")


# A witness


class _Key:
    """A key while its witness is replayed: `passed` moments lie before the event that is looked at."""

    __slots__ = ("moments", "passed", "place_of", "witness")

    def __init__(self, name: str, witness: Witness, acquires: dict[int, Operation]) -> None:
        tokens, enters, exits = witness.token, witness.enter, witness.exit
        if not len(tokens) == len(enters) == len(exits) == len(witness.acquire):
            raise Rejected(f"key {name!r}: columns of different lengths")
        self.witness = witness
        self.moments = [
            gap for enter, left in zip(enters, exits, strict=True) for gap in (enter, OPEN if left is None else left)
        ]
        self.passed = 0
        if any(one > other for one, other in pairwise(self.moments)) or min(self.moments, default=0) < 0:
            raise Rejected(f"key {name!r}: moments out of order")
        if OPEN in self.moments[:-1]:
            raise Rejected(f"key {name!r}: an interval after one that never ends")
        if len(set(witness.acquire)) != len(tokens):
            raise Rejected(f"key {name!r}: an acquire granted twice")
        seen = [token for token in tokens if token is not None]
        if any(one >= other for one, other in pairwise(seen)):
            raise Rejected(f"key {name!r}: tokens that do not grow")
        self.place_of = {token: place for place, token in enumerate(tokens) if token is not None}
        for place, index in enumerate(witness.acquire):
            acquire = acquires.get(index)
            if acquire is None or acquire.f != "acquire" or acquire.key != name or acquire.outcome == "fail":
                raise Rejected(f"key {name!r}: event {index} is no acquire that can have been granted")
            if acquire.outcome == "ok" and acquire.token != tokens[place]:
                raise Rejected(f"key {name!r}: the acquire at {index} got another token")
            if not acquire.index <= enters[place] < acquire.end:
                raise Rejected(f"key {name!r}: the acquire at {index} was not open in gap {enters[place]}")

    def pass_to(self, event: int) -> int:
        moments, passed = self.moments, self.passed
        while passed < len(moments) and moments[passed] < event:
            passed += 1
        self.passed = passed
        return passed


def _replay(history: History, witnesses: dict[str, Witness]) -> None:
    if set(witnesses) != set(history.by_key):
        raise Rejected("the witnesses are not about the keys of the history")
    invokes = {operation.index: operation for operation in history.operations}
    completions = {operation.end: operation for operation in history.operations if operation.outcome != "info"}
    keys = {name: _Key(name, witness, invokes) for name, witness in witnesses.items()}
    for name, operations in history.by_key.items():
        if not _released_once(operations):
            raise Rejected(f"key {name!r}: a token was released twice")
    before: dict[int, int] = {}
    for event in range(len(history.events)):
        if event in invokes:
            operation = invokes[event]
            before[event] = keys[operation.key].pass_to(event)
        elif event in completions:
            operation = completions[event]
            key = keys[operation.key]
            if not _seen(key, operation, before.pop(operation.index), key.pass_to(event)):
                what = f"the {operation.f} at {operation.index}"
                raise Rejected(f"key {operation.key!r}: the witness does not explain {what}")


def _seen(key: _Key, operation: Operation, first: int, last: int) -> bool:
    """Whether the operation can have seen what it reports. It was open during the states from `first` to `last`: 0 is
    free, 1 held under the first token, 2 free again, and so on."""
    f, token = operation.f, operation.token
    place = None if token is None else key.place_of.get(token)
    held = None if place is None else 2 * place + 1
    if operation.outcome == "ok":
        if f == "acquire":
            return place is not None and key.witness.acquire[place] == operation.index
        if f == "release":
            if held is None:
                return False
            # Its moment is the one at which the key is left; nobody else's can be.
            left = key.witness.exit[place] if place is not None else None
            return left is not None and operation.index <= left < operation.end
        if f == "renew" or (f == "inspect" and token is not None):
            return held is not None and first <= held <= last
        if f == "inspect":
            return first < last or first % 2 == 0
        return True
    if not observes(operation):
        return True
    if f == "acquire":
        return first < last or first % 2 == 1
    return first < last or first != held


def _released_once(operations: Iterable[Operation]) -> bool:
    released = [operation.token for operation in operations if operation.f == "release" and operation.outcome == "ok"]
    return len(released) == len(set(released))


# A contradiction


def _contradict(history: History, name: str, contradiction: Contradiction) -> None:
    everything = history.by_key.get(name)
    if everything is None:
        raise Rejected(f"the history has no key {name!r}")
    if contradiction.cycle:
        _go_round(name, everything, contradiction.cycle)
    if not contradiction.operations:
        if not contradiction.cycle and fits(everything):
            raise Rejected(f"key {name!r}: all its operations together fit")
        return
    if not contradicts(everything, contradiction.operations):
        raise Rejected(f"key {name!r}: the operations that it names do not contradict each other")


def _go_round(name: str, everything: Sequence[Operation], cycle: Sequence[cycles.Step]) -> None:
    counted = any(step.rule == "counted" for step in cycle)
    try:
        cycles.verify(everything, cycle, list(reaches(everything)) if counted else ())
    except cycles.Wrong as problem:
        raise Rejected(f"key {name!r}: the cycle is broken: {problem}") from None


def contradicts(everything: Sequence[Operation], named: Sequence[int]) -> bool:
    """Whether the operations of a key that begin at these events can't all be true."""
    by_index = {operation.index: operation for operation in everything}
    if missing := [index for index in named if index not in by_index]:
        raise Rejected(f"no operation of the key begins at event {missing[0]}")
    kept = {index: by_index[index] for index in named}
    kept |= {operation.index: operation for operation in helpers(everything, list(kept.values()))}
    unknown = [o.index for o in everything if o.f == "acquire" and o.outcome == "info"]
    return not _some_order_fits(sorted(kept.values(), key=lambda operation: operation.index), unknown)


def helpers(everything: Sequence[Operation], kept: Sequence[Operation]) -> Iterator[Operation]:
    """The grants that must not be left out, for their effect on what is kept."""
    named = {operation.token for operation in kept if operation.outcome == "ok"}
    saw_held = [operation for operation in kept if observes(operation) and operation.f == "acquire"]
    over = {operation.index: _largest_shown(everything, operation.index) for operation in saw_held}
    for grant in everything:
        if grant.f != "acquire" or grant.outcome != "ok" or grant.token is None:
            continue
        helps = any(
            grant.index < witness.end and (over[witness.index] is None or grant.token >= (over[witness.index] or 0))
            for witness in saw_held
        )
        if helps or grant.token in named:
            yield grant


def _largest_shown(everything: Sequence[Operation], before: int) -> int | None:
    """The largest token that had been shown by then: all smaller ones were over."""
    return max((o.token for o in everything if shows(o) and o.token is not None and o.end <= before), default=None)


_LOCK_OPERATIONS = ("acquire", "release", "renew", "inspect")


def shows(operation: Operation) -> bool:
    return operation.outcome == "ok" and operation.f in _LOCK_OPERATIONS


def observes(operation: Operation) -> bool:
    """Whether it was refused for what it found."""
    found = {"acquire": "held", "release": "not-held", "renew": "not-held"}.get(operation.f)
    return operation.outcome == "fail" and operation.error is not None and operation.error == found


def _some_order_fits(operations: Sequence[Operation], unknown: Sequence[int]) -> bool:
    """Whether any order of the operations fits, with as many of the unknown acquires (their invokes) as there are by
    then. Configurations are (holder, last token, operations that are open and had no effect yet) -> the fewest unknown
    acquires used; a holder of -1 stands for a token that nobody saw."""
    owned = {o.token for o in operations if o.f == "acquire" and o.outcome == "ok"}
    named = {o.token for o in operations if shows(o) and o.token is not None}
    ownerless = sorted(token for token in named if token not in owned)
    considered = [o for o in operations if observes(o) or (o.outcome == "ok" and o.f in _LOCK_OPERATIONS)]
    ends = {o.index: ("invoke", o) for o in considered} | {o.end: ("end", o) for o in considered}
    reached: dict[tuple[Any, Any, frozenset[int]], int] = {(None, None, frozenset()): 0}
    by_index = {o.index: o for o in considered}
    tried = 0
    for event in sorted(ends):
        kind, operation = ends[event]
        # Whatever was invoked before this event may still take effect before it.
        available = bisect_left(unknown, event)
        frontier = list(reached.items())
        while frontier:
            (holder, last, waiting), used = frontier.pop()
            if reached.get((holder, last, waiting), used) < used:
                continue
            for state in _effects(holder, last, waiting, used, available, ownerless, by_index):
                (after, count) = state
                if count < reached.get(after, OPEN):
                    reached[after] = count
                    frontier.append((after, count))
                    tried += 1
                    if tried > CONFIGURATIONS_MAX:
                        raise Rejected("the operations that it names are too many to try all orders")
        index = operation.index
        if kind == "invoke":
            reached = {(h, t, waiting | {index}): used for (h, t, waiting), used in reached.items()}
        else:
            reached = {state: used for state, used in reached.items() if index not in state[2]}
        if not reached:
            return False
    return True


def _effects(
    holder: Any,
    last: Any,
    waiting: frozenset[int],
    used: int,
    available: int,
    ownerless: Sequence[int],
    operations: dict[int, Operation],
) -> Iterator[tuple[tuple[Any, Any, frozenset[int]], int]]:
    if holder is not None:
        yield (None, last, waiting), used
    elif used < available:
        yield (-1.5, last, waiting), used + 1
        for unowned in ownerless:
            if last is None or unowned > last:
                yield (unowned, unowned, waiting), used + 1
    for index in waiting:
        operation, rest = operations[index], waiting - {index}
        f, token = operation.f, operation.token
        if operation.outcome == "ok":
            if f == "acquire" and holder is None and (last is None or (token is not None and token > last)):
                yield (token, token, rest), used
            elif f == "release" and holder == token:
                yield (None, last, rest), used
            elif f in ("renew", "inspect") and holder == token:
                yield (holder, last, rest), used
        elif (holder is not None) if f == "acquire" else (holder != token):
            yield (holder, last, rest), used


# The second sweep

_NONE: Mapping[int, int] = {}


def fits(operations: Sequence[Operation]) -> bool:
    """Whether all operations of a key fit the lock. See `checker.sweep` for why that decides it."""
    grants = [o.token for o in operations if o.f == "acquire" and o.outcome == "ok"]
    if len(grants) != len(set(grants)) or not _released_once(operations):
        return False
    last = list(reaches(operations))[-1]
    return last.moment == cycles.NEVER and OPEN in last.latest.values()


def reaches(
    operations: Sequence[Operation], *, caps: Mapping[int, int] = _NONE, floors: Mapping[int, int] = _NONE
) -> Iterator[cycles.Reach]:
    """The moments of a key in their order, with the latest gap at which each can lie for every number of unknown
    acquires used, and the earliest for any; up to the end of the last free interval, or to the first that can't be.

    `caps` and `floors` are gaps between which tokens were granted, where something else says so than the key does."""
    shown: dict[int, list[Operation]] = {}
    for operation in operations:
        if shows(operation) and operation.token is not None:
            shown.setdefault(operation.token, []).append(operation)
    refused: dict[int | None, list[Operation]] = {}
    for operation in operations:
        if operation.outcome == "fail" and operation.f in ("release", "renew") and operation.error == "not-held":
            refused.setdefault(operation.token, []).append(operation)
    saw_held = _Alarm(o for o in operations if o.f == "acquire" and o.outcome == "fail" and o.error == "held")
    saw_free = _Alarm(o for o in operations if o.f == "inspect" and o.outcome == "ok" and o.token is None)
    unknown = [o.index for o in operations if o.f == "acquire" and o.outcome == "info"]
    tokens = sorted(shown)
    deadlines = [OPEN]
    for token in reversed(tokens):
        released = min((o.end for o in shown[token] if o.f == "release"), default=OPEN)
        deadlines.append(min(deadlines[-1], released))
        capped = caps[token] + 1 if token in caps else OPEN
        deadlines.append(min(deadlines[-1], capped, min(o.end for o in shown[token])))
    deadlines.reverse()
    latest = {0: -1}
    earliest = -1
    for place, token in enumerate(tokens):
        grant = next((o for o in shown[token] if o.f == "acquire"), None)
        latest = _free(latest, saw_held, saw_free, unknown, deadlines[2 * place] - 1)
        if grant is None:
            latest = {used + 1: gap for used, gap in latest.items()}
        else:
            earliest = max(earliest, grant.index)
        earliest = max(earliest, floors.get(token, -1))
        yield cycles.Reach(("enter", token), earliest, latest)
        latest = alive(latest, earliest, unknown)
        if not latest:
            return
        of_token = _Alarm(refused.get(token, ()))
        limit = deadlines[2 * place + 1] - 1
        latest = {used: min(saw_free.by(gap), of_token.by(gap), limit) for used, gap in latest.items()}
        earliest = max([earliest, *(o.index for o in shown[token] if o.f != "acquire")])
        yield cycles.Reach(("exit", token), earliest, latest)
        latest = alive(latest, earliest, unknown)
        if not latest:
            return
    yield cycles.Reach(cycles.NEVER, earliest, _free(latest, saw_held, saw_free, unknown, OPEN))


class _Alarm:
    """By when a state must be left that was entered in some gap, for operations that can't have seen only that."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        ordered = list(operations)
        self._invokes = [operation.index for operation in ordered]
        self._ends = [operation.end for operation in ordered]
        for place in reversed(range(len(ordered) - 1)):
            self._ends[place] = min(self._ends[place], self._ends[place + 1])

    def by(self, gap: int) -> int:
        place = bisect_right(self._invokes, gap)
        return self._ends[place] - 1 if place < len(self._ends) else OPEN


def alive(latest: dict[int, int], earliest: int, unknown: Sequence[int]) -> dict[int, int]:
    """Those numbers of unknown acquires with which the moment has a place, none that only uses up more."""
    found: dict[int, int] = {}
    furthest = -2
    for used, gap in sorted(latest.items()):
        enough = used == 0 or (used <= len(unknown) and unknown[used - 1] <= gap)
        if enough and gap >= earliest and gap > furthest:
            furthest = found[used] = gap
    return found


def _free(
    latest: dict[int, int], saw_held: _Alarm, saw_free: _Alarm, unknown: Sequence[int], limit: int
) -> dict[int, int]:
    """The ends of a free interval, from its entries; a grant that nobody saw may interrupt it, again and again."""
    found: dict[int, int] = {}
    entries = dict(latest)
    furthest = -2
    while entries:
        used = min(entries)
        gap = entries.pop(used)
        end = min(saw_held.by(gap), limit)
        if end <= furthest:
            continue
        furthest = found[used] = end
        if end < limit and used < len(unknown) and unknown[used] <= end:
            after = min(saw_free.by(end), limit)
            entries[used + 1] = max(entries.get(used + 1, -1), after)
    return found
