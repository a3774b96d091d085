"""YAML files of which every value knows its line and its place, so that whatever is wrong can be pointed at.

Files come from anywhere. They are parsed, never constructed: `yaml.compose` gives a tree of nodes, from which only
plain scalars, lists and mappings are read, by schema. A tag such as `!!python/object` is one more wrong value.
Aliases share nodes, so a few lines can describe a tree of any size; what is visited is bounded by `VALUES_MAX`.

Reading goes on after a problem: a function that reads a value raises `Wrong`, the fields of a mapping collect them.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import yaml

T = TypeVar("T")

BYTES_MAX = 1_000_000
VALUES_MAX = 20_000
_FOUND_CHARACTERS_MAX = 60

#: YAML 1.1 reads 010 as eight and 1:30 as ninety; nobody means that, so neither is taken for a number.
_DECIMAL = re.compile(r"[+-]?(0|[1-9][0-9]{0,19})", re.ASCII)
_NAME = re.compile(r"[\w.-]{1,60}", re.ASCII)

_STR, _INT, _FLOAT, _BOOL, _NULL = (f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null"))


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a file: where it is, what was found there, and what would do instead. `line`
    counts from 1; it is None for what concerns the file as a whole or did not come from it."""

    file: str
    line: int | None
    field: str
    found: str
    remedy: str

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        named = f"{where}: {self.field}" if self.field else where
        return f"{named}: found {self.found}; expected {self.remedy}"


class ScenarioError(Exception):
    """A file that cannot be used. `problems` are all that were found; `str()` has one a line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Wrong(Exception):
    """A value is not what it has to be."""

    def __init__(self, found: str, remedy: str) -> None:
        super().__init__(found, remedy)
        self.found = found
        self.remedy = remedy


@dataclass(slots=True)
class Document:
    """One file while it is read: its name, the problems so far, the lines of the fields seen."""

    file: str
    problems: list[Problem] = field(default_factory=list)
    lines: dict[str, int] = field(default_factory=dict)
    visited: int = 0

    def complain(self, path: str, found: str, remedy: str) -> None:
        """Add a problem with the field `path`, at its line or that of the nearest field around it."""
        self.problems.append(Problem(self.file, self._line(path), path, found, remedy))

    def broken(self, path: str) -> bool:
        """Whether something is already known to be wrong with the field, inside it or around it."""
        return any(_within(problem.field, path) or _within(path, problem.field) for problem in self.problems)

    def finish(self) -> None:
        """Raises ScenarioError if there were problems, in the order of the file."""
        if self.problems:
            raise ScenarioError(sorted(self.problems, key=lambda problem: problem.line or 0))

    def visit(self) -> None:
        self.visited += 1
        if self.visited > VALUES_MAX:
            self.complain("", f"more than {VALUES_MAX} values, aliases included", "a smaller file")
            self.finish()

    def _line(self, path: str) -> int | None:
        while path and path not in self.lines:
            path = _parent(path)
        return self.lines.get(path)


@dataclass(frozen=True, slots=True)
class Item:
    """One value of a file. `path` names it from the root: `nemesis[1].target`."""

    document: Document
    path: str
    node: yaml.Node

    def fields(self, allowed: Collection[str]) -> Fields:
        """The value as a mapping; unknown and repeated fields are reported. Raises Wrong if it is none."""
        if not isinstance(self.node, yaml.MappingNode):
            raise Wrong(self.found(), f"fields: {', '.join(allowed)}")
        items: dict[str, Item] = {}
        for key_node, value_node in self.node.value:
            self.document.visit()
            line = key_node.start_mark.line + 1
            name = Item(self.document, "", key_node).name()
            path = f"{self.path}.{name}" if self.path else name
            if name not in allowed:
                remedy = choice(name, allowed)
                self.document.problems.append(Problem(self.document.file, line, path, "an unknown field", remedy))
            elif name in items:
                remedy = "each field once"
                self.document.problems.append(Problem(self.document.file, line, path, "it again", remedy))
            else:
                self.document.lines[path] = line
                items[name] = Item(self.document, path, value_node)
        return Fields(self.document, self.path, items)

    def items(self, what: str) -> list[Item]:
        """The value as a list of `what`. Raises Wrong if it is none."""
        if not isinstance(self.node, yaml.SequenceNode):
            raise Wrong(self.found(), f"a list of {what}")
        items = []
        for position, node in enumerate(self.node.value):
            self.document.visit()
            path = f"{self.path}[{position}]"
            self.document.lines[path] = node.start_mark.line + 1
            items.append(Item(self.document, path, node))
        return items

    def each(self, what: str, parse: Callable[[Item], T]) -> tuple[T, ...]:
        """The value as a list of `what`; elements that `parse` refuses are reported and left out."""
        values = []
        for item in self.items(what):
            try:
                values.append(parse(item))
            except Wrong as wrong:
                self.document.complain(item.path, wrong.found, wrong.remedy)
        return tuple(values)

    def has_field(self, name: str) -> bool:
        """Whether it is a mapping with such a field."""
        return isinstance(self.node, yaml.MappingNode) and any(key.value == name for key, _ in self.node.value)

    def is_empty(self) -> bool:
        """Whether it is a list without elements."""
        return isinstance(self.node, yaml.SequenceNode) and not self.node.value

    def is_list(self) -> bool:
        return isinstance(self.node, yaml.SequenceNode)

    def is_mapping(self) -> bool:
        return isinstance(self.node, yaml.MappingNode)

    def text(self, remedy: str) -> str:
        """The value as text; `remedy` says what would do. Raises Wrong. A number, a date or a truth value is none."""
        if isinstance(self.node, yaml.ScalarNode) and self.node.tag == _STR:
            return str(self.node.value)
        raise Wrong(self.found(), remedy)

    def integer(self, low: int, high: int) -> int:
        """The value as a decimal integer within bounds. Raises Wrong."""
        remedy = f"a whole number from {low} to {high}"
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != _INT:
            raise Wrong(self.found(), remedy)
        if _DECIMAL.fullmatch(self.node.value) is None or not low <= int(self.node.value) <= high:
            raise Wrong(self.found(), remedy)
        return int(self.node.value)

    def boolean(self) -> bool:
        """The value as a truth value. Raises Wrong."""
        if not isinstance(self.node, yaml.ScalarNode) or self.node.tag != _BOOL:
            raise Wrong(self.found(), "true or false")
        return str(self.node.value).lower() in ("true", "yes", "on")

    def number(self) -> float | None:
        """The value if it is a plain decimal number."""
        if isinstance(self.node, yaml.ScalarNode) and self.node.tag in (_INT, _FLOAT):
            try:
                return float(self.node.value)
            except ValueError:  # YAML has more notations than this; none is needed here
                return None
        return None

    def name(self) -> str:
        """The value as the name of a field, whatever it is."""
        if isinstance(self.node, yaml.ScalarNode) and _NAME.fullmatch(self.node.value):
            return str(self.node.value)
        return self.found()

    def found(self) -> str:
        """The value in a few words."""
        if isinstance(self.node, yaml.SequenceNode):
            return "a list" if self.node.value else "an empty list"
        if isinstance(self.node, yaml.MappingNode):
            return "a mapping"
        if self.node.tag == _NULL:
            return "nothing"
        text = str(self.node.value)
        if len(text) > _FOUND_CHARACTERS_MAX:
            text = text[:_FOUND_CHARACTERS_MAX] + "..."
        return repr(text)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one mapping."""

    document: Document
    path: str
    items: dict[str, Item]

    def __contains__(self, name: str) -> bool:
        return name in self.items

    def get(self, name: str, parse: Callable[[Item], T], default: T) -> T:
        """The field as `parse` reads it; `default` if it is absent, and also if it is wrong, which is reported."""
        item = self.items.get(name)
        if item is None:
            return default
        try:
            return parse(item)
        except Wrong as wrong:
            self.document.complain(item.path, wrong.found, wrong.remedy)
            return default

    def need(self, name: str, parse: Callable[[Item], T], stand_in: T, remedy: str) -> T:
        """As `get`, for a field that must be there; `remedy` says what is missing."""
        if name not in self.items:
            self.document.complain(f"{self.path}.{name}" if self.path else name, "nothing", remedy)
        return self.get(name, parse, stand_in)


