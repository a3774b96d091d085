"""The configurations in a node's log: the last one holds, committed or not (Ongaro 2014, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.node.commands import Configure
from cluster.node.members import Members
from cluster.node.raftlog import Entry


@dataclass(frozen=True, slots=True)
class Configured:
    index: int
    members: Members


class Configurations:
    """`members` holds before the first that `note` finds; `index` is where it stands, 0 for the one at the start."""

    def __init__(self, index: int, members: Members) -> None:
        self._all = [Configured(index, members)]

    @property
    def newest(self) -> Configured:
        return self._all[-1]

    def note(self, entry: Entry) -> None:
        """`entry` is now in the log."""
        if isinstance(entry.command, Configure):
            self._all.append(Configured(entry.index, entry.command.members))

    def at(self, index: int) -> Members:
        """The configuration that an entry at `index` stands under."""
        return next(one.members for one in reversed(self._all) if one.index <= index)

    def cut_from(self, index: int) -> None:
        """The log was cut there: what was configured behind never was."""
        while self._all[-1].index >= index:
            self._all.pop()

    def forget_before(self, index: int) -> None:
        """Nobody will ask about entries before `index` any more."""
        while len(self._all) > 1 and self._all[1].index <= index:
            del self._all[0]

    def replace(self, index: int, members: Members, *, keep_later: bool) -> None:
        """A snapshot of `index` says who the members are; of the log only what follows it may be kept."""
        later = [one for one in self._all if one.index > index] if keep_later else []
        self._all = [Configured(index, members), *later]
