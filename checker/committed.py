"""The replicated log as all nodes together show it, and which operation of the history each entry is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec


class Applied(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the replicated log as a node applied it in one of its lives. `command` and `result` say all of it,
    in words; `key` is the lock that it is about, `token` what was granted. By `at` it had been applied: nanoseconds of
    the history's clock, None where that clock can't be compared with the node's."""

    life: int
    index: int
    command: str
    result: str
    key: str | None = None
    token: int | None = None
    term: int = 0
    at: int | None = None

    @property
    def effective(self) -> bool:
        """Whether it granted or released a lock for the one who asked."""
        return self.token is not None or self.result == RELEASED

    def same(self, other: Applied) -> bool:
        return (self.command, self.result, self.term) == (other.command, other.result, other.term)


#: The results of a release and of an expiry that removed a lock.
RELEASED = "Released"
EXPIRED = "Expired"


class Proposal(msgspec.Struct, frozen=True):
    """The entry at `index` of `term`, once it is committed, is what the operation asked for whose invoke is event
    `invoke` of the history."""

    index: int
    term: int
    invoke: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """What nodes say from inside. `applied` is by node, in the order in which each applied; `failures` are what must
    not happen inside, in words. `proposals` are what leaders brought into their logs, of all nodes together. `whole`:
    nothing that a client can have heard of is missing, of no node."""

    applied: Mapping[str, Sequence[Applied]]
    failures: Sequence[str] = ()
    proposals: Sequence[Proposal] = ()
    whole: bool = True


@dataclass(frozen=True, slots=True)
class CommittedLog:
    """`entries` by index, as the node that comes first shows each. `known_by` says by when an entry had been applied
    anywhere. `of` has the entries that an operation brought into the log, by its invoke: one, unless somebody served it
    twice. `agreed`: no two nodes, or lives of one, show an entry differently. `tail`: nothing that a
    client can have heard of comes after the last of them; `whole`: nor is there a hole before it."""

    entries: Mapping[int, Applied]
    known_by: Mapping[int, int]
    of: Mapping[int, Sequence[Applied]]
    agreed: bool
    tail: bool
    whole: bool

    @classmethod
    def of_evidence(cls, evidence: Evidence) -> CommittedLog:
        entries: dict[int, Applied] = {}
        known_by: dict[int, int] = {}
        agreed = True
        for applied in evidence.applied.values():
            for one in applied:
                first = entries.setdefault(one.index, one)
                agreed = agreed and first.same(one)
                if one.at is not None:
                    known_by[one.index] = min(one.at, known_by.get(one.index, one.at))
        return cls(
            dict(sorted(entries.items())),
            known_by,
            _of(evidence.proposals, entries),
            agreed,
            evidence.whole,
            evidence.whole and len(entries) == max(entries, default=0),
        )


def _of(proposals: Sequence[Proposal], entries: Mapping[int, Applied]) -> dict[int, list[Applied]]:
    """An index and a term name an entry; where two claim to have made it, nobody knows who has."""
    makers: dict[tuple[int, int], set[int]] = {}
    for one in proposals:
        makers.setdefault((one.index, one.term), set()).add(one.invoke)
    of: dict[int, list[Applied]] = {}
    for (index, term), invokes in sorted(makers.items()):
        entry = entries.get(index)
        if entry is not None and entry.term == term and len(invokes) == 1:
            of.setdefault(invokes.pop(), []).append(entry)
    return of
