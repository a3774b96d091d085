"""One run of one scenario: its folder, its phases, its verdict, its report."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import checker
from checker.history import Event, HistoryError
from checker.online import Alarm, Monitor
from checker.subhistory import OPERATIONS_MAX_FOR_PARTS, with_parts
from cluster import places, registry
from cluster.places.base import PlaceError
from cluster.registry import UnknownName
from cluster.words import counted
from fencepost import analysis, conduct, evidence, hosts_file, store, tables
from fencepost import scenario as scenarios
from fencepost.exits import UserError
from fencepost.interrupts import Interrupts, terminable, watchdog
from fencepost.outcome import Outcome
from fencepost.progress import Progress, shown
from fencepost.quantities import format_duration, parse_duration_ns
from fencepost.scenario import Scenario, chaos
from fencepost.store import RunFolder
from fencepost.watching import Aside, InLine
from nemesis.schedule import Planned
from nemesis.spec import FaultSpec

#: Checking and drawing, on top of what the phases of a run may take.
ANALYSIS_BUDGET_S = 600.0

logger = logging.getLogger(__name__)


def load(
    path: Path,
    *,
    place: str | None = None,
    hosts: Path | None = None,
    seed: int | None = None,
    nodes: int | None = None,
    time_limit: str | None = None,
) -> Scenario:
    """A scenario with what the command line says instead. Raises ScenarioError, UserError."""
    limit_ns = None
    if time_limit is not None:
        try:
            limit_ns = parse_duration_ns(time_limit)
        except ValueError as problem:
            raise UserError(f"--time-limit: found {time_limit!r}; expected {problem}") from None
    scenario = scenarios.load(path)
    if all(value is None for value in (place, hosts, seed, nodes, limit_ns)):
        return scenario
    return scenarios.override(scenario, place=place, hosts=hosts, seed=seed, nodes=nodes, time_limit_ns=limit_ns)


def run(
    scenario: Scenario,
    store_folder: Path,
    console: Console,
    *,
    stop_at_first: bool = False,
    accept_new_host_keys: bool = False,
) -> Outcome:
    """Run it, show how it goes, and leave everything in a folder of its own. Raises UserError.

    `stop_at_first` checks while it runs, and ends the load at the first violation. `accept_new_host_keys` takes the
    word of hosts that nobody knows, and writes their keys down.
    """
    try:
        folder = store.create(store_folder, scenario.name)
    except store.StoreError as problem:
        raise UserError(str(problem)) from problem
    budget_s = conduct.budget_s(scenario) + ANALYSIS_BUDGET_S
    with _log(folder), terminable():
        _print_plan(scenario, folder, console)
        _prepare(scenario, folder)
        failure = _prepare_place(scenario, console, accept_new_host_keys)
        with watchdog(budget_s, folder.log):
            if failure:
                outcome = Outcome(scenario, folder, None, failure)
            else:
                outcome = _run(scenario, folder, console, stop_at_first)
        try:
            store.write_json(folder.results, outcome.to_dict())
        except OSError as problem:
            words = store.unwritable(folder.path, problem)
            # It may be why the run failed as well.
            others = [] if outcome.failure in (None, words) else [str(outcome.failure)]
            outcome = replace(outcome, failure="; ".join([*others, words]))
    console.print(tables.outcome_table(outcome), soft_wrap=True)
    return outcome


def _run(scenario: Scenario, folder: RunFolder, console: Console, stop_at_first: bool) -> Outcome:
    progress = Progress(scenario.name, scenario.time_limit_ns / 1e9)
    with shown(progress, console):
        end = _conduct(scenario, folder, progress, stop_at_first)
        with _harmless("repro.yaml could not be written"):
            store.write_text(folder.repro, scenarios.dump(scenarios.resolved(scenario, end.resolved)))
        outcome = Outcome(scenario, folder, None, end.failure, end.interrupted, end.enough)
        if end.hurried or not folder.history.exists():
            return outcome
        progress.enter("checking")
        try:
            history = checker.read(folder.history)
            found = evidence.read(folder.path)
            options = analysis.options(scenario, end.tokens_span_keys, found)
            results = checker.check(history, analysis.claims(scenario, found), options)
            if sum(results.operations.values()) <= OPERATIONS_MAX_FOR_PARTS:
                results = with_parts(results, history, options)
            results = replace(results, warnings=(*results.warnings, *analysis.skipped(history.events)))
        except (HistoryError, checker.OptionsError, UserError) as problem:
            return replace(outcome, failure=f"{end.failure}; {problem}" if end.failure else str(problem))
        outcome = replace(outcome, results=results)
        progress.enter("drawing")
        warning = analysis.write_report(folder.report, history.events, outcome.to_dict(), analysis.about(outcome))
    if warning is not None:
        console.print(Text(f"warning     {warning}; more in {folder.log}", style="yellow"), soft_wrap=True)
    return outcome


@contextlib.contextmanager
def _log(folder: RunFolder) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(store.logging_to(folder.log))
        except OSError as problem:
            raise UserError(store.unwritable(folder.path, problem)) from problem
        yield


def _prepare(scenario: Scenario, folder: RunFolder) -> None:
    """The folder's scenario is the user's file, byte for byte, if that says all of what is run. Raises UserError."""
    theirs = None if scenario.path is None else scenario.path.read_bytes()
    try:
        if theirs is not None:
            folder.scenario.write_bytes(theirs)
        if theirs is None or scenarios.read(folder.scenario) != scenario:
            source = f"# {str(scenario.path)!r} as it was run\n" if theirs is not None else ""
            store.write_text(folder.scenario, source + scenarios.dump(scenario))
    except OSError as problem:
        raise UserError(store.unwritable(folder.path, problem)) from problem
    logger.info("scenario %s, seed %d", scenario.name, scenario.seed)
    logger.info("resolved:\n%s", scenarios.dump(scenario))


def _prepare_place(scenario: Scenario, console: Console, accept_new_host_keys: bool) -> str | None:
    """What may take minutes and has no part in the run's budgets, such as building an image. What went wrong, if so."""

    def say(line: str) -> None:
        logger.info("%s", line)
        console.print(Text.assemble((f"{scenario.place:<12}", "dim"), line), soft_wrap=True)

    try:
        places.prepare(scenario.place, say, hosts_file.of(scenario), accept_new_host_keys=accept_new_host_keys)
    except PlaceError as problem:
        logger.error("the place could not be prepared: %s", problem)
        return str(problem)
    return None


