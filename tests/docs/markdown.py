"""The fenced blocks and tables of the user documentation, so that tests can try what it says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_FENCE = re.compile(r"^```(.*)$")
_HEADING = re.compile(r"^#+ (.*)$")
_NAME = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Block:
    """`info` is what follows the opening fence, `heading` the nearest one above, `line` that of the fence."""

    file: Path
    line: int
    heading: str
    info: str
    text: str

    def __str__(self) -> str:
        return f"{self.file.name}:{self.line}"


def blocks(file: Path, *infos: str) -> list[Block]:
    """The fenced blocks with one of these infos, in order."""
    found: list[Block] = []
    heading, info, start = "", None, 0
    lines: list[str] = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if info is None:
            if fence:
                info, start, lines = fence[1], number, []
            elif title := _HEADING.match(line):
                heading = title[1]
        elif fence:
            if info in infos:
                found.append(Block(file, start, heading, info, "".join(f"{one}\n" for one in lines)))
            info = None
        else:
            lines.append(line)
    assert info is None, f"{file}:{start}: a block without an end"
    return found


def table(file: Path, heading: str) -> list[list[str]]:
    """The rows, without headers, of the tables under a heading."""
    section = ""
    rows: list[list[str]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if title := _HEADING.match(line):
            section = title[1]
        elif section == heading and line.startswith("|---"):
            rows.pop()
        elif section == heading and line.startswith("|"):
            rows.append([cell.strip() for cell in line.split("|")[1:-1]])
    return rows


def first_column(file: Path, heading: str) -> list[str]:
    """The names in backticks in the first column of these tables, one or more a row."""
    return [name for row in table(file, heading) for name in _NAME.findall(row[0])]
