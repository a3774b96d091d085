from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.node.commands import Grant
from cluster.node.members import Members
from cluster.node.messages import Batch, Compaction, HardState, Snapshot
from cluster.node.raftlog import Entry
from cluster.node.storage import ALLOCATE_BYTES, MARK, ZEROS_BEHIND, Storage, StorageError


def entry(index: int, term: int = 1) -> Entry:
    return Entry(index, term, Grant(f"key-{index}", 1000))


def fill(folder: Path, *batches: Batch) -> None:
    storage = Storage(folder, "n1")
    storage.write(batches)
    storage.close()


def reopen(folder: Path) -> tuple[HardState, list[Entry]]:
    storage = Storage(folder, "n1")
    storage.close()
    return storage.found.hard_state, list(storage.found.entries)


def test_a_new_folder_is_empty_and_what_was_written_comes_back(tmp_path: Path) -> None:
    assert reopen(tmp_path / "data") == (HardState(0, None), [])
    fill(tmp_path / "data", Batch(HardState(3, "n2"), (entry(1), entry(2))), Batch(HardState(4, None), ()))
    assert reopen(tmp_path / "data") == (HardState(4, None), [entry(1), entry(2)])


def test_an_entry_replaces_everything_from_its_index_on(tmp_path: Path) -> None:
    fill(tmp_path, Batch(None, (entry(1), entry(2), entry(3))), Batch(None, (entry(2, term=2),)))
    assert reopen(tmp_path)[1] == [entry(1), entry(2, term=2)]


def test_the_log_grows_past_what_was_allocated(tmp_path: Path) -> None:
    big = [Entry(i, 1, Grant("k" * 500, 1000)) for i in range(1, 2 * ALLOCATE_BYTES // 500)]
    fill(tmp_path, Batch(None, tuple(big[:1000])), Batch(None, tuple(big[1000:])))
    assert reopen(tmp_path)[1] == big


@pytest.mark.parametrize("lost", range(1, 60, 3))
def test_a_torn_tail_is_cut_and_never_comes_back(tmp_path: Path, lost: int) -> None:
    fill(tmp_path, Batch(HardState(1, None), (entry(1), entry(2))))
    log = tmp_path / "log"
    whole = log.read_bytes().rstrip(b"\0")
    log.write_bytes(whole[: len(whole) - lost] + bytes(1000))
    state, entries = reopen(tmp_path)
    assert entries in ([entry(1)], [])
    assert state == HardState(1, None)
    fill(tmp_path, Batch(None, (entry(len(entries) + 1, term=5),)))
    assert reopen(tmp_path)[1] == [*entries, entry(len(entries) + 1, term=5)]


@settings(max_examples=60)
@given(data=st.data())
def test_whatever_the_tail_holds_only_whole_records_count(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("log")
    fill(folder, Batch(HardState(2, "n3"), tuple(entry(i) for i in range(1, 6))))
    log = folder / "log"
    whole = log.read_bytes().rstrip(b"\0")
    cut = data.draw(st.integers(40, len(whole)))
    log.write_bytes(whole[:cut] + data.draw(st.binary(max_size=64)) + bytes(ZEROS_BEHIND))
    state, entries = reopen(folder)
    assert entries == [entry(i) for i in range(1, len(entries) + 1)]
    assert state in (HardState(2, "n3"), HardState(0, None))


@pytest.mark.parametrize("flipped", range(60, 140, 7))
def test_damage_before_what_was_synced_later_stops_the_node(tmp_path: Path, flipped: int) -> None:
    fill(tmp_path, Batch(HardState(1, None), (entry(1), entry(2))), Batch(None, (entry(3),)))
    end = len((tmp_path / "log").read_bytes().rstrip(b"\0"))
    fill(tmp_path, Batch(None, (entry(4),)))
    damaged = bytearray((tmp_path / "log").read_bytes())
    assert flipped < end
    damaged[flipped] ^= 0x10
    (tmp_path / "log").write_bytes(damaged)
    with pytest.raises(StorageError, match=r"is damaged at byte|can't read"):
        reopen(tmp_path)
    assert (tmp_path / "log").read_bytes() == damaged, "it is left as it is"


@pytest.mark.parametrize("records", [1, ALLOCATE_BYTES // 400])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.99, 1.0])
def test_a_file_that_was_cut_short_stops_the_node(tmp_path: Path, records: int, kept: float) -> None:
    """Also where it ends with a whole record, so that the rest looks like a log."""
    fill(tmp_path, *(Batch(HardState(i, None), (Entry(i, 1, Grant("k" * 400, 1000)),)) for i in range(1, records + 1)))
    used = len((tmp_path / "log").read_bytes().rstrip(b"\0"))
    os.truncate(tmp_path / "log", int(used * kept))
    with pytest.raises(StorageError, match="was cut short"):
        reopen(tmp_path)


@pytest.mark.parametrize("at", [30, 60, -10])
def test_damage_to_a_log_that_was_just_begun_anew_stops_the_node(tmp_path: Path, at: int) -> None:
    snapshot = Snapshot(2, 1, Members.of_voters({"n1": ""}), b"state" * 20)
    fill(tmp_path, Batch(HardState(1, None), (entry(1), entry(2))), Batch(None, (), Compaction(snapshot, 2, 1, ())))
    damaged = bytearray((tmp_path / "log").read_bytes())
    damaged[at if at > 0 else len(damaged.rstrip(b"\0")) - len(MARK) + at] ^= 1
    (tmp_path / "log").write_bytes(damaged)
    with pytest.raises(StorageError, match="is damaged at byte"):
        reopen(tmp_path)


def test_two_nodes_cannot_share_a_folder(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "n1")
    with pytest.raises(StorageError, match="in use by another node"):
        Storage(tmp_path, "n1")
    storage.close()
    with pytest.raises(StorageError, match="belongs to node n1, not to n2"):
        Storage(tmp_path, "n2")


def test_a_file_of_somebody_else_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("2026-01-01 a web server's log\n")
    with pytest.raises(StorageError, match="is no lockd log"):
        Storage(tmp_path, "n1")
    assert (tmp_path / "log").read_text() == "2026-01-01 a web server's log\n"


def test_a_folder_that_is_refused_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("not ours")
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(5):
        with pytest.raises(StorageError, match="is no lockd log"):
            Storage(tmp_path, "n1")
    after = len(os.listdir("/proc/self/fd")) if before else 0
    assert after == before


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot use data folder"):
        Storage(tmp_path / "file" / "data", "n1")


def test_a_hole_in_the_log_stops_the_node(tmp_path: Path) -> None:
    fill(tmp_path, Batch(None, (entry(1), entry(3))))
    with pytest.raises(StorageError, match="a hole before entry 3"):
        reopen(tmp_path)


def test_an_error_of_the_disk_is_not_swallowed(tmp_path: Path) -> None:
    storage = Storage(tmp_path, "n1")
    os.close(storage._file)
    with pytest.raises(OSError, match="descriptor"):
        storage.write([Batch(None, (entry(1),))])
