"""The places where a cluster can run, by name."""

from __future__ import annotations

from types import MappingProxyType

from cluster.places.base import PlaceFactory
from cluster.registry import UnknownName, resolve

_BUILTIN = MappingProxyType({"local": "cluster.places.local:LocalPlace"})


def names() -> tuple[str, ...]:
    return tuple(_BUILTIN)


def load(name: str) -> PlaceFactory:
    """What makes a place called `name`, or `package.module:Class` of the user's own. Raises UnknownName."""
    factory: PlaceFactory = resolve("place", _BUILTIN, name)
    if not callable(factory) or not hasattr(factory, "capabilities"):
        raise UnknownName(f"place {name!r} is no place: it can't be called, or states no capabilities")
    return factory


def node_names(count: int) -> tuple[str, ...]:
    """The names of a cluster's nodes: n1, n2, ..."""
    return tuple(f"n{number}" for number in range(1, count + 1))