def choice(name: str, allowed: Collection[str]) -> str:
    """What to say to somebody who wrote `name` where one of `allowed` is needed."""
    listing = f"one of {', '.join(allowed)}"
    close = difflib.get_close_matches(name, allowed, n=1)
    return f"{listing} (did you mean {close[0]}?)" if close else listing


def one_of(allowed: Collection[str]) -> Callable[[Item], str]:
    """Reads one of some names."""

    def parse(item: Item) -> str:
        name = item.text(f"one of {', '.join(allowed)}")
        if name not in allowed:
            raise Wrong(item.found(), choice(name, allowed))
        return name

    return parse


def open_yaml(path: Path, what: str) -> Item:
    """The root of a YAML file; `what` the file should be ("a scenario"). Raises ScenarioError."""
    text = _read(path, what)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        found = ": ".join(part for part in ("a syntax error", problem.context, problem.problem) if part)
        raise _unusable(path, found, "valid YAML", None if mark is None else mark.line + 1) from None
    except yaml.reader.ReaderError as problem:
        line = text.count("\n", 0, problem.position) + 1
        found = f"the character {text[problem.position]!r}"
        raise _unusable(path, found, "text without control characters", line) from None
    except RecursionError:
        raise _unusable(path, "lists or mappings nested without end", what) from None
    if node is None:
        raise _unusable(path, "an empty file", what)
    return Item(Document(str(path)), "", node)


def _read(path: Path, what: str) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise _unusable(path, "no such file", f"the path of {what}") from None
    except IsADirectoryError:
        raise _unusable(path, "a folder", f"the path of {what}") from None
    except (OSError, ValueError) as problem:  # ValueError: a path with a null byte
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise _unusable(path, f"a file that cannot be read ({reason})", f"the path of {what}") from None
    if len(content) > BYTES_MAX:
        raise _unusable(path, f"more than {BYTES_MAX} bytes", what)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise _unusable(path, f"the byte 0x{content[problem.start]:02x}", "text in UTF-8", line) from None


def _unusable(path: Path, found: str, remedy: str, line: int | None = None) -> ScenarioError:
    return ScenarioError([Problem(str(path), line, "", found, remedy)])


def _parent(path: str) -> str:
    return path[: max(path.rfind("."), path.rfind("["), 0)]


def _within(inner: str, outer: str) -> bool:
    return inner == outer or (inner.startswith(outer) and inner[len(outer)] in ".[")
