"""Finding a system or a place by the name that a scenario gives it.

Built-in ones have short names. Anybody's own is named by where Python finds it, `package.module:Class`; so a new
lock service needs no change here. Beside where Python looks anyway, modules may be in folders named by `look_in`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class UnknownName(ValueError):
    """A scenario names something that can't be found; the message says what would do."""


def is_own(name: str) -> bool:
    """Whether it names something of the user's own."""
    return ":" in name


#: What `look_in` has added to where Python looks.
_added: set[Path] = set()


def look_in(*folders: Path) -> None:
    """Find modules in these folders, too; last, so that what is in them hides nothing that is installed."""
    for folder in map(Path.resolve, folders):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
            _added.add(folder)


def home(module_name: str) -> Path | None:
    """The folder in which a module that is loaded was found; None if it isn't loaded, or from no file."""
    file = getattr(sys.modules.get(module_name), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    return path.parents[module_name.count(".") + (path.name == "__init__.py")]


def hidden(name: str, folder: Path) -> Path | None:
    """The module in `folder` that `name` seems to mean, if one of the same name was loaded from another folder that was
    looked in: Python loads each name once."""
    module_name = name.partition(":")[0].partition(".")[0]
    loaded_from = home(module_name)
    if loaded_from not in _added or loaded_from == folder.resolve():
        return None
    files = (folder / f"{module_name}.py", folder / module_name / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def resolve(what: str, builtin: Mapping[str, str], name: str) -> Any:
    """The object called `name`: a key of `builtin`, or a `module:attribute` itself. Raises UnknownName."""
    path = builtin.get(name, name)
    module_name, colon, attribute = path.partition(":")
    if not (module_name and colon and attribute):
        choice = ", ".join(builtin)
        raise UnknownName(f"no {what} {name!r}: there are {choice}; one of your own is named package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{module_name}.".startswith(f"{problem.name}."):
            raise UnknownName(f"{what} {name!r}: module {module_name} needs {problem.name}: {problem}") from problem
        where = "in the scenario's folder, in the current one, or installed (PYTHONPATH counts)"
        raise UnknownName(f"{what} {name!r}: there is no module {problem.name}; it has to be {where}") from problem
    except Exception as problem:  # a user's module may raise anything while it is imported
        why = f"{type(problem).__name__}: {problem}"
        raise UnknownName(f"{what} {name!r}: module {module_name} can't be imported ({why})") from problem
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise UnknownName(f"{what} {name!r}: module {module_name} has no {attribute}") from None
