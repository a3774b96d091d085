"""The Raft log in memory: the entries behind a base, up to which everything is in a snapshot.

Indices start at 1; index 0 stands for "before everything" and has term 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cluster.node.commands import Command
from cluster.node.message import Message


class Entry(Message, frozen=True):
    index: int
    term: int
    command: Command


class RaftLog:
    def __init__(self, entries: Iterable[Entry] = (), base_index: int = 0, base_term: int = 0) -> None:
        self.base_index = base_index
        self.base_term = base_term
        self._entries: list[Entry] = list(entries)

    @property
    def last_index(self) -> int:
        return self.base_index + len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self.base_term

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None when it isn't there, or not any more."""
        at = index - self.base_index
        if at == 0:
            return self.base_term
        return self._entries[at - 1].term if 0 < at <= len(self._entries) else None

    def between(self, first: int, last: int) -> Sequence[Entry]:
        """The entries from `first` to `last`, both included; `first` lies behind the base."""
        assert first > self.base_index, (first, self.base_index)
        return self._entries[first - self.base_index - 1 : max(0, last - self.base_index)]

    def append(self, entry: Entry) -> None:
        assert entry.index == self.last_index + 1, (entry.index, self.last_index)
        self._entries.append(entry)

    def cut_from(self, index: int) -> None:
        """Drop the entry at `index` and everything after it."""
        del self._entries[index - self.base_index - 1 :]

    def compact(self, index: int) -> None:
        """Drop everything up to `index`, which becomes the base."""
        term = self.term_at(index)
        assert term is not None, (index, self.base_index, self.last_index)
        del self._entries[: index - self.base_index]
        self.base_index, self.base_term = index, term

    def start_at(self, index: int, term: int) -> None:
        """Drop everything: a snapshot has replaced it."""
        self._entries.clear()
        self.base_index, self.base_term = index, term

    def first_of_term_at(self, index: int) -> int:
        """The first index, behind the base, of the run of entries that share the term of the one at `index`."""
        at = index - self.base_index
        term = self._entries[at - 1].term
        while at > 1 and self._entries[at - 2].term == term:
            at -= 1
        return self.base_index + at
