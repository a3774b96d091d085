"""The commands of `fencepost`, as typer reads them from signatures.

Commands end by raising `Finished`, so that whatever else comes out of typer (its own code for wrong arguments is 2,
which here means "unknown") can be told apart by `fencepost.cli`. What a command needs is loaded by itself: loading all
of it takes longer than most commands do.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from fencepost.exits import Exit, Finished, UserError

if TYPE_CHECKING:
    from rich.console import Console

    from fencepost import upkeep
    from fencepost.outcome import Outcome
    from fencepost.suite_file import SuiteEntry

EPILOG = (
    "Exit codes: 0 valid · 1 a claim was violated · 2 unknown · 3 coverage too low · 254 bad arguments or a bad file · "
    "255 the harness failed."
)

#: What tells `git bisect run` that a commit can't be tested.
BISECT_SKIP = 125

#: Columns of what is printed into a file or a pipe.
LOG_WIDTH = 120

app = typer.Typer(
    name="fencepost",
    help="A chaos testbed and linearizability checker for lock services.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

StoreOption = Annotated[Path, typer.Option("--store", metavar="DIR", help="Where the folders of runs go.")]
HistoryArgument = Annotated[Path, typer.Argument(metavar="HISTORY", help="A history file.")]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="NAME", help="auto, jsonl, edn, jepsen-log or kv-log; auto looks for itself.")
]
HostsOption = Annotated[
    Path | None, typer.Option("--hosts", metavar="FILE", help="The hosts for the place ssh, instead of the file's.")
]
AcceptOption = Annotated[
    bool,
    typer.Option(
        "--accept-new-host-keys", help="Take the word of hosts whose key is unknown, and write it to known_hosts."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]


def _version(value: bool) -> None:
    if value:
        from fencepost import version

        print(f"fencepost {version.own()}")
        raise typer.Exit


@app.callback()
def _common(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command(epilog=EPILOG)
def run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A scenario file (YAML).")],
    place: Annotated[str | None, typer.Option(metavar="NAME", help="Instead of the file's place.")] = None,
    hosts: HostsOption = None,
    accept_new_host_keys: AcceptOption = False,
    seed: Annotated[int | None, typer.Option(help="Instead of the file's seed.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Instead of the file's number of nodes.")] = None,
    time_limit: Annotated[
        str | None, typer.Option("--time-limit", metavar="DURATION", help="Instead of the file's, such as 30s.")
    ] = None,
    stop_at_first: Annotated[
        bool, typer.Option("--stop-at-first", help="Check while it runs, and end the load at the first violation.")
    ] = False,
    folder: StoreOption = Path("store"),
    as_json: JsonOption = False,
) -> None:
    """Run one scenario and give a verdict.

    The exit code follows the verdict alone: a scenario that expects a violation exits with 1 when it shows one. (In a
    suite it counts as passed.) Ctrl-C or SIGTERM ends the load early: faults are healed, and what was recorded is
    analysed. A violation in it is one (1), without one the run has no verdict (2). A second signal heals and leaves at
    once (255).
    """
    from fencepost import runner

    plan = runner.load(scenario, place=place, hosts=hosts, seed=seed, nodes=nodes, time_limit=time_limit)
    outcome = runner.run(
        plan,
        folder,
        make_console(as_json),
        stop_at_first=stop_at_first,
        accept_new_host_keys=accept_new_host_keys,
    )
    if as_json:
        print_json(outcome.to_dict())
    raise Finished(outcome.exit)


@app.command(epilog=EPILOG)
def check(
    history: Annotated[Path, typer.Argument(metavar="HISTORY", help="A history (JSON Lines), or the folder of a run.")],
    claims: Annotated[
        str | None,
        typer.Option(metavar="CLAIM,...", help="The claims to check; without it, those that need only clients."),
    ] = None,
    clock_error: Annotated[
        str | None,
        typer.Option(
            "--clock-error", metavar="SHARE", help="Declared error of the lease clocks, such as 1% (default 0)."
        ),
    ] = None,
    tokens_span_keys: Annotated[
        bool, typer.Option("--tokens-span-keys", help="The service promises tokens that increase over all keys.")
    ] = False,
    tokens_dense: Annotated[
        bool,
        typer.Option("--tokens-dense", help="Tokens leave no gaps, and the history holds every acquire."),
    ] = False,
    settle: Annotated[
        bool,
        typer.Option(help="Settle operations of unknown outcome from the nodes' log, where there is one."),
    ] = True,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a report (HTML) there.")] = None,
    draw: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Draw each finding that cites operations there, as SVG.")
    ] = None,
    sub_history: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the smallest parts of the history that are refused as well there."),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a proof of the verdict on `linearizable`, for `verify`.")
    ] = None,
    format: FormatOption = "auto",
    maps: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="THEIRS=OURS", help="An operation's other name, such as seize=acquire."),
    ] = None,
    map_errors: Annotated[
        list[str] | None,
        typer.Option("--map-error", metavar="THEIRS=OURS", help="An error's other name, such as busy=held."),
    ] = None,
    token: Annotated[str | None, typer.Option(metavar="FIELD", help="Where in a value the token is.")] = None,
    key: Annotated[str, typer.Option(help="The key of operations that name none.")] = "lock",
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME|MODULE:CLASS", help="Search for an order that fits this model; needs no tokens."),
    ] = None,
    independent: Annotated[
        bool, typer.Option("--independent", help="With --model: values are pairs of a key and a value.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="With --model: what the search may take.")] = 60.0,
    megabytes: Annotated[int, typer.Option(help="With --model: what the search may take.")] = 2000,
    engine: Annotated[
        str,
        typer.Option(metavar="auto|columns|python", help="How long histories are checked; the answers are the same."),
    ] = "auto",
    jobs: Annotated[
        int, typer.Option(metavar="N", help="Processes that check a long history; 0: as many as there are processors.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Check a recorded history.

    Given the folder of a run, its scenario says which claims, which clock error and which coverage; a run that was
    interrupted has no verdict then, unless it shows a violation. Histories of Jepsen
    (history.edn, or its log) and Porcupine are recognised. Models: register, cas-register, mutex, owner-mutex,
    leased-mutex, reentrant-mutex, fenced-mutex, reentrant-fenced-mutex, semaphore, read-write-lock, fifo-queue, set,
    key-value, or a class of your own.
    """
    from fencepost import analysis, checking, foreign, tables
    from fencepost.terminal import harmless

    console = make_console(as_json)
    names = None if claims is None else [name.strip() for name in claims.split(",") if name.strip()]
    reading = foreign.reading(format, maps or [], map_errors or [], token, key, model, independent, seconds, megabytes)
    if model is not None and (report is not None or certificate is not None or names is not None):
        raise UserError("--model checks one thing; --claims, --report and --certificate are for histories of locks")
    request = checking.request(history, names, clock_error, tokens_span_keys, reading, engine, settle, jobs)
    if tokens_dense:
        request = replace(request, options=replace(request.options, tokens_dense=True))
    results, events = checking.check(request, events_wanted=report is not None)
    document, code = results.to_dict(), Exit(results.exit_code)
    console.print(tables.results_table(results, dict(request.options.coverage)), soft_wrap=True)
    if request.cut_short is not None and code is not Exit.VIOLATED:
        document, code = {**document, "verdict": "unknown"}, Exit.UNKNOWN
        console.print(tables.no_verdict_line(results, "UNKNOWN: the run did not come to its end"), soft_wrap=True)
    else:
        console.print(tables.verdict_line(results), soft_wrap=True)
    if request.cut_short is not None:
        document["cut_short"] = request.cut_short
        line = harmless(f"cut short   {request.cut_short}")
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if report is not None:
        warning = analysis.write_report(report, events, document, checking.about(request))
        if warning is not None:
            raise UserError(f"{report}: {warning}")
        console.print(f"report      {report}", markup=False, highlight=False, soft_wrap=True)
    if draw is not None:
        for path in checking.draw(results, draw):
            console.print(f"drawing     {path}", markup=False, highlight=False, soft_wrap=True)
    if sub_history is not None:
        for path in checking.write_parts(results, request, events, sub_history):
            console.print(f"part        {path}", markup=False, highlight=False, soft_wrap=True)
    if certificate is not None:
        from fencepost import certificates

        if foreign.is_foreign(request.path, reading):
            raise UserError(
                f"--certificate is for histories in our own format; `fencepost export` makes one of {history}"
            )
        if tokens_dense:
            raise UserError("--certificate: none can be made of tokens without gaps; leave out --tokens-dense for it")
        spans = request.options.tokens_span_keys
        verdict = certificates.write(request.path, certificate, tokens_span_keys=spans)
        words = f"certificate {certificate} (linearizable: {verdict})"
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print_json(document)
    raise Finished(code)


