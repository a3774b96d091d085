"""What the cluster has shown to anybody so far, and what it must therefore never do.

The explorer carries this along with the nodes' states, so that an invariant about two moments ("the same entry is
applied everywhere", "a token is confirmed, and later gone") becomes a check of one step. The invariants are those of
Raft (Ongaro 2014, figure 3.2) and of the lock:

election safety        a term has one leader
log matching           logs that agree on an entry's index and term agree on everything before it
leader completeness    a leader has every entry that was committed in an earlier term
state machine safety   all nodes apply the same commands in the same order, with the results that the lock's
                       specification gives; so tokens strictly increase, a key has one holder, and a token expires once
causes                 a confirmed grant ends by its client's release, or by the end of its lease
acknowledged grants    what a client was told of is in the applied log
one holder             no two clients believe that they hold the key at the same time
reads                  an answer about the lock was true at some moment between the question and the answer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cluster.node.commands import Command, Expire, Expired, Granted, Released, Result
from cluster.node.core import Applied
from cluster.node.locks import LockTable
from cluster.node.raftlog import Entry


class Violation(Exception):
    """`claim` is the invariant's name."""

    def __init__(self, claim: str, message: str) -> None:
        super().__init__(f"{claim}: {message}")
        self.claim, self.message = claim, message


class Committed(NamedTuple):
    """An entry that some node has applied. `entry_term` None: that node's log had it no more; `in_term` is the term of
    the first node to apply it, by then."""

    command: Command
    result: Result
    entry_term: int | None
    in_term: int


class Promises(NamedTuple):
    committed: tuple[Committed, ...] = ()
    leaders: tuple[tuple[int, str], ...] = ()
    confirmed: frozenset[int] = frozenset()  # tokens
    asked_back: frozenset[int] = frozenset()  # tokens that their client has asked to release
    over: frozenset[int] = frozenset()  # tokens whose lease has ended


