"""The commands of `fencepost` that need the simulation: fuzz, shrink, mutants."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fencepost.commands import EPILOG, JsonOption, StoreOption, app, make_console, print_json
from fencepost.exits import Exit, Finished, UserError

if TYPE_CHECKING:
    from rich.console import Console

    from fencepost.engines import Engine
    from fencepost.fuzz import Ran, Tally
    from fencepost.matrix import Row
    from fencepost.scenario import Scenario

#: All commands: those of `fencepost.commands` and these.
__all__ = ["app"]

#: Lines of progress come no more often, in seconds.
PROGRESS_S = 2.0

EngineOption = Annotated[
    str | None,
    typer.Option("--engine", metavar="ADDRESS", help="Run on a Dask cluster: dask://HOST:PORT of its scheduler."),
]

JobsOption = Annotated[
    int | None, typer.Option("--jobs", min=1, metavar="N", help="Processes that run seeds; without it, one per core.")
]

mutants_app = typer.Typer(help="Nodes that are broken on purpose: are they found?", no_args_is_help=True)
app.add_typer(mutants_app, name="mutants")


@app.command(epilog=EPILOG)
def fuzz(
    scenarios: Annotated[list[Path], typer.Argument(metavar="SCENARIO...", help="Scenario files (YAML).")],
    seeds: Annotated[str | None, typer.Option(metavar="A..B", help="The seeds, both ends included.")] = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Seeds from 0 on, for so long, such as 10m.")
    ] = None,
    jobs: JobsOption = None,
    engine: EngineOption = None,
    guide: Annotated[
        bool | None,
        typer.Option("--guide/--no-guide", help="Every second run is a change of one that reached something new."),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Collect violations, don't stop at the first.")
    ] = False,
    mutant: Annotated[str | None, typer.Option(metavar="NAME", help="Run a mutant of lockd instead.")] = None,
    folder: StoreOption = Path("store"),
    as_json: JsonOption = False,
) -> None:
    """Look for violations in the simulation, with many seeds.

    Each seed runs a variant of the scenario: sizes, leases and faults are drawn from it. What violates a claim is run
    once more into a folder of its own, with the YAML that `repro` and `shrink` take. The exit code is that of the worst
    run; too little coverage is no matter here. With --for, every second run is a change of an earlier one that reached
    something new in the nodes; with --seeds only if you ask for it with --guide.
    """
    import itertools

    from fencepost import engines, runner, variants
    from fencepost import fuzz as fuzzing

    console = make_console(as_json)
    if (seeds is None) == (for_ is None):
        raise UserError("say how many seeds: either --seeds A..B or --for DURATION")
    try:
        chosen: Iterable[int] = itertools.count() if seeds is None else variants.seeds_of(seeds)
    except ValueError as problem:
        raise UserError(f"--seeds: found {seeds!r}; expected {problem}") from None
    loaded = [_with_mutant(runner.load(path), mutant) for path in scenarios]
    planned = fuzzing.jobs(loaded, chosen)
    guided = seeds is None if guide is None else guide
    progress = _Progress(console)
    where = _engine(engine, jobs)
    try:
        tally = fuzzing.fuzz(
            fuzzing.Guide(planned) if guided else planned,
            where.open,
            where.width,
            keep_going=keep_going,
            for_s=None if for_ is None else seconds("--for", for_),
            observe=progress.observe,
        )
    except engines.EngineError as problem:
        raise UserError(str(problem)) from None
    progress.line(tally)
    for ran in tally.failed[:5]:
        console.print(f"failed      {ran.scenario}, seed {ran.seed}: {ran.failure}", markup=False, soft_wrap=True)
    for ran in sorted(tally.found, key=lambda one: one.seed)[:5]:
        scenario = ran.plan or variants.variant(next(one for one in loaded if one.name == ran.scenario), ran.seed)
        console.print(
            f"violation   {ran.scenario}, seed {ran.seed}: {', '.join(ran.violated)}", markup=False, soft_wrap=True
        )
        runner.run(scenario, folder, console)
    if as_json:
        print_json(tally.to_dict())
    raise Finished(tally.exit)


@app.command(epilog=EPILOG)
def shrink(
    scenario: Annotated[Path, typer.Argument(metavar="FILE", help="A failing run's repro.yaml, or a scenario file.")],
    claim: Annotated[str | None, typer.Option(metavar="CLAIM", help="The claim that must stay violated.")] = None,
    mutant: Annotated[str | None, typer.Option(metavar="NAME", help="Run a mutant of lockd instead.")] = None,
    seed: Annotated[int | None, typer.Option(help="Instead of the file's seed.")] = None,
    for_: Annotated[str, typer.Option("--for", metavar="DURATION", help="Stop after so long.")] = "2m",
    jobs: JobsOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Where the result goes; else FILE.min.yaml here.")
    ] = None,
) -> None:
    """Make a failing scenario as small as it gets, in the simulation.

    Fewer and shorter faults, fewer nodes, clients, keys and operations, less time, while the same claim stays violated.
    The result is a scenario that `repro` runs, and beside it the sequence of what happened (Mermaid and SVG). Ctrl-C
    ends it with the smallest one so far. Exits with 0 when there is one, with 2 when nothing is violated to begin with.
    """
    from fencepost import runner, sequence
    from fencepost import scenario as scenarios
    from fencepost import shrink as shrinking
    from fencepost.store import write_text

    logging.disable(logging.CRITICAL)
    console = make_console(False)
    plan = _with_mutant(runner.load(scenario, seed=seed), mutant)
    started = time.monotonic()

    def observe(step: shrinking.Step) -> None:
        assert shrinker.best is not None
        words = f"{time.monotonic() - started:6.1f} s  {step.what:<20}{shrinking.size(shrinker.best)}"
        console.print(words, markup=False, highlight=False, soft_wrap=True)

    where = _engine(None, jobs)
    pool = where.open()
    try:
        shrinker = shrinking.Shrinker(claim, observe, seconds("--for", for_), pool, where.width(pool))
        best = shrinker.shrink(plan)
    except shrinking.NothingToShrink as problem:
        console.print(f"nothing to shrink: {problem}", markup=False, soft_wrap=True)
        raise Finished(Exit.UNKNOWN) from None
    except KeyboardInterrupt:
        if shrinker.best is None:
            raise
        best = shrinker.best
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    target = out or Path(f"{scenario.stem}.min.yaml")
    small = best.scenario
    write_text(target, scenarios.dump(small))
    assert best.results is not None
    finding = best.results.claims[small.expect.invalid[0]].findings[0]
    pictures = {".mmd": sequence.mermaid, ".svg": sequence.svg}
    for suffix, draw in pictures.items():
        write_text(target.with_suffix(suffix), draw(best.events, finding))
    console.print(f"\n{finding.message}\n", markup=False, highlight=False, soft_wrap=True)
    took = time.monotonic() - started
    console.print(f"smallest    {shrinking.size(best)}, after {shrinker.tried} runs in {took:.0f} s", markup=False)
    beside = " and ".join(str(target.with_suffix(suffix)) for suffix in pictures)
    console.print(f"written     {target}, {beside}", markup=False, soft_wrap=True)
    raise Finished(Exit.VALID)


@mutants_app.command("list")
def mutants_list(as_json: JsonOption = False) -> None:
    """List the mutants and what is wrong with each."""
    from cluster.mutants import MUTANTS

    if as_json:
        print_json({name: mutant.description for name, mutant in sorted(MUTANTS.items())})
    else:
        for name, mutant in sorted(MUTANTS.items()):
            print(f"{name:<28}{mutant.description}")
    raise Finished(Exit.VALID)


@mutants_app.command("run")
def mutants_run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A mutant.")],
    scenarios: Annotated[
        list[Path] | None, typer.Argument(metavar="SCENARIO...", help="Scenario files; else those that fit it.")
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="Give up after so many.")] = 100,
    as_json: JsonOption = False,
) -> None:
    """Run one mutant in the simulation until a claim finds it. Exits with 1 when it is found, with 0 when it is not."""
    from fencepost import matrix

    known_mutant(name)
    logging.disable(logging.CRITICAL)
    hunt = matrix.hunt(name, matrix.scenarios_for(name) if not scenarios else _load(scenarios), seeds, first_seed=0)
    if as_json:
        print_json(hunt.to_dict())
    else:
        print(hunt.words())
    raise Finished(Exit.VIOLATED if hunt.found else Exit.VALID)


@mutants_app.command("matrix")
def mutants_matrix(
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Some mutants; else all.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, metavar="N", help="Give a search up after so many.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Searches for each, from different seeds; medians are told.")] = 5,
    jobs: JobsOption = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="The table; its data go beside it as JSON.")
    ] = Path("docs/kill-matrix.md"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with what FILE's data have already.")] = False,
) -> None:
    """Hunt every mutant, and write which claim finds it.

    In the simulation; the table also says after how many seeds and seconds. It is written after every hunt, so one that
    was interrupted can be resumed.
    """
    from fencepost import matrix
    from fencepost.store import write_json, write_text

    for name in names or ():
        known_mutant(name)
    logging.disable(logging.CRITICAL)
    console = make_console(False)
    data = out.with_suffix(".json")
    rows = {name: matrix.Row(name, ()) for name in names or matrix.all_names()}
    if resume:
        rows |= {name: row for name, row in _rows_in(data, seeds, repeats).items() if name in rows}
    with _engine(None, jobs).open() as pool:
        for row in matrix.rows(rows.values(), seeds, repeats, pool):
            console.print(row.words(), markup=False, highlight=False, soft_wrap=True)
            rows[row.mutant] = row
            told = [row for row in rows.values() if row.hunts]
            write_text(out, matrix.table(told, seeds))
            write_json(data, {"seeds": seeds, "repeats": repeats, "rows": [row.to_dict() for row in told]})
    console.print(f"written     {out} and {data}", markup=False, soft_wrap=True)
    raise Finished(Exit.VALID if all(row.found for row in rows.values()) else Exit.UNKNOWN)


def _rows_in(data: Path, seeds: int, repeats: int) -> dict[str, Row]:
    """Raises UserError."""
    import json

    from fencepost import matrix

    try:
        plain = json.loads(data.read_text(encoding="utf-8"))
        if (plain["seeds"], plain["repeats"]) != (seeds, repeats):
            raise UserError(
                f"--resume: {data} has hunts of {plain['seeds']} seeds, {plain['repeats']} of each; ask for the same"
            )
        return {one["mutant"]: matrix.Row.from_dict(one) for one in plain["rows"]}
    except OSError as problem:
        raise UserError(f"--resume: {data} cannot be read: {problem.strerror or problem}") from None
    except (ValueError, KeyError, TypeError) as problem:
        raise UserError(f"--resume: {data} is no matrix's data ({type(problem).__name__}: {problem})") from None


class _Progress:
    """One plain line now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = 0.0

    def observe(self, tally: Tally, ran: Ran) -> None:
        if time.monotonic() - self._last >= PROGRESS_S:
            self.line(tally)

    def line(self, tally: Tally) -> None:
        self._last = time.monotonic()
        self._console.print(tally.words(), markup=False, highlight=False, soft_wrap=True)


def _engine(name: str | None, jobs: int | None) -> Engine:
    from fencepost import engines

    try:
        return engines.named(name, jobs)
    except engines.EngineError as problem:
        raise UserError(f"--engine: {problem}") from None


def _with_mutant(scenario: Scenario, mutant: str | None) -> Scenario:
    from dataclasses import replace

    if mutant is None:
        return scenario
    known_mutant(mutant)
    return replace(scenario, mutant=mutant)


def known_mutant(name: str) -> None:
    from cluster import mutants

    if name not in mutants.names():
        raise UserError(f"no mutant {name!r}: there are {', '.join(sorted(mutants.names()))}")


def _load(paths: Iterable[Path]) -> list[Scenario]:
    from fencepost import runner

    return [runner.load(path) for path in paths]


def seconds(option: str, text: str) -> float:
    from fencepost.quantities import parse_duration_ns

    try:
        return parse_duration_ns(text) / 1e9
    except ValueError as problem:
        raise UserError(f"{option}: found {text!r}; expected {problem}") from None
