"""What happened, as a message sequence: the operations of a finding, the faults around them, who led.

`tell` picks what belongs to the story; `mermaid` and `svg` write it down. The picture needs nothing else: no script, no
font, no other file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Literal

from checker.history import NEMESIS, Event
from checker.verdict import Finding

#: More lines than this don't make a story.
LINES_MAX = 60


@dataclass(frozen=True, slots=True)
class Line:
    """A message from one to another, or a note over one (`target` None). A message that is `lost` got no answer, or
    nobody knows whether it had an effect."""

    kind: Literal["call", "answer", "lost", "note"]
    source: str
    target: str | None
    text: str


def tell(events: Sequence[Event], finding: Finding) -> list[Line]:
    """The finding's operations, and of the others those on its key between them, as far as there is room."""
    cited = {operation.index for operation in finding.operations}
    first = min(cited, default=0)
    last = max((operation.end or operation.index for operation in finding.operations), default=len(events) - 1)
    told: list[Line] = []
    open_calls: dict[int | str, Event] = {}
    for event in events[: last + 1]:
        if event.process == NEMESIS:
            told += _nemesis(event)
        elif event.type == "invoke":
            open_calls[event.process] = event
        else:
            invoke = open_calls.pop(event.process)
            if invoke.index in cited or (invoke.index >= first and event.key == finding.key):
                told += _call(invoke, event, marked=invoke.index in cited)
    for invoke in open_calls.values():
        if invoke.index in cited:
            told.append(Line("lost", _client(invoke), _node(invoke), _words(invoke)))
    if len(told) > LINES_MAX:
        left_out = Line("note", NEMESIS, None, f"{len(told) - LINES_MAX} earlier lines left out")
        told = [left_out, *told[-LINES_MAX:]]
    return told


def mermaid(events: Sequence[Event], finding: Finding) -> str:
    """As a Mermaid sequence diagram."""
    arrows = {"call": "->>", "answer": "-->>", "lost": "--x"}
    lines = ["sequenceDiagram", f"  participant {NEMESIS}"]
    for line in tell(events, finding):
        who = f"Note over {line.source}" if line.target is None else f"{line.source}{arrows[line.kind]}{line.target}"
        lines.append(f"  {who}: {_clean(line.text)}")
    return "\n".join(lines) + "\n"


#: Of the picture: distance of columns and rows, the margin and the height of the heads (px).
COLUMN, ROW, MARGIN, HEAD = 190, 26, 20, 40
CHARACTERS_MAX = 60


def svg(events: Sequence[Event], finding: Finding) -> str:
    """As a picture (SVG)."""
    lines = tell(events, finding)
    named = {name: None for line in lines for name in (line.source, line.target) if name is not None}
    clients = sorted((name for name in named if name.startswith(_CLIENT)), key=lambda name: int(name[len(_CLIENT) :]))
    columns = [*clients, *sorted(name for name in named if name not in clients and name != NEMESIS), NEMESIS]
    at = {name: MARGIN + COLUMN * (number + 0.5) for number, name in enumerate(columns)}
    width, height = 2 * MARGIN + COLUMN * len(columns), HEAD + ROW * (len(lines) + 1) + MARGIN
    headline = (finding.message.splitlines() or [""])[0]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(headline)}</title>",
        '<defs><marker id="head" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for name, x in at.items():
        parts.append(f'<line x1="{x:g}" y1="{HEAD}" x2="{x:g}" y2="{height - MARGIN}" stroke="#bbb"/>')
        parts.append(f'<text x="{x:g}" y="{HEAD - 14}" text-anchor="middle" font-weight="bold">{escape(name)}</text>')
    for number, line in enumerate(lines, 1):
        parts += _drawn(line, HEAD + ROW * number, at)
    return "\n".join([*parts, "</svg>", ""])


def _drawn(line: Line, y: float, at: dict[str, float]) -> list[str]:
    start = at[line.source]
    text = line.text if len(line.text) <= CHARACTERS_MAX else line.text[: CHARACTERS_MAX - 1] + "…"
    if line.target is None:
        return [
            f'<rect x="{start - COLUMN / 2 + 5:g}" y="{y - 14:g}" width="{COLUMN - 10}" height="19" fill="#fff6d6"/>',
            f'<text x="{start:g}" y="{y:g}" text-anchor="middle" font-size="11">{escape(text)}</text>',
        ]
    end = at[line.target]
    dashes = "" if line.kind == "call" else ' stroke-dasharray="5 3"'
    colour = "#b5532d" if line.kind == "lost" else "#333"
    return [
        f'<line x1="{start:g}" y1="{y:g}" x2="{end:g}" y2="{y:g}" stroke="{colour}"{dashes} marker-end="url(#head)"/>',
        f'<text x="{(start + end) / 2:g}" y="{y - 4:g}" text-anchor="middle" fill="{colour}">{escape(text)}</text>',
    ]


def _call(invoke: Event, end: Event, *, marked: bool) -> list[Line]:
    client, node = _client(invoke), _node(invoke)
    answer = end.type if end.error is None else f"{end.type} {end.error}"
    token = (end.value or {}).get("token")
    if end.type == "ok" and invoke.f in ("acquire", "inspect"):
        answer = f"ok, token {token}" if token is not None else "ok, free"
    lines = [
        Line("call", client, node, f"{_time(invoke)} {_words(invoke)}"),
        Line("lost" if end.type == "info" else "answer", node, client, f"{_time(end)} {answer}"),
    ]
    return [*lines, Line("note", client, None, "part of the finding")] if marked else lines


def _nemesis(event: Event) -> list[Line]:
    value = event.value or {}
    if event.f == "leader":
        return [Line("note", str(value.get("node")), None, f"{_time(event)} leads, term {value.get('term')}")]
    if value.get("action") in ("injected", "healed"):
        targets = ", ".join(map(str, value.get("targets") or ()))
        return [Line("note", NEMESIS, None, f"{_time(event)} {event.f} of {targets} {value['action']}")]
    return []


_CLIENT = "client_"


def _client(event: Event) -> str:
    return f"{_CLIENT}{event.process}"


def _node(event: Event) -> str:
    return event.node or "service"


def _words(event: Event) -> str:
    token = (event.value or {}).get("token")
    return f"{event.f} {event.key or ''}" + (f" (token {token})" if token is not None else "")


def _time(event: Event) -> str:
    return f"{event.time / 1e9:.3f} s"


def _clean(text: str) -> str:
    """Mermaid ends a message at these."""
    return text.replace(";", ",").replace("#", " ").replace("\n", " ")
