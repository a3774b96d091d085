"""A node's data folder as bytes: what was in it, and having other contents in its place."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from pathlib import Path

from cluster.places.base import PlaceError

#: What data may come to in one message, as base64. A node of a run has a few megabytes.
ENCODED_BYTES_MAX = 256 * 1024 * 1024


def encode(files: Mapping[str, bytes]) -> dict[str, str]:
    """For a message in JSON."""
    return {name: base64.b64encode(content).decode() for name, content in files.items()}


def decode(files: Mapping[str, str]) -> dict[str, bytes]:
    return {name: base64.b64decode(content) for name, content in files.items()}


def read(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, by its path there. The node may be running: a file that goes away meanwhile is left
    out, and one that is written to is as it was at some moment. Raises PlaceError."""
    files: dict[str, bytes] = {}
    try:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.is_symlink():
                try:
                    files[path.relative_to(folder).as_posix()] = path.read_bytes()
                except FileNotFoundError:
                    continue
    except OSError as problem:
        raise PlaceError(f"{folder} could not be read: {problem.strerror}") from problem
    return files


def replace(folder: Path, files: Mapping[str, bytes]) -> None:
    """Have exactly these files below `folder`. Raises PlaceError."""
    try:
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as problem:
        raise PlaceError(f"{folder} could not be filled: {problem.strerror}") from problem
