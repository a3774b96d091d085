"""Clojure's data notation, as far as Jepsen's histories use it: a reader that knows lines, and a writer.

Keywords become `Keyword`, a string that compares and hashes as one; vectors and lists become lists, tagged values what
is tagged (`#jepsen.history.Op{...}` is a map). No nesting, however deep, overflows the stack.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any

from checker.events import HistoryError


class Keyword(str):
    """`:name`, without the colon."""

    __slots__ = ()


class Symbol(str):
    """A bare name."""

    __slots__ = ()


_TOKEN = re.compile(
    r"""
    (?P<space>[\s,]+|;[^\n]*)
  | (?P<open>\#\{|[\[({])
  | (?P<close>[\])}])
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<discard>\#_)
  | (?P<special>\#\#(?:-?Inf|NaN))
  | (?P<namespace>\#:{1,2}[\w.*+!?<>=/$&%-]*)
  | (?P<tag>\#[A-Za-z][\w.*+!?<>=/$&%-]*)
  | (?P<char>\\(?:newline|return|space|tab|formfeed|backspace|u[0-9A-Fa-f]{4}|.))
  | (?P<number>[+-]?\d[\w.+/-]*)
  | (?P<keyword>:[^\s,;"()\[\]{}\\]+)
  | (?P<symbol>[^\s,;"()\[\]{}\\#:\d][^\s,;"()\[\]{}\\]*)
    """,
    re.VERBOSE | re.DOTALL,
)

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CHARS = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f", "backspace": "\b"}
_CLOSES = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_SPECIAL = {"##Inf": float("inf"), "##-Inf": float("-inf"), "##NaN": float("nan")}
_NAMES = {"nil": None, "true": True, "false": False}

#: Marks that what comes next is to be dropped.
_DISCARD = object()


class Lines:
    """From positions in a text to lines, counted from 1."""

    def __init__(self, text: str) -> None:
        self._starts = [match.end() for match in re.finditer("\n", text)]

    def at(self, position: int) -> int:
        return bisect_right(self._starts, position) + 1


def read_all(text: str, *, unwrap: bool = False) -> Iterator[tuple[int, Any]]:
    """The values in a text, each with the line where it starts. Raises HistoryError, with the line.

    `unwrap` takes the outermost vectors and lists away, so that what is in them comes one by one.
    """
    lines = Lines(text)
    stack: list[tuple[str, int, list[Any]]] = []
    wrappers: list[tuple[str, int]] = []
    pending = 0
    started = 0
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            what = (
                "a string without an end" if text[position] == '"' else f"unexpected {text[position : position + 20]!r}"
            )
            raise HistoryError(f"not EDN: {what}", line=lines.at(position))
        kind, token = match.lastgroup, match.group()
        here, position = position, match.end()
        if kind in ("space", "tag", "namespace"):
            continue
        if not stack and not pending:
            started = here
        if kind == "discard":
            if stack:
                stack[-1][2].append(_DISCARD)
            else:
                pending += 1
            continue
        if unwrap and not stack and not pending and token in ("[", "("):
            wrappers.append((token, here))
            continue
        if unwrap and not stack and wrappers and token == _CLOSES[wrappers[-1][0]]:
            wrappers.pop()
            continue
        if kind == "open":
            stack.append((token, here, []))
            continue
        if kind == "close":
            if not stack:
                raise HistoryError(f"not EDN: {token!r} closes nothing", line=lines.at(here))
            opened, where, items = stack.pop()
            if _CLOSES[opened] != token:
                raise HistoryError(
                    f"not EDN: {token!r} closes the {opened!r} of line {lines.at(where)}", line=lines.at(here)
                )
            value = _collection(opened, items, lines.at(where))
        else:
            value = _scalar(str(kind), token, lines.at(here) if kind == "number" else 0)
        if stack:
            items = stack[-1][2]
            if items and items[-1] is _DISCARD:
                items.pop()
            else:
                items.append(value)
        elif pending:
            pending -= 1
        else:
            yield lines.at(started), value
    unclosed = [*wrappers, *((opened, where) for opened, where, _ in stack)]
    if unclosed:
        opened, where = unclosed[0]
        raise HistoryError(f"not EDN: the {opened!r} is never closed", line=lines.at(where))


def _collection(opened: str, items: list[Any], line: int) -> Any:
    if opened in ("[", "("):
        return items
    if opened == "#{":
        return sorted(items, key=str)
    if len(items) % 2:
        raise HistoryError("not EDN: a map with a key that has no value", line=line)
    return {_key(name): value for name, value in zip(items[0::2], items[1::2], strict=True)}


def _key(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else write(value)


def _scalar(kind: str, token: str, line: int) -> Any:
    if kind == "keyword":
        return Keyword(token[1:])
    if kind == "number":
        return _number(token, line)
    if kind == "string":
        return _ESCAPE.sub(_unescaped, token[1:-1])
    if kind == "char":
        name = token[1:]
        return _CHARS.get(name) or (chr(int(name[1:], 16)) if len(name) == 5 else name)
    if kind == "special":
        return _SPECIAL[token]
    return _NAMES[token] if token in _NAMES else Symbol(token)


def _unescaped(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if len(code) == 5 else _ESCAPES.get(code, code)


def _number(token: str, line: int) -> int | float:
    plain = token.rstrip("NM")
    try:
        return int(plain)
    except ValueError:
        pass
    try:
        return float(plain)
    except ValueError:
        raise HistoryError(f"not EDN: {token!r} is no number", line=line) from None


def write(value: Any) -> str:
    """A value on one line. Strings are strings; wrap them in Keyword for keywords."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, Symbol):
        return str.__str__(value)
    if isinstance(value, str):
        text = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return '"' + text.replace("\r", "\\r") + '"'
    if isinstance(value, float) and value != value:
        return "##NaN"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return "##Inf" if value > 0 else "##-Inf"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{write(name)} {write(item)}" for name, item in value.items()) + "}"
    if isinstance(value, set | frozenset):
        return "#{" + " ".join(sorted(map(write, value))) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(write, value)) + "]"
    return str(value)