@dataclass(frozen=True, slots=True)
class _End:
    """How the phases ended: what the harness failed at, the signal that ended the load, whether the user did not even
    want to wait for an analysis, and the faults as they took place."""

    failure: str | None
    interrupted: str | None
    hurried: bool
    resolved: tuple[FaultSpec, ...]
    tokens_span_keys: bool
    enough: str | None


def _watcher(scenario: Scenario, folder: RunFolder, spans: bool, interrupts: Interrupts) -> InLine | Aside:
    """What ends the load at the first violation of a claim that is checked."""

    def found(alarm: Alarm) -> None:
        if alarm.claim in scenario.checks:
            interrupts.suffice(alarm.words())

    if places.loop_factory(scenario.place) is not None:  # virtual time, in which looking takes none
        return InLine(Monitor(clock_error=scenario.clock_error, tokens_span_keys=spans), found)
    return Aside(folder.history, found, clock_error=scenario.clock_error, tokens_span_keys=spans)


def _conduct(scenario: Scenario, folder: RunFolder, progress: Progress, stop_at_first: bool) -> _End:
    interrupts = Interrupts()
    watcher: InLine | Aside | None = None
    failure, resolved, spans = None, scenario.nemesis, False

    def observe(event: Event) -> None:
        progress.event(event)
        if watcher is not None:
            watcher.observe(event)

    try:
        conductor = conduct.Conductor(scenario, folder, interrupts, observe, progress.enter)
        spans = conductor.tokens_span_keys
        if stop_at_first:
            watcher = _watcher(scenario, folder, spans, interrupts)
        store.write_json(folder.versions, store.versions(_system(scenario, conductor), scenario.place))
        try:
            with asyncio.Runner(loop_factory=places.loop_factory(scenario.place)) as loop:
                loop.run(interrupts.over(conductor.run()))
        finally:
            if watcher is not None:
                watcher.close()
            resolved = conductor.resolved
            evidence.collect(folder.path, conductor.place, conductor.origin_ns)
    except asyncio.CancelledError:
        failure = "the second signal ended the run before it was analysed"
    except (conduct.Failure, UnknownName) as problem:
        failure = str(problem)
    except OSError as problem:
        # Such as that of a full disk, which names no file.
        full = problem.errno in store.NO_ROOM
        failure = store.unwritable(folder.path, problem) if full else f"{type(problem).__name__}: {problem}"
        logger.exception("the run failed")
    except Exception as problem:
        failure = f"{type(problem).__name__}: {problem}"
        logger.exception("the run failed")
    if failure is not None:
        logger.error("the harness failed: %s", failure)
    return _End(failure, interrupts.first, interrupts.hurried, resolved, spans, interrupts.enough)


