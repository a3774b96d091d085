"""The command `fencepost explore`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fencepost.commands import EPILOG, JsonOption, make_console, print_json
from fencepost.exits import Exit, Finished, UserError
from fencepost.sim_commands import app, known_mutant, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster.explore import Bounds, Explored

#: All commands: those of `fencepost.sim_commands` and this one.
__all__ = ["app"]


@app.command(epilog=EPILOG)
def explore(
    bound: Annotated[
        list[str] | None,
        typer.Option("--bound", metavar="NAME=N", help="How much of something, such as timeouts=2; may be repeated."),
    ] = None,
    led: Annotated[
        bool | None, typer.Option("--led/--cold", help="Begin with a leader, or with nodes that have just started.")
    ] = None,
    mutant: Annotated[
        str | None, typer.Option(metavar="NAME", help="A mutant of lockd, in bounds that fit it.")
    ] = None,
    depth: Annotated[int | None, typer.Option(min=1, metavar="N", help="Go no further than so many events.")] = None,
    for_: Annotated[str | None, typer.Option("--for", metavar="DURATION", help="Stop after so long.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write the trace of a violation there, as Mermaid.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the invariants in all states of a small cluster.

    Within bounds, and breadth first: what is found has the shortest trace. Bounds are sizes (nodes, clients, in_flight:
    messages on one link at once) and how often something may happen in a run (timeouts, crashes, losses, beats,
    requests, leases, gone, patience); reads, wait and slow_disks are 0 or 1. Exits with 1 when
    an invariant is violated.
    """
    from dataclasses import replace

    from cluster.explore import Violation, lines, mermaid
    from fencepost import exploring
    from fencepost.store import write_text

    if mutant is not None:
        known_mutant(mutant)
    console = make_console(as_json)
    setting = exploring.setting_for(mutant)
    setting = replace(setting, bounds=_bounded(setting.bounds, bound or ()), led=setting.led if led is None else led)

    def observe(so_far: Explored) -> None:
        console.print(so_far.words(), markup=False, highlight=False, soft_wrap=True)

    console.print(f"bounds      {setting.bounds.words()}", markup=False, highlight=False, soft_wrap=True)
    try:
        space, begin, explored = exploring.run(
            setting, mutant, depth=depth, for_s=None if for_ is None else seconds("--for", for_), observe=observe
        )
    except exploring.BeginningOutOfBounds as problem:
        raise UserError(f"--led: {problem}") from None
    except Violation as violation:
        raise UserError(f"the beginning already violates something ({violation}); begin with --cold") from None
    told = list(lines(space, explored.trace))
    for number, line in enumerate(told, 1):
        if number == len(begin) + 1 and begin:
            console.print("    after that beginning:")
        way = f"{line.source} -> {line.target}" if line.target else line.source
        console.print(f"{number:>4}  {way:<16}{line.words}", markup=False, highlight=False, soft_wrap=True)
    console.print(explored.verdict(), markup=False, highlight=False, soft_wrap=True)
    if out is not None and told:
        write_text(out, mermaid(told))
        console.print(f"written     {out}", markup=False, soft_wrap=True)
    if as_json:
        print_json(
            {
                **explored.to_dict(),
                "bounds": setting.bounds.to_dict(),
                "begin": len(begin),
                "trace": [line._asdict() for line in told],
                **space.nodes.counts,
            }
        )
    raise Finished(Exit.VALID if explored.violation is None else Exit.VIOLATED)


def _bounded(bounds: Bounds, given: Sequence[str]) -> Bounds:
    """Raises UserError."""
    from dataclasses import replace

    known = bounds.to_dict()
    for text in given:
        name, equals, number = text.partition("=")
        if name not in known or not equals or not number.isdecimal():
            raise UserError(f"--bound: found {text!r}; expected NAME=N, with one of {', '.join(known)}")
        value = int(number)
        low, high = bounds.limits(name)
        if not low <= value <= high:
            raise UserError(f"--bound: found {text!r}; {name} is from {low} to {high}")
        chosen: dict[str, Any] = {name: bool(value) if isinstance(known[name], bool) else value}
        bounds = replace(bounds, **chosen)
    return bounds