class Ledger:
    """All promises that were met, by number."""

    def __init__(self, key: str) -> None:
        self._key = key
        self._numbers: dict[Promises, int] = {}
        self._all: list[Promises] = []
        #: By the applied log: who held the key before its first entry, and after each; and the table after the last.
        self._holders: dict[tuple[Committed, ...], tuple[tuple[int | None, ...], LockTable]] = {}
        self._holders[()] = (None,), LockTable()
        self.nothing = self.number(Promises())

    def __getitem__(self, number: int) -> Promises:
        return self._all[number]

    @property
    def met(self) -> Sequence[Promises]:
        return tuple(self._all)

    def number(self, promises: Promises) -> int:
        number = self._numbers.get(promises)
        if number is None:
            number = self._numbers[promises] = len(self._all)
            self._all.append(promises)
        return number

    def holders(self, number: int) -> tuple[int | None, ...]:
        return self._holders[self._all[number].committed][0]

    # ---- what nodes do. All raise Violation.

    def applied(self, number: int, node: str, term: int, log: tuple[int, Sequence[Entry]], one: Applied) -> int:
        promises = self._all[number]
        at = one.index - 1
        if at < len(promises.committed):
            known = promises.committed[at]
            if (known.command, known.result) != (one.command, one.result):
                raise Violation(
                    "state machine safety",
                    f"{node} applied {one.command} with {one.result} at {one.index}, where {known.command} with"
                    f" {known.result} was applied",
                )
            return number
        if at > len(promises.committed):
            raise Violation("state machine safety", f"{node} applied {one.index}, and nobody has the one before")
        return self._new(promises, node, term, log, one)

    def _new(self, promises: Promises, node: str, term: int, log: tuple[int, Sequence[Entry]], one: Applied) -> int:
        holders, table = self._holders[promises.committed]
        held, after = holders[-1], table.copy()
        expected = after.apply(one.command)
        if one.result != expected:
            raise Violation("state machine safety", f"{node} got {one.result} for {one.command}, not {expected}")
        if isinstance(one.result, Released) and held in promises.confirmed and held not in promises.asked_back:
            raise Violation("causes", f"token {held} was released, and its client has not asked for that")
        if isinstance(one.command, Expire) and one.result == Expired(True) and held not in promises.over:
            raise Violation("causes", f"token {held} expired before its lease was over")
        base, entries = log
        behind = one.index - base - 1
        entry_term = entries[behind].term if 0 <= behind < len(entries) else None
        committed = (*promises.committed, Committed(one.command, one.result, entry_term, term))
        self._holders.setdefault(committed, ((*holders, after.holder(self._key)), after))
        return self.number(promises._replace(committed=committed))

    def leads(self, number: int, node: str, term: int, log: tuple[int, Sequence[Entry]]) -> int:
        promises = self._all[number]
        for other_term, other in promises.leaders:
            if other_term == term and other != node:
                raise Violation("election safety", f"{other} and {node} both lead term {term}")
        base, entries = log
        for index, known in enumerate(promises.committed, 1):
            if known.in_term >= term or index <= base or known.entry_term is None:
                continue
            at = index - base - 1
            if at >= len(entries) or (entries[at].term, entries[at].command) != (known.entry_term, known.command):
                has = f"{entries[at].command} of term {entries[at].term}" if at < len(entries) else "nothing"
                raise Violation(
                    "leader completeness",
                    f"{node} leads term {term} and has {has} at {index}, where {known.command} of term"
                    f" {known.entry_term} was committed in term {known.in_term}",
                )
        return self.number(promises._replace(leaders=tuple(sorted({*promises.leaders, (term, node)}))))

    # ---- what clients learn and do

    def confirmed(self, number: int, token: int) -> int:
        promises = self._all[number]
        if token not in promises.over:
            if not any(one.result == Granted(token) for one in promises.committed):
                raise Violation("acknowledged grants", f"token {token} was confirmed, and nobody has applied its grant")
            if self.holders(number)[-1] != token and token not in promises.asked_back:
                raise Violation("acknowledged grants", f"token {token} was confirmed, and no longer holds the key")
        return self.number(promises._replace(confirmed=promises.confirmed | {token}))

    def asked_back(self, number: int, token: int) -> int:
        promises = self._all[number]
        return self.number(promises._replace(asked_back=promises.asked_back | {token}))

    def over(self, number: int, token: int) -> int:
        promises = self._all[number]
        return self.number(promises._replace(over=promises.over | {token}))

    def released(self, number: int, token: int) -> None:
        """A client was told that its release was done."""
        holders = self.holders(number)
        if holders[-1] == token or token not in holders:
            raise Violation("acknowledged grants", f"the release of token {token} was answered, and it holds the key")

    def read(self, number: int, since: int, says: str, holder: int | None) -> None:
        """An answer to a question that was asked when `since` entries were applied: `says` is holder, held, or not
        (which token is not held)."""
        possible = self.holders(number)[since:]
        true = {
            "holder": holder in possible,
            "held": any(one is not None for one in possible),
            "not": any(one != holder for one in possible),
        }[says]
        if not true:
            words = {
                "holder": f"the holder is {holder}",
                "held": "the key is held",
                "not": f"{holder} holds nothing",
            }
            raise Violation("reads", f"an answer says that {words[says]}; meanwhile it was {_listed(possible)}")


def logs_match(one: tuple[int, Sequence[Entry]], other: tuple[int, Sequence[Entry]]) -> str | None:
    """What contradicts log matching in two nodes' logs, each given as the index before it and its entries."""
    terms = {entry.index: entry for entry in other[1]}
    agree_at = None
    for entry in reversed(one[1]):
        twin = terms.get(entry.index)
        if twin is None:
            continue
        if twin.term == entry.term and agree_at is None:
            agree_at = entry
        if agree_at is not None and twin != entry:
            return f"logs agree on entry {agree_at.index} of term {agree_at.term}, and not on entry {entry.index}"
    return None


def _listed(holders: Sequence[int | None]) -> str:
    return ", then ".join("free" if one is None else f"held by {one}" for one in dict.fromkeys(holders))
