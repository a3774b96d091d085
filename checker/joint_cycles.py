"""Verifies a cycle that goes through several keys, whose tokens have one order: a part of `checker.verifier`.

What `checker.cycles` says of one key holds of each. One rule is new, and some reach further:

- `grants`: a larger token was granted later, whatever its key
- `order`: operations of any keys
- `once`: two keys that were granted one token, too
- `counted`: as far as a key can tell when the moments of all others are as late as they can be. They are counted again
  from the beginning of the history, each key by itself, and then once more as long as this makes the grants of another
  one earlier (`reaches`)

A state is left, or a token granted to somebody, within its own key; what shows it may go through others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from checker import verifier
from checker.cycles import NEVER, Key, Point, Reach, Step, Wrong, closed, words
from checker.history import OPEN, Operation

Keys = Mapping[str, Sequence[Operation]]


def verify(keys: Keys, cycle: Sequence[Step]) -> None:
    """Raises Wrong unless the cycle is closed and each edge of it holds."""
    closed(cycle)
    found = reaches(keys) if any(_counts(step) for step in cycle) else {}
    joint = _Joint(keys, found)
    for step in cycle:
        joint.check(step)


def _counts(step: Step) -> bool:
    return step.rule == "counted" or any(_counts(one) for one in step.since)


class _Joint:
    def __init__(self, keys: Keys, found: Mapping[str, Sequence[Reach]]) -> None:
        self._by_index = {operation.index: operation for operations in keys.values() for operation in operations}
        self._keys = {
            name: Key(operations, found.get(name, ()), known=self._by_index, check=self.check)
            for name, operations in keys.items()
        }
        self._key_of: dict[int, str | None] = {}
        for token, name in _shown(keys):
            # A token that two keys show is granted at one moment, but is none of either's in particular.
            self._key_of[token] = name if self._key_of.get(token, name) == name else None

    def check(self, step: Step) -> None:
        if step.rule == "grants":
            if step.since or not self._in_order(step.before, step.after):
                raise Wrong(f"{words(step.before)} need not come before {words(step.after)} by the rule 'grants'")
        elif not (step.rule == "once" and self._shared(step.before, step.after) and not step.since):
            self._keys[self._concerned(step)].check(step)

    def _in_order(self, before: Point, after: Point) -> bool:
        known = before[1] in self._key_of and after[1] in self._key_of
        return before[0] == after[0] == "enter" and known and before[1] < after[1]

    def _shared(self, before: Point, after: Point) -> bool:
        one, other = self._by_index.get(before[1]), self._by_index.get(after[1])
        if one is None or other is None or before[0] != "end" or after[0] != "end":
            return False
        shown = verifier.shows(one) and verifier.shows(other) and one.token is not None
        return shown and one.token == other.token and one.key != other.key

    def _concerned(self, step: Step) -> str:
        """The key whose edge it is: that of its token if it names one; of what an operation did or saw, that of it."""
        points = (step.before, step.after)
        moments = [self._key_of.get(of) for what, of in points if what in ("enter", "exit")]
        events = [self._by_index[of].key for what, of in points if what in ("invoke", "end") and of in self._by_index]
        for name in (*events, *moments) if step.rule in ("leave", "effect") else (*moments, *events):
            if name is not None:
                return name
        raise Wrong(f"no key has {words(step.before)} and {words(step.after)}")


def _shown(keys: Keys) -> Iterator[tuple[int, str]]:
    for name, operations in keys.items():
        for operation in operations:
            if verifier.shows(operation) and operation.token is not None:
                yield operation.token, name


def reaches(keys: Keys) -> dict[str, list[Reach]]:
    """For each key what `verifier.reaches` says of it, when its grants are bounded by those of all other keys; up to
    where nothing changes any more, or to the first key that has no place for one of its moments."""
    shown: dict[str, dict[int, list[Operation]]] = {name: {} for name in keys}
    for name, operations in keys.items():
        for operation in operations:
            if verifier.shows(operation) and operation.token is not None:
                shown[name].setdefault(operation.token, []).append(operation)
    order = sorted((token, name) for name, tokens in shown.items() for token in tokens)
    floors = _floors(order, shown)
    unknown = {name: [o.index for o in keys[name] if o.f == "acquire" and o.outcome == "info"] for name in keys}
    tops: dict[tuple[int, str], int] = {}
    found: dict[str, list[Reach]] = {}
    while True:
        caps = _caps(order, shown, tops)
        calm = True
        for name, operations in keys.items():
            if name in found and all(caps[token, name] >= tops[token, name] for token in shown[name]):
                continue
            calm = False
            of_key = {token: caps[token, name] for token in shown[name]}
            lowest = {token: floors[token, name] for token in shown[name]}
            found[name] = list(verifier.reaches(operations, caps=of_key, floors=lowest))
            last = found[name][-1]
            if last.moment != NEVER or OPEN not in last.latest.values():
                return found
            for reach in found[name]:
                if reach.moment[0] == "enter":
                    alive = verifier.alive(reach.latest, reach.earliest, unknown[name])
                    tops[reach.moment[1], name] = max(alive.values())
        if calm:
            return found


def _caps(
    order: Sequence[tuple[int, str]],
    shown: Mapping[str, Mapping[int, Sequence[Operation]]],
    tops: Mapping[tuple[int, str], int],
) -> dict[tuple[int, str], int]:
    """For each token the last gap at which it can have been granted, as no larger one was granted before it."""
    caps: dict[tuple[int, str], int] = {}
    of_key: dict[str, int] = {}
    of_all = OPEN
    for token, name in reversed(order):
        own = shown[name][token]
        released = min((o.end - 1 for o in own if o.f == "release"), default=OPEN)
        first = min(o.end - 1 for o in own)
        limit = min(of_all, of_key.get(name, OPEN), released, first, tops.get((token, name), OPEN))
        caps[token, name] = of_key[name] = of_all = limit
    return caps


def _floors(
    order: Sequence[tuple[int, str]], shown: Mapping[str, Mapping[int, Sequence[Operation]]]
) -> dict[tuple[int, str], int]:
    """For each token the first gap at which it can have been granted, as all smaller ones were granted before it."""
    floors: dict[tuple[int, str], int] = {}
    of_key: dict[str, int] = {}
    of_all = -1
    for token, name in order:
        own = shown[name][token]
        granted = max((o.index for o in own if o.f == "acquire"), default=-1)
        floors[token, name] = of_all = max(of_all, of_key.get(name, -1), granted)
        of_key[name] = max([of_all, *(o.index for o in own if o.f != "acquire")])
    return floors
