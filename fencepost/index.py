"""`store/index.sqlite`: what became of each run, so that listing thousands needs not read all of their files.

The folders are the truth, the index is made from them: a run is read again when its `results.json` has changed, and
forgotten with its folder. An index that is missing, damaged or of another version is made anew; where it can't be, the
list is made without one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from fencepost.store import RunFolder, document

NAME = "index.sqlite"
#: Raised whenever the columns change.
VERSION = 1


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `folder` is relative to the store, `time` when it began (UTC). What a run that has no results would say
    in them is None: it is going on, or its harness was killed."""

    folder: str
    time: str
    scenario: str
    seed: int | None
    place: str | None
    verdict: str | None
    exit_code: int | None


_COLUMNS = ", ".join(field.name for field in fields(Run))


def runs(store: Path) -> list[Run]:
    """The runs of a store, the last one first."""
    try:
        found = _listed(store, store / NAME)
    except sqlite3.OperationalError:  # the store is not ours to write to, or somebody else writes
        found = _listed(store, None)
    except sqlite3.DatabaseError:  # damaged, or another version's
        with contextlib.suppress(OSError):
            (store / NAME).unlink(missing_ok=True)
        found = _listed(store, None)
    return sorted(found, key=lambda run: (run.time, run.folder), reverse=True)


def _listed(store: Path, file: Path | None) -> list[Run]:
    connection = sqlite3.connect(":memory:" if file is None else file)
    try:
        with connection:
            _prepare(connection)
            _update(connection, store)
            return [Run(*row) for row in connection.execute(f"SELECT {_COLUMNS} FROM runs")]
    finally:
        connection.close()


def _prepare(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise sqlite3.DatabaseError(f"version {version}")
    connection.execute(f"CREATE TABLE IF NOT EXISTS runs ({_COLUMNS}, changed_ns, PRIMARY KEY (folder))")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _update(connection: sqlite3.Connection, store: Path) -> None:
    known = dict(connection.execute("SELECT folder, changed_ns FROM runs"))
    there = dict(_folders(store))
    connection.executemany("DELETE FROM runs WHERE folder = ?", [(gone,) for gone in known.keys() - there.keys()])
    for folder, changed_ns in there.items():
        if folder not in known or known[folder] != changed_ns:
            row = (*astuple(_read(store, folder)), changed_ns)
            connection.execute(f"REPLACE INTO runs VALUES ({', '.join('?' * len(row))})", row)


def _folders(store: Path) -> Iterator[tuple[str, int]]:
    """The runs' folders, and when the results of each were written; 0 where there are none."""
    for scenario in store.glob("*/*/scenario.yaml"):
        folder = RunFolder(scenario.parent)
        try:
            changed_ns = folder.results.stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        yield folder.path.relative_to(store).as_posix(), changed_ns


def _read(store: Path, name: str) -> Run:
    folder = RunFolder(store / name)
    results = document(folder.results)
    run = results.get("run")
    run = run if isinstance(run, dict) else {}
    return Run(
        folder=name,
        time=folder.path.name,
        scenario=_of(run, "scenario", str) or folder.path.parent.name,
        seed=_of(run, "seed", int),
        place=_of(folder.recorded(), "place", str),
        verdict=_of(results, "verdict", str),
        exit_code=_of(run, "exit_code", int),
    )


def _of(fields: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    """A field of a file that anybody may have written: None unless it is what it should be, and fits into the index."""
    value = fields.get(name)
    if not isinstance(value, kind) or (isinstance(value, int) and not 0 <= value < 2**63):
        return None
    return value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