@app.command(epilog=EPILOG)
def verify(
    history: HistoryArgument,
    certificate: Annotated[Path, typer.Argument(metavar="CERTIFICATE", help="From `check --certificate`.")],
    as_json: JsonOption = False,
) -> None:
    """Verify a certificate of `check`, without trusting the checker.

    Exits with 0 when it proves that the history is linearizable, 1 when that it is not, 254 when it proves nothing.
    """
    from fencepost import certificates

    verdict, spans = certificates.verify(history, certificate)
    if as_json:
        print_json({"verdict": verdict, "claim": "linearizable", "tokens_span_keys": spans})
    else:
        together = ", with one order of tokens over all keys" if spans else ""
        print(f"proved: {history} is {'' if verdict == 'valid' else 'not '}linearizable{together}")
    raise Finished(Exit.VALID if verdict == "valid" else Exit.VIOLATED)


@app.command(epilog=EPILOG)
def export(
    history: HistoryArgument,
    target: Annotated[str, typer.Option("--to", metavar="edn|perfetto|jsonl", help="The format to write.")] = "edn",
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Instead of stdout.")] = None,
    format: FormatOption = "auto",
) -> None:
    """Write a history in another format.

    Jepsen's EDN, a trace for Perfetto (ui.perfetto.dev), or our own. On a terminal, what it would obey is written as an
    escape; a file or a pipe gets every character as it is.
    """
    from fencepost import foreign
    from fencepost.terminal import harmless

    parts = foreign.export(history, format, target)
    if output is not None:
        _write(output, lambda path: foreign.write(path, parts))
    else:
        shown = harmless if sys.stdout.isatty() else str
        for part in parts:
            print(shown(part), end="")
    raise Finished(Exit.VALID)


