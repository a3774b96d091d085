"""Decides whether the history of one key fits a lock whose tokens leave no gaps: each grant takes the next number.

Between two tokens that the history shows lie those that nobody saw, and as many of the key's acquires of unknown
outcome were granted them. So the sweep of `checker.sweep` goes on as ever, with three differences:

* A token between two that are shown is a token like these, of which the history says only who found that it did not
  hold the key (a refusal that names it). It was granted to an unknown acquire, as a shown one that no ok acquire owns.
* No ghosts lie between shown tokens, since no number is left for them.
* Before the first shown token t may lie any number m of ghosts (the history need not begin with the service): these are
  the tokens t - m to t - 1. Every m is tried, until more can't let `enter t` be later. After the last one, ghosts
  follow as the sweep needs them; the k-th has the token last + k.

Who finds that a token did not hold the key now contradicts the ghost that has this number, which without counting could
always have had another one. As in the sweep, later moments and fewer unknown acquires are never worse, so for each
number of them one latest moment tells all, and the verdict is exact. It rests on the promise alone that every acquire
of the key is in the history: a grant to somebody who did not record it leaves a gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from checker.facts import Duplicate, Facts, Observations, Tenure
from checker.operations import OPEN, Operation
from checker.sweep import Reach, Refusal, Sweep, advance, keep


def decide(operations: Sequence[Operation]) -> Duplicate | Refusal | None:
    """None when the history of the key (operations in the order of their invokes) fits; else the reason why not."""
    facts = Facts.of(operations)
    return facts.duplicate or sweep_of(facts).run()


def sweep_of(facts: Facts) -> Sweep:
    if not facts.tenures:
        # No number is known, so none can be missing.
        return Sweep(facts)
    return _Dense(replace(facts, tenures=list(_filled(facts))))


def _filled(facts: Facts) -> Iterator[Tenure]:
    """All tokens from the first shown one to the last; no more of those between than can be refused for want of
    somebody who was granted them."""
    left = len(facts.unknown) + 1
    for one, other in pairwise(facts.tenures):
        yield one
        for token in range(one.token + 1, min(other.token, one.token + 1 + left)):
            yield Tenure(token, refusals=facts.refused.get(token))
            left -= 1
    yield facts.tenures[-1]


class _Dense(Sweep):
    def _stay_free(self, reaches: list[Reach], moment: int) -> list[Reach]:
        candidates: list[Reach] = []
        if moment == 0:
            for count in range(len(self._unknown)):
                for reach in reaches:
                    self._before_all(reach, count, candidates)
                if candidates and candidates[-1].latest == self.limits[0].gap:
                    break
            return candidates
        limit = self.limits[moment].gap
        ends = [advance(reach, moment, self._saw_held.leave(reach.latest), limit) for reach in reaches]
        if moment == 2 * len(self.tenures):
            ends = [end for reach in reaches for end in self._after_all(reach, moment)]
            ends.sort(key=lambda end: (end.used, -end.latest))
        for end in ends:
            keep(candidates, end)
        return candidates

    def _before_all(self, reach: Reach, count: int, candidates: list[Reach]) -> None:
        """The first grant that is shown, after so many that are not."""
        limit = self.limits[0].gap
        for token in range(self.tenures[0].token - count, self.tenures[0].token):
            ghost = self._numbered(reach, token, 0, limit)
            if ghost is None:
                return
            reach = ghost
        keep(candidates, advance(reach, 0, self._saw_held.leave(reach.latest), limit))

    def _after_all(self, reach: Reach, moment: int) -> Iterator[Reach]:
        """The ends of the last free interval, with ever more grants after the last one that is shown."""
        token = self.tenures[-1].token
        entry: Reach | None = reach
        while entry is not None:
            end = advance(entry, moment, self._saw_held.leave(entry.latest), OPEN)
            yield end
            if end.latest == OPEN:
                return
            token += 1
            entry = self._numbered(entry, token, moment, OPEN)

    def _numbered(self, reach: Reach, token: int, moment: int, limit: int) -> Reach | None:
        """A ghost under this token, entered and left as late as can be; None where nobody can have been granted it."""
        if reach.used + 1 >= len(self._unknown):
            return None
        taken = advance(reach, moment, self._saw_held.leave(reach.latest), limit)
        if self._unknown[reach.used + 1] > taken.latest:
            return None
        leave = self._saw_free.leave(taken.latest)
        refusals = self._facts.refused.get(token)
        if refusals is not None:
            leave = min(leave, Observations(refusals).leave(taken.latest), key=lambda found: found.gap)
        held = Reach(reach.used + 1, taken.latest, moment, True, taken.forced_by, reach)
        return advance(held, moment, leave, limit, ghost=True)
