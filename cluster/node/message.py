"""The base of everything that travels between nodes or is kept on disk."""

from __future__ import annotations

import msgspec


class Message(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """An immutable value, encoded as a tagged array."""
