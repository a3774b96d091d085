"""What a node's disk says, for white-box checks: every entry with the result that applying it gives.

Reads only; the node may be running, stopped or dead. Results follow by replaying from the snapshot, or from nothing;
of entries before the snapshot they are not known any more. That an entry is on disk does not say that it is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.node.commands import Expired, Granted
from cluster.node.locks import LockTable
from cluster.node.snapshots import unpack_state
from cluster.node.storage import Contents, StorageError


def read(folder: Path) -> Contents:
    """Raises StorageError."""
    path = folder / "log"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}; name the data folder of a node") from error
    contents, _ = Contents.read(data, path)
    if contents.node is None:
        raise StorageError(f"{path} is no lockd log")
    return contents


def log_lines(contents: Contents) -> Iterator[dict[str, Any]]:
    """Each entry: index, term, command with its fields, result, token (null unless one was granted)."""
    table, known_from = LockTable(), contents.base.index
    if contents.snapshot is not None:
        table, _ = unpack_state(contents.snapshot.data, LockTable)
        known_from = contents.snapshot.index
    for entry in contents.entries:
        command = entry.command
        result = table.apply(command) if entry.index > known_from else None
        fields = {name: getattr(command, name) for name in command.__struct_fields__ if name != "members"}
        yield {
            "index": entry.index,
            "term": entry.term,
            "command": type(command).__name__,
            **fields,
            "result": None if result is None else result.__struct_config__.tag,
            **({"existed": result.existed} if isinstance(result, Expired) else {}),
            "token": result.token if isinstance(result, Granted) else fields.get("token"),
        }


def snapshot_lines(contents: Contents) -> Iterator[dict[str, Any]]:
    """First the snapshot itself, then each lock in it; nothing when there is none."""
    snapshot = contents.snapshot
    if snapshot is None:
        return
    table, counters = unpack_state(snapshot.data, LockTable)
    voters = list(snapshot.members.voters)
    yield {"index": snapshot.index, "term": snapshot.term, "last_token": table.last_token, "voters": voters, **counters}
    for key, hold in table.held.items():
        yield {"key": key, "token": hold.token, "lease_ms": hold.lease_ms}