def _system(scenario: Scenario, conductor: conduct.Conductor) -> dict[str, Any]:
    """The system as the run's folder has to know it, also where its module is not at hand."""
    home = registry.home(scenario.system.partition(":")[0]) if registry.is_own(scenario.system) else None
    return {
        "name": scenario.system,
        "version": conductor.system_version(),
        "tokens_span_keys": conductor.tokens_span_keys,
        **({} if home is None else {"folder": str(home)}),
    }


@contextlib.contextmanager
def _harmless(complaint: str) -> Iterator[None]:
    """What fails in here changes no verdict."""
    try:
        yield
    except Exception:
        logger.exception("%s", complaint)


def _print_plan(scenario: Scenario, folder: RunFolder, console: Console) -> None:
    """Seed, plan and how to do it again, before anything else."""
    workload = scenario.workload
    mutant = f" (mutant {scenario.mutant})" if scenario.mutant else ""
    size = f"{counted(workload.clients, 'client')}, {counted(workload.keys, 'key')}"
    lines = [
        ("seed", str(scenario.seed)),
        ("scenario", scenario.name),
        ("system", f"{counted(scenario.nodes, 'node')} of {scenario.system}{mutant} at {scenario.place}"),
        ("workload", f"{workload.kind}: {size}, up to {workload.rate:g}/s"),
        ("time limit", format_duration(scenario.time_limit_ns)),
        ("checks", ", ".join(scenario.checks)),
    ]
    planned = chaos.plan(scenario)
    lines += [("fault", _fault_words(fault)) for fault in planned[:FAULTS_SHOWN_MAX]]
    if len(planned) > FAULTS_SHOWN_MAX:
        lines.append(("", f"and {len(planned) - FAULTS_SHOWN_MAX} more"))
    lines += [("folder", str(folder.path)), ("again", analysis.replay_command(scenario))]
    for name, words in lines:
        console.print(Text.assemble((f"{name:<12}", "dim"), words), soft_wrap=True)


#: Planned faults that are printed; a long run has hundreds.
FAULTS_SHOWN_MAX = 12


def _fault_words(planned: Planned) -> str:
    spec = planned.spec
    target = ", ".join(spec.target) if isinstance(spec.target, tuple) else spec.target
    what = " ".join(filter(None, [spec.fault, spec.shape, f"of {target}" if target else None]))
    if spec.cuts is not None:
        what += " " + " ".join(f"{source}→{sink}" for source, sink in spec.cuts)
    return f"{planned.id} {what}, {planned.start_ns / 1e9:g} s to {planned.end_ns / 1e9:g} s"
