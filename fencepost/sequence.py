"""What happened, as a Mermaid sequence diagram: the operations of a finding, the faults around them, who led."""

from __future__ import annotations

from collections.abc import Sequence

from checker.history import NEMESIS, Event
from checker.verdict import Finding

#: More lines than this don't make a story.
LINES_MAX = 60


def mermaid(events: Sequence[Event], finding: Finding) -> str:
    """The finding's operations, and of the others those on its key between them, as far as there is room."""
    cited = {operation.index for operation in finding.operations}
    first = min(cited, default=0)
    last = max((operation.end or operation.index for operation in finding.operations), default=len(events) - 1)
    lines = ["sequenceDiagram"]
    told: list[str] = []
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
            told.append(f"  {_client(invoke)}-x{_node(invoke)}: {_words(invoke)}")
    if len(told) > LINES_MAX:
        told = [f"  Note over nemesis: {len(told) - LINES_MAX} earlier lines left out", *told[-LINES_MAX:]]
    lines.append("  participant nemesis")
    return "\n".join([*lines, *told]) + "\n"


def _call(invoke: Event, end: Event, *, marked: bool) -> list[str]:
    arrow = {"ok": "-->>", "fail": "-->>", "info": "--x"}[end.type]
    answer = end.type if end.error is None else f"{end.type} {end.error}"
    token = (end.value or {}).get("token")
    if end.type == "ok" and invoke.f in ("acquire", "inspect"):
        answer = f"ok, token {token}" if token is not None else "ok, free"
    lines = [
        f"  {_client(invoke)}->>{_node(invoke)}: {_time(invoke)} {_words(invoke)}",
        f"  {_node(invoke)}{arrow}{_client(invoke)}: {_time(end)} {_clean(answer)}",
    ]
    return [*lines, f"  Note over {_client(invoke)}: part of the finding"] if marked else lines


def _nemesis(event: Event) -> list[str]:
    value = event.value or {}
    if event.f == "leader":
        return [f"  Note over {value.get('node')}: {_time(event)} leads, term {value.get('term')}"]
    if value.get("action") in ("injected", "healed"):
        targets = ", ".join(map(str, value.get("targets") or ()))
        return [f"  Note over nemesis: {_time(event)} {event.f} of {targets} {value['action']}"]
    return []


def _client(event: Event) -> str:
    return f"client_{event.process}"


def _node(event: Event) -> str:
    return event.node or "service"


def _words(event: Event) -> str:
    token = (event.value or {}).get("token")
    return f"{event.f} {_clean(event.key or '')}" + (f" (token {token})" if token is not None else "")


def _time(event: Event) -> str:
    return f"{event.time / 1e9:.3f} s"


def _clean(text: str) -> str:
    """Mermaid ends a message at these."""
    return text.replace(";", ",").replace("#", " ").replace("\n", " ")
