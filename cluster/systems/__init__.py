"""The lock services that can be tested, by name."""

from __future__ import annotations

from types import MappingProxyType

from cluster.registry import UnknownName, resolve
from cluster.systems.base import System

_BUILTIN = MappingProxyType({"lockd": "cluster.systems.lockd:Lockd"})


def names() -> tuple[str, ...]:
    return tuple(_BUILTIN)


def create(name: str, mutant: str | None = None) -> System:
    """The system called `name`, or `package.module:Class` of the user's own; `mutant` asks for a broken variant.

    The class is called without arguments, or with `mutant=` where one is asked for. Raises UnknownName.
    """
    factory = resolve("system", _BUILTIN, name)
    try:
        system: System = factory() if mutant is None else factory(mutant=mutant)
    except (TypeError, ValueError) as problem:
        what = "no arguments" if mutant is None else f"mutant={mutant!r}"
        raise UnknownName(f"system {name!r} can't be made with {what}: {problem}") from problem
    return system
