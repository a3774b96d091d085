"""Finding a system or a place by the name that a scenario gives it.

Built-in ones have short names. Anybody's own is named by where Python finds it, `package.module:Class`; so a new
lock service needs no change here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any


class UnknownName(ValueError):
    """A scenario names something that can't be found; the message says what would do."""


def resolve(what: str, builtin: Mapping[str, str], name: str) -> Any:
    """The object called `name`: a key of `builtin`, or a `module:attribute` itself. Raises UnknownName."""
    path = builtin.get(name, name)
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        choice = ", ".join(builtin)
        raise UnknownName(f"no {what} {name!r}: there are {choice}; one of your own is named package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except Exception as problem:  # a user's module may raise anything while it is imported
        why = f"{type(problem).__name__}: {problem}"
        raise UnknownName(f"{what} {name!r}: module {module_name} can't be imported ({why})") from problem
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise UnknownName(f"{what} {name!r}: module {module_name} has no {attribute}") from None
