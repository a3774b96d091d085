"""Which versions are installed."""

from __future__ import annotations

from importlib import metadata


def own() -> str:
    return of("fencepost") or "unknown"


def of(library: str) -> str | None:
    """None if it isn't installed."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