@app.command(epilog=EPILOG)
def lint(history: HistoryArgument, format: FormatOption = "auto") -> None:
    """Name what is suspicious in a history.

    That is what is well-formed and hardly what was meant, such as a timeout that counts as a failure. Exits with 0
    whatever is found.
    """
    from fencepost import foreign
    from fencepost.terminal import harmless

    for line in foreign.suspicions(history, format) or [f"{history}: nothing suspicious"]:
        print(harmless(line))
    raise Finished(Exit.VALID)


@app.command(epilog=EPILOG)
def suite(
    scenarios: Annotated[
        list[Path],
        typer.Argument(metavar="FILE|FOLDER...", help="Scenario files, suite files, folders of scenario files."),
    ],
    junit: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the summary as JUnit XML.")] = None,
    summary: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the summary as JSON.")] = None,
    folder: StoreOption = Path("store"),
    as_json: JsonOption = False,
) -> None:
    """Run many scenarios, one after another.

    A run passes when it ends as its scenario expects; one that expects a violation passes by showing it. Of all runs
    the worst gives the exit code: a violation (1) dominates, then a failed harness (255), a bad scenario file (254),
    no verdict, an interrupted run or an expected violation that did not show (2), too little coverage (3). In JUnit,
    violations, missed expectations and too little coverage are failures, told apart by their type; a missing verdict,
    an interrupted run, a failed harness and a bad file are errors.
    """
    from fencepost import junit as junit_xml
    from fencepost import runner, store, tables
    from fencepost import suite as suites

    console = make_console(as_json)
    for path in filter(None, (junit, summary)):
        if not path.absolute().parent.is_dir():
            raise UserError(f"{path}: there is no folder {path.parent} to write it into")
    planned = suites.collect(scenarios)
    started = itertools.count(1)

    def run_one(one: SuiteEntry) -> Outcome:
        console.rule(f"{next(started)} of {len(planned)}: {one.file}", style="dim")
        return runner.run(one.load(), folder, console)

    result = suites.run(suites.title(scenarios), planned, run_one)
    console.print(tables.summary_table(result), soft_wrap=True)
    if junit is not None:
        _write(junit, lambda path: junit_xml.write(path, result))
    if summary is not None:
        _write(summary, lambda path: store.write_json(path, result.to_dict()))
    if as_json:
        print_json(result.to_dict())
    raise Finished(result.exit)


def _write(path: Path, write: Callable[[Path], None]) -> None:
    try:
        write(path)
    except OSError as problem:
        raise UserError(f"{path}: cannot be written: {problem.strerror or problem}") from problem


