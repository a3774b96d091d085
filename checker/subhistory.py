"""The smallest part of a history that is refused for the same reason: a few operations of one key, or of several that
fit one by one, but not together under one order of tokens.

It must be refused for what is wrong with the whole, not for what was left out. So operations that could help those that
are kept stay in: whoever was granted a token that they name; every grant that could explain why somebody saw the lock
held; and where that is to be explained, or a token that nobody is known to have got, every acquire of unknown outcome.
Without the others more is possible, not less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import msgspec

from checker import linearizable, together
from checker.events import Event
from checker.history import OPEN, History, Operation
from checker.options import Options
from checker.settle import settle
from checker.sweep import decide
from checker.verdict import Finding, Results

#: Operations that are looked at, in all attempts for one finding together: about two seconds. What is left is given
#: then, if it is not the least.
EFFORT_MAX = 2_000_000


#: In longer histories these parts are only looked for where somebody asks for them.
OPERATIONS_MAX_FOR_PARTS = 20_000

#: Findings without a key on operations of several.
_OF_SEVERAL_KEYS = ("duplicate", "no-moment-left")

#: Where the data of a finding has it.
SUB_HISTORY = "sub_history"


def with_parts(results: Results, history: History, options: Options) -> Results:
    """The results with `sub_history` in the data of findings of `linearizable`: the invokes of the operations, in the
    history that they are about. Findings on tokens that leave no gaps have none: whatever is left out leaves some."""
    claim = results.claims.get(linearizable.CLAIM)
    if claim is None or not claim.findings:
        return results
    judged = judged_history(history, options)
    found = tuple(_with_part(finding, judged) for finding in claim.findings)
    return replace(results, claims={**results.claims, linearizable.CLAIM: replace(claim, findings=found)})


def _with_part(finding: Finding, history: History) -> Finding:
    named = [cited.index for cited in finding.operations]
    if finding.key is not None:
        part = smallest(history.by_key.get(finding.key, ()), named)
    elif finding.data.get("kind") in _OF_SEVERAL_KEYS:
        part = smallest(history.operations, named, several_keys=True)
    else:
        part = None
    if part is None:
        return finding
    return replace(finding, data={**finding.data, SUB_HISTORY: [operation.index for operation in part]})


def judged_history(history: History, options: Options) -> History:
    """With what could be settled, as the claim looks at it."""
    return settle(history, options.evidence).history if options.settle and options.evidence is not None else history


def smallest(
    operations: Sequence[Operation], cited: Sequence[int], *, several_keys: bool = False
) -> list[Operation] | None:
    """Of the operations of a key, or of `several_keys` whose tokens have one order, as few as are refused, beginning
    with those that a finding cites; None where they are not refused as a whole."""
    refused, complete = (_refused_together, _with_helpers_of_each) if several_keys else (_refused, _with_helpers)
    named = set(cited)
    cited_ones = [one for one in operations if one.index in named]
    last = max((one.end if one.end < OPEN else one.index for one in cited_ones), default=OPEN)
    # What is cited may only make sense together with what happened before, or with all of it.
    for first in (cited_ones, [one for one in operations if one.index < last], operations):
        kept = complete(operations, first)
        if kept and refused(kept):
            return _reduced(kept, refused, complete)
    return None


def _refused(operations: Sequence[Operation]) -> bool:
    return decide(operations) is not None


def _refused_together(operations: Sequence[Operation]) -> bool:
    return isinstance(together.decide(_by_key(operations)), together.Refused)


def _by_key(operations: Sequence[Operation]) -> dict[str, list[Operation]]:
    by_key: dict[str, list[Operation]] = {}
    for one in operations:
        by_key.setdefault(one.key, []).append(one)
    return dict(sorted(by_key.items()))


def _reduced(
    kept: list[Operation],
    refused: Callable[[Sequence[Operation]], bool],
    complete: Callable[[Sequence[Operation], Sequence[Operation]], list[Operation]],
) -> list[Operation]:
    """Leave out ever smaller blocks of what does not help, as long as the rest is refused."""
    effort = 0
    size = max(1, len(kept) // 2)
    while True:
        place, smaller = 0, False
        while place < len(kept):
            fewer = complete(kept, kept[:place] + kept[place + size :])
            effort += len(kept)
            if effort > EFFORT_MAX:
                return kept
            if len(fewer) < len(kept) and refused(fewer):
                kept, smaller = fewer, True
            else:
                place += size
        if size == 1 and not smaller:
            return kept
        size = max(1, size // 2)


def _with_helpers_of_each(operations: Sequence[Operation], kept: Sequence[Operation]) -> list[Operation]:
    """The same for several keys: what another key was granted helps none."""
    kept_of = _by_key(kept)
    found = [one for key, of_key in _by_key(operations).items() for one in _with_helpers(of_key, kept_of.get(key, ()))]
    return sorted(found, key=lambda one: one.index)


def _with_helpers(operations: Sequence[Operation], kept: Sequence[Operation]) -> list[Operation]:
    """In the order of their invokes, with those of `operations` that could help them."""
    indices = {one.index for one in kept}
    shown = {one.token for one in kept if one.outcome == "ok"}
    saw_held = [one for one in kept if one.f == "acquire" and one.outcome == "fail" and one.error == "held"]
    least: int | None = None
    if saw_held:
        # Tokens below one that was shown before the first of these began had ended by then.
        begins = min(one.index for one in saw_held)
        before = [one for one in operations if _shows(one) and one.token is not None and one.end <= begins]
        witness = max(before, key=lambda one: one.token or 0, default=None)
        if witness is not None:
            indices.add(witness.index)
            shown.add(witness.token)
            least = witness.token
    ends = max((one.end for one in saw_held), default=-1)
    owned = {one.token for one in operations if one.f == "acquire" and one.outcome == "ok"}
    ownerless = [one for one in kept if _shows(one) and one.token is not None and one.token not in owned]
    last = max((one.end for one in (*saw_held, *ownerless)), default=-1)

    def helps(one: Operation) -> bool:
        if one.f != "acquire" or one.outcome == "fail":
            return False
        if one.outcome == "info":
            return one.index < last
        return one.token in shown or (one.index < ends and (least is None or (one.token or 0) >= least))

    return [one for one in operations if one.index in indices or helps(one)]


def _shows(one: Operation) -> bool:
    return one.outcome == "ok" and one.f in ("acquire", "release", "renew", "inspect")


def of_finding(finding: Finding, history: History) -> list[Event]:
    """The part of the history that a finding names, as a history of its own; empty where it names none."""
    named = set(finding.data.get(SUB_HISTORY, ()))
    operations = history.operations if finding.key is None else history.by_key.get(finding.key, ())
    return list(events([one for one in operations if one.index in named]))


def events(operations: Sequence[Operation]) -> Iterator[Event]:
    """The operations as a history of their own. One whose outcome was settled completes where that is known by."""
    written = chain.from_iterable(_placed(one) for one in operations)
    for index, (_, _, event) in enumerate(sorted(written, key=lambda placed: placed[:2])):
        yield msgspec.structs.replace(event, index=index)


def _placed(one: Operation) -> Iterator[tuple[int, int, Event]]:
    yield one.index, 1, one.invoke
    if one.completion is not None:
        # What is settled comes before the event at the position by which it is known.
        yield one.completion.index, 1 if one.settled is None else 0, one.completion
