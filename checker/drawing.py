"""A finding as a picture (SVG): the operations that it cites as bars over time, and how they contradict each other.

Time is drawn by the order of events, which is what counts; the seconds are written where they are. Nothing but this
module is needed, and the picture needs nothing else either: no script, no font, no other file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from checker.verdict import CitedOperation, Finding

WIDTH = 960
LEFT = 210
ROW = 46
TOP = 70
BAR = 18

_COLOURS = {"ok": "#3f8f5b", "fail": "#b5532d", "info": "#8a8a8a"}

#: What XML has no way to say, and what turns the direction of text around.
_UNSPEAKABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def draw(finding: Finding) -> str:
    """The picture of a finding that cites operations; one without any is just its words."""
    operations = sorted(finding.operations, key=lambda operation: operation.index)
    lines = finding.message.splitlines() or [""]
    edges: Sequence[dict[str, Any]] = finding.data.get("cycle", ())
    places = _places(operations)
    below = TOP + ROW * len(operations) + 20
    height = below + 24 + 20 * len(edges) + 16
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="13" role="img">',
        f"<title>{_text(lines[0])}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="16" y="26" font-size="15" font-weight="bold">{_text(_cut(lines[0], 110))}</text>',
        f'<text x="16" y="46" fill="#555">claim {_text(finding.claim)}</text>',
    ]
    for row, operation in enumerate(operations):
        parts += _bar(operation, TOP + ROW * row, places)
    parts += _constraints(operations, places)
    if edges:
        parts.append(f'<text x="16" y="{below + 14}" font-weight="bold">why this can\'t be</text>')
    for number, edge in enumerate(edges):
        text = f"{edge['before']} comes before {edge['after']}: {edge['because']}"
        parts.append(f'<text x="16" y="{below + 36 + 20 * number}">{_text(_cut(text, 130))}</text>')
    return "\n".join([*parts, "</svg>", ""])


def _places(operations: Sequence[CitedOperation]) -> dict[int, float]:
    """Where each event is drawn: evenly, in their order."""
    events = sorted({at for operation in operations for at in (operation.index, operation.end) if at is not None})
    step = (WIDTH - LEFT - 60) / max(1, len(events))
    return {event: LEFT + step * (number + 0.5) for number, event in enumerate(events)}


def _bar(operation: CitedOperation, y: int, places: dict[int, float]) -> list[str]:
    start = places[operation.index]
    end = WIDTH - 30.0 if operation.end is None else places[operation.end]
    colour = _COLOURS.get(operation.type, "#8a8a8a")
    dashes = ' stroke-dasharray="4 3"' if operation.type == "info" else ""
    token = "" if operation.token is None else f" {operation.token}"
    result = operation.error or operation.type
    where = f" ({operation.node})" if operation.node else ""
    completed = "" if operation.completed_s is None else f"{operation.completed_s:.3f} s"
    middle = y + BAR / 2 + 4
    when = f"[{operation.index}] {operation.invoked_s:.3f} s – {completed}"
    return [
        f'<text x="16" y="{middle:g}">{_text(_cut(f"process {operation.process}{where}", 26))}</text>',
        f'<rect x="{start:.1f}" y="{y}" width="{max(3.0, end - start):.1f}" height="{BAR}" rx="3" fill="{colour}"'
        f' fill-opacity="0.25" stroke="{colour}"{dashes}/>',
        f'<text x="{start + 5:.1f}" y="{middle:g}">{_text(f"{operation.f}{token}: {result}")}</text>',
        f'<text x="{start:.1f}" y="{y + BAR + 13}" font-size="10" fill="#777">'
        f"{_text(when)} · {_text(_cut(operation.role, 80))}</text>",
    ]


def _constraints(operations: Sequence[CitedOperation], places: dict[int, float]) -> list[str]:
    """An arrow from the end of each operation to the next one that begins after it."""
    parts = [
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 L8 4 L0 8 z" fill="#444"/></marker></defs>'
    ]
    for row, one in enumerate(operations):
        later = [
            (other.index, place)
            for place, other in enumerate(operations)
            if one.end is not None and other.index > one.end
        ]
        if one.end is None or not later:
            continue
        index, place = min(later)
        y = TOP + ROW * row + BAR / 2
        other_y = TOP + ROW * place + BAR / 2
        parts.append(
            f'<path d="M{places[one.end]:.1f} {y:g} L{places[index]:.1f} {other_y:g}" stroke="#444" fill="none"'
            ' stroke-width="1" marker-end="url(#tip)"/>'
        )
    return parts


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _text(text: str) -> str:
    """As XML; what it can't hold is written as Python writes it, such as \\x1b."""
    return html.escape(_UNSPEAKABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text))
