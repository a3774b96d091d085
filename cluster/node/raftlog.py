"""The Raft log in memory. Indices start at 1; index 0 stands for "before everything" and has term 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cluster.node.commands import Command, Message


class Entry(Message, frozen=True):
    index: int
    term: int
    command: Command


class RaftLog:
    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._entries: list[Entry] = list(entries)

    @property
    def last_index(self) -> int:
        return len(self._entries)

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else 0

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None when there is no such entry."""
        if index == 0:
            return 0
        return self._entries[index - 1].term if index <= len(self._entries) else None

    def between(self, first: int, last: int) -> Sequence[Entry]:
        """The entries from `first` to `last`, both included."""
        return self._entries[first - 1 : last]

    def append(self, entry: Entry) -> None:
        assert entry.index == self.last_index + 1, (entry.index, self.last_index)
        self._entries.append(entry)

    def cut_from(self, index: int) -> None:
        """Drop the entry at `index` and everything after it."""
        del self._entries[index - 1 :]

    def first_of_term_at(self, index: int) -> int:
        """The first index of the run of entries that share the term of the one at `index`."""
        term = self._entries[index - 1].term
        while index > 1 and self._entries[index - 2].term == term:
            index -= 1
        return index
