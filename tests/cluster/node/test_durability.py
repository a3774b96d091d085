"""A crash at every write and fsync: nothing acknowledged is lost, nothing is invented, no token comes twice.

The simulated disk keeps, of each file, what was synced, and the writes since then. A crash keeps any of those: none,
all, or all with the last one torn; and forgets a rename that was not synced with its folder.
"""

from __future__ import annotations

import copy
import errno
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cluster.node.commands import Grant, Noop
from cluster.node.files import Files
from cluster.node.members import Members
from cluster.node.messages import Batch, Compaction, HardState, Snapshot
from cluster.node.raftlog import Entry
from cluster.node.storage import Storage, StorageError


class CrashError(Exception):
    """The machine is gone."""


@dataclass
class Inode:
    synced: bytes = b""
    pending: list[Callable[[bytes], bytes]] = field(default_factory=list)

    def content(self) -> bytes:
        data = self.synced
        for change in self.pending:
            data = change(data)
        return data


def overwrite(data: bytes, offset: int) -> Callable[[bytes], bytes]:
    return lambda old: old[:offset].ljust(offset, b"\0") + data + old[offset + len(data) :]


class SimulatedFiles(Files):
    """A disk in memory that crashes before its step number `crash_at`, or fails there with `fail_with`."""

    def __init__(self, crash_at: int | None = None, fail_with: int | None = None) -> None:
        self.names: dict[Path, Inode] = {}
        self.synced_names: dict[Path, Inode] = {}
        self.steps = 0
        self._crash_at, self._fail_with = crash_at, fail_with
        self._open: dict[int, Inode] = {}

    def _step(self) -> None:
        self.steps += 1
        if self.steps == self._crash_at:
            raise OSError(self._fail_with, "injected") if self._fail_with else CrashError

    def open(self, path: Path, *, anew: bool = False) -> int:
        self._step()
        if anew or path not in self.names:
            self.names[path] = Inode()
        self._open[len(self._open)] = self.names[path]
        return len(self._open) - 1

    def read(self, file: int) -> bytes:
        return self._open[file].content()

    def write(self, file: int, data: bytes, offset: int) -> None:
        self._open[file].pending.append(overwrite(data[: len(data) // 2], offset))
        self._step()
        self._open[file].pending[-1] = overwrite(data, offset)

    def sync(self, file: int) -> None:
        self._step()
        inode = self._open[file]
        inode.synced, inode.pending = inode.content(), []

    def rename(self, source: Path, target: Path) -> None:
        self._step()
        self.names[target] = self.names.pop(source)

    def sync_folder(self, folder: Path) -> None:
        self._step()
        self.synced_names = dict(self.names)

    def close(self, file: int) -> None:
        pass

    def after_crash(self, keep: str, names: str) -> SimulatedFiles:
        """What the next start finds: no unsynced write or all, the last one torn; the old names or the new."""
        left = SimulatedFiles()
        for path, inode in (self.names if names == "new" else self.synced_names).items():
            survivor = copy.copy(inode)
            if keep == "none":
                survivor.pending = []
            left.names[path] = Inode(survivor.content())
        left.synced_names = dict(left.names)
        return left


MEMBERS = Members.of_voters({"n1": "", "n2": ""})


def grant(index: int, term: int = 1) -> Entry:
    return Entry(index, term, Grant(f"k{index}", 1000))


def script() -> list[list[Batch]]:
    """Groups of batches, each written with one fsync; a rewrite of a suffix and a compaction are among them."""
    snapshot = Snapshot(4, 2, MEMBERS, b"state" * 10)
    return [
        [Batch(HardState(1, "n1"), ())],
        [Batch(None, (Entry(1, 1, Noop()),)), Batch(None, (grant(2), grant(3)))],
        [Batch(HardState(2, None), (grant(3, term=2), grant(4, term=2)))],
        [Batch(None, (grant(5, term=2),)), Batch(None, (), Compaction(snapshot, 3, 2, (grant(4, 2), grant(5, 2))))],
        [Batch(HardState(3, "n2"), (grant(6, term=3),))],
        [Batch(None, (grant(7, term=3), grant(8, term=3)))],
    ]


State = tuple[HardState, Snapshot | None, int, tuple[Entry, ...]]


def state_after(groups: int, tmp_path: Path) -> State:
    files = SimulatedFiles()
    storage = Storage(tmp_path, "n1", files)
    for group in script()[:groups]:
        storage.write(group)
    storage.close()
    return recovered(files, tmp_path)


def recovered(files: SimulatedFiles, tmp_path: Path) -> State:
    storage = Storage(tmp_path, "n1", files)
    found = storage.found
    storage.close()
    return found.hard_state, found.snapshot, found.base_index, tuple(found.entries)


def run_until_crash(files: SimulatedFiles, tmp_path: Path) -> int:
    """How many groups were acknowledged."""
    done = 0
    with suppress(CrashError), closing(Storage(tmp_path, "n1", files)) as storage:
        for group in script():
            storage.write(group)
            done += 1
    return done


@pytest.mark.parametrize("names", ["old", "new"])
@pytest.mark.parametrize("keep", ["none", "all"])
def test_a_crash_at_every_step_loses_nothing_acknowledged(keep: str, names: str, tmp_path: Path) -> None:
    states = [state_after(groups, tmp_path) for groups in range(len(script()) + 1)]
    crash_at, acknowledged = 1, 0
    while acknowledged < len(script()):
        files = SimulatedFiles(crash_at)
        acknowledged = run_until_crash(files, tmp_path)
        if acknowledged == len(script()):
            break
        found = recovered(files.after_crash(keep, names), tmp_path)
        hard_state, _, base, entries = found
        had, _, had_base, had_entries = states[acknowledged]
        assert hard_state.term >= had.term, crash_at
        if hard_state.term == had.term:
            assert had.vote in (None, hard_state.vote), "a vote once given is remembered"
        next_entries = states[acknowledged + 1][3] if acknowledged < len(script()) else ()
        known = {(entry.index, entry.term) for entry in (*had_entries, *next_entries)}
        assert {(entry.index, entry.term) for entry in entries} <= known, "nothing is invented"
        kept = {(entry.index, entry.term) for entry in entries} | {(i, -1) for i in range(1, base + 1)}
        for entry in had_entries:
            replaced = any(e.index <= entry.index and e.term > entry.term for e in entries)
            assert (entry.index, entry.term) in kept or entry.index <= base or replaced, (crash_at, entry)
        assert base >= had_base
        crash_at += 1
    assert crash_at > 20, "the walk has passed every step"


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_error_at_any_step_reaches_the_node(error: int, tmp_path: Path) -> None:
    """Never a success after a failure: whoever asked for the write learns of it."""
    at = 1
    while True:
        files = SimulatedFiles(at, fail_with=error)
        try:
            with closing(Storage(tmp_path, "n1", files)) as storage:
                for group in script():
                    storage.write(group)
        except (OSError, StorageError) as raised:
            reason = str(raised)
        else:
            assert files.steps < at, "a failure was swallowed"
            return
        assert "injected" in reason
        at += 1