@app.command(epilog=EPILOG)
def repro(
    scenario: Annotated[Path, typer.Argument(metavar="FILE", help="A run's repro.yaml, or any scenario file.")],
    place: Annotated[str | None, typer.Option(metavar="NAME", help="Instead of the file's place.")] = None,
    times: Annotated[int, typer.Option(min=1, help="Run it so many times and print how often it was violated.")] = 1,
    bisect: Annotated[
        bool,
        typer.Option(
            "--bisect",
            help="Exit as `git bisect run` wants it: 1 if a claim was violated, 0 if not, 125 if nobody knows.",
        ),
    ] = False,
    folder: StoreOption = Path("store"),
    as_json: JsonOption = False,
) -> None:
    """Run a repro.yaml, or a bug report's YAML, again.

    Exits as `run` does; of many runs the worst counts, so one violation is enough for 1. Because 2 and 3 would count
    as bad in a bisection, and 254 and 255 end it, `--bisect` makes them 125, "cannot be tested".
    """
    from fencepost import runner
    from fencepost.repetition import Repetition

    console = make_console(as_json)
    plan = runner.load(scenario, place=place)
    outcomes: list[Outcome] = []
    for number in range(times):
        if times > 1:
            console.rule(f"{number + 1} of {times}", style="dim")
        outcomes.append(runner.run(plan, folder, console))
        if outcomes[-1].interrupted is not None:
            break
    result = Repetition(times, tuple(outcomes))
    if times > 1:
        console.print(f"rate        {result.words()}", markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print_json(result.to_dict())
    if bisect and result.exit not in (Exit.VALID, Exit.VIOLATED):
        raise Finished(BISECT_SKIP)
    raise Finished(result.exit)


image_app = typer.Typer(help="The image that nodes run from in Docker.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(image_app, name="image")


@image_app.command("build", epilog=EPILOG)
def build_image(
    from_packages: Annotated[
        bool,
        typer.Option(
            "--base-from-packages", help="Make the base from Debian packages, without a registry; needs mmdebstrap."
        ),
    ] = False,
) -> None:
    """Build the image, unless the engine has it already.

    `run --place docker` does so by itself when it is missing. The base is an official Python image; where that can't be
    pulled, one from Debian packages, and a line says so.
    """
    from cluster.image import build
    from cluster.places import docker_engine

    client = docker_engine.connect()
    image = build.build(client, print, from_packages=True) if from_packages else build.ensure(client, print)
    print(f"the image is {image}")
    raise Finished(Exit.VALID)


@app.command(epilog=EPILOG)
def runs(
    folder: StoreOption = Path("store"),
    most: Annotated[int, typer.Option(min=1, help="How many to list.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the runs in the store, the last one first.

    Their verdicts are in `index.sqlite` there, which is made from the folders of the runs. One without a verdict goes
    on, or its harness was killed.
    """
    from dataclasses import asdict

    from fencepost import index, tables

    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder; --store names the one with the runs")
    found = index.runs(folder)
    if as_json:
        print_json({"runs": [asdict(run) for run in found[:most]], "all": len(found)})
    else:
        console = make_console(as_json)
        console.print(tables.runs_table(found[:most]), soft_wrap=True)
        if len(found) > most:
            console.print(f"and {len(found) - most} more", style="dim")
    raise Finished(Exit.VALID)


@app.command(epilog=EPILOG)
def heal(
    folder: Annotated[Path, typer.Argument(metavar="RUN_FOLDER", help="The run's folder.")] = Path("store/latest"),
    as_json: JsonOption = False,
) -> None:
    """Undo what a run left whose harness was killed.

    Its faults, containers, networks, processes, and what it has on hosts: whatever bears the run's mark is removed,
    logs are collected, and the ledger is closed. A harness that lives heals by itself.
    """
    from fencepost import upkeep

    _finish_upkeep(upkeep.heal(folder, _lines(as_json)), as_json)


@app.command(epilog=EPILOG)
def clean(
    everything: Annotated[
        bool, typer.Option("--all", help="Also what is in use, and what other machines' runs made.")
    ] = False,
    images: Annotated[bool, typer.Option("--images", help="Also images of older versions.")] = False,
    hosts: Annotated[
        Path | None, typer.Option("--hosts", metavar="FILE", help="Also what is found on the hosts of this file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Remove what any runs left whose harness was killed.

    On hosts: what runs of this user on this machine have left; with --hosts, whatever is there.
    """
    from fencepost import hosts_file, upkeep

    named = () if hosts is None else hosts_file.load(hosts)
    report = upkeep.clean(_lines(as_json), everything=everything, images=images, hosts=named)
    _finish_upkeep(report, as_json)


@app.command(epilog=EPILOG)
def doctor(
    hosts: Annotated[
        Path | None, typer.Option("--hosts", metavar="FILE", help="Look at the hosts of this file as well.")
    ] = None,
    accept_new_host_keys: AcceptOption = False,
    as_json: JsonOption = False,
) -> None:
    """Say what this machine, and hosts, can do, and what would help.

    Exits with 0 whatever is missing: what a run needs and can't have is said before it starts.
    """
    from fencepost import doctor as doctors
    from fencepost import hosts_file

    named = () if hosts is None else hosts_file.load(hosts)
    report = doctors.examine(named, accept_new_host_keys=accept_new_host_keys)
    if as_json:
        print_json(report.to_dict())
    else:
        report.print_on(make_console(as_json))
    raise Finished(Exit.VALID)


def _finish_upkeep(report: upkeep.Report, as_json: bool) -> NoReturn:
    if as_json:
        print_json(report.to_dict())
    raise Finished(report.exit)


def _lines(as_json: bool) -> Callable[[str], None]:
    console = make_console(as_json)
    return lambda line: console.print(line, markup=False, highlight=False, soft_wrap=True)


def make_console(as_json: bool) -> Console:
    from rich.console import Console

    console = Console(stderr=as_json)
    # A log has no width of its own.
    return console if console.is_terminal else Console(stderr=as_json, width=LOG_WIDTH)


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2))
