"""What the command line prints for people: the plan of a run, its results, a suite's summary."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from checker.settle import SETTLED_NUMBERS
from checker.verdict import COVERAGE, Results, Verdict
from fencepost import invocation
from fencepost.index import Run
from fencepost.outcome import Outcome, Status
from fencepost.suite import Entry, Summary
from fencepost.terminal import harmless

_STYLES = {Verdict.VALID: "bold green", Verdict.INVALID: "bold red", Verdict.UNKNOWN: "bold yellow"}
_STATUS_STYLES = {
    Status.PASSED: "bold green",
    Status.VIOLATION: "bold red",
    Status.UNMET: "bold red",
    Status.HARNESS: "bold magenta",
    Status.BAD_FILE: "bold magenta",
    Status.NOT_RUN: "dim",
}
#: Findings of one claim on the terminal; the report has them all.
FINDINGS_MAX = 3
#: Lines of one entry in a suite's summary.
LINES_MAX = 4


def results_table(results: Results, minimums: dict[str, int]) -> RenderableType:
    """The claims with their verdicts, numbers and first findings, then operations and coverage."""
    claims = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    claims.add_column("claim")
    claims.add_column("verdict")
    claims.add_column("found", overflow="fold")
    for name, result in results.claims.items():
        if name != COVERAGE:
            claims.add_row(Text(name), _verdict(result.verdict), _findings(results, name))
    parts: list[RenderableType] = [claims, Text()]
    operations = ", ".join(f"{name} {count:,}" for name, count in results.operations.items())
    parts.append(Text.assemble(("operations  ", "dim"), operations))
    parts += _settled(results)
    names = [*minimums, *(name for name, found in results.coverage.items() if found and name not in minimums)]
    if names:
        covered = Text.assemble(("coverage    ", "dim"))
        for position, name in enumerate(names):
            found, needed = results.coverage.get(name, 0), minimums.get(name)
            words = f"{name.replace('_', ' ')} {found:,}" + (f" of {needed:,}" if needed is not None else "")
            covered.append((", " if position else "") + words, style="yellow" if needed and found < needed else "")
        parts.append(covered)
    parts += [Text.assemble(("warning     ", "yellow"), harmless(warning)) for warning in results.warnings]
    return Group(*parts)


def _settled(results: Results) -> list[RenderableType]:
    """What became of the operations of unknown outcome, where the nodes' log says it."""
    numbers = results.claims["linearizable"].numbers if "linearizable" in results.claims else {}
    effect, none, unsettled = (numbers.get(name, 0) for name in SETTLED_NUMBERS)
    if not (effect or none or unsettled):
        return []
    words = f"from the nodes' log: {effect:,} took effect, {none:,} had none; {unsettled:,} still unknown"
    return [Text.assemble(("settled     ", "dim"), words)]


def _findings(results: Results, claim: str) -> Text:
    result = results.claims[claim]
    text = Text()
    if not result.findings:
        numbers = ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in result.numbers.items())
        return Text(numbers, style="dim")
    for position, finding in enumerate(result.findings[:FINDINGS_MAX]):
        text.append(("\n" if position else "") + harmless(finding.message))
    if len(result.findings) > FINDINGS_MAX:
        text.append(f"\nand {len(result.findings) - FINDINGS_MAX} more", style="dim")
    return text


def verdict_line(results: Results) -> Text:
    words = {
        0: "",
        1: f": violated {', '.join(results.violated)}",
        2: ": there is no verdict",
        3: ": coverage is too low",
    }
    line = Text("verdict     ", style="dim")
    style = _STYLES[results.verdict]
    line.append(str(results.verdict).upper(), style=style)
    line.append(words[results.exit_code])
    line.append(f"  (checked in {results.seconds:.2f} s)", style="dim")
    return line


def no_verdict_line(results: Results, words: str, style: str = _STYLES[Verdict.UNKNOWN]) -> Text:
    """In place of a verdict that would be taken for one on the whole run."""
    line = Text("verdict     ", style="dim")
    line.append(words, style=style)
    recorded = f"{results.verdict}: violated {', '.join(results.violated)}" if results.violated else results.verdict
    line.append(f" (what was recorded: {recorded})")
    return line


def outcome_table(outcome: Outcome) -> RenderableType:
    """The whole end of a run."""
    parts: list[RenderableType] = [Text()]
    results = outcome.results
    if results is not None:
        if outcome.failure is not None:
            line = no_verdict_line(results, "HARNESS FAILED", "bold magenta")
        elif outcome.cut_short:
            line = no_verdict_line(results, "UNKNOWN: interrupted")
        else:
            line = verdict_line(results)
        parts += [results_table(results, dict(outcome.scenario.coverage)), Text(), line]
    if outcome.scenario.expect.invalid:
        expected = ", ".join(outcome.scenario.expect.invalid)
        parts.append(_row("expected", f"a violation of {expected}: {'met' if outcome.expected else 'NOT met'}"))
    if outcome.scenario.expect.excused and outcome.expected:
        excused = ", ".join(outcome.scenario.expect.excused)
        parts.append(_row("expected", f"{excused} may rest on an assumption that a fault broke: met"))
    if outcome.enough is not None:
        parts.append(_row("stopped", f"at the first violation: {outcome.enough}"))
    if outcome.interrupted is not None:
        partial = "" if results is None else "; all this is on what was recorded until then"
        parts.append(_row("interrupted", f"by {outcome.interrupted}{partial}"))
    if outcome.folder.report.exists():
        parts.append(_row("report", str(outcome.folder.report)))
    if outcome.folder.repro.exists():
        parts.append(_row("again", invocation.command(["repro", str(outcome.folder.repro)])))
    if outcome.failure is not None:
        parts.append(Text(harmless(f"the harness failed: {outcome.failure}"), style="bold magenta"))
        parts.append(_row("log", str(outcome.folder.log)))
    return Group(*parts)


def summary_table(summary: Summary) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("scenario")
    table.add_column("status")
    table.add_column("seconds", justify="right")
    table.add_column("found", overflow="fold")
    for entry in summary.entries:
        table.add_row(
            Text(harmless(entry.name)),
            entry_status(entry),
            f"{entry.seconds:.1f}",
            Text(_shortened(harmless(entry.message))),
        )
    counts = ", ".join(f"{summary.count(status)} {status}" for status in Status if summary.count(status))
    return Group(Text(), table, Text(), _row("suite", f"{summary.name}: {counts}, in {summary.seconds:.0f} s"))


def runs_table(runs: Sequence[Run]) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in ("began", "scenario", "seed", "place", "verdict", "exit"):
        table.add_column(column, justify="right" if column in ("seed", "exit") else "left")
    for run in runs:
        words = [run.time, run.scenario, run.seed, run.place, run.verdict, run.exit_code]
        style = _STYLES.get(Verdict(run.verdict), "") if run.verdict in tuple(Verdict) else ""
        cells = [Text("-" if word is None else harmless(str(word))) for word in words]
        cells[4].stylize(style)
        table.add_row(*cells)
    return table


def _shortened(message: str) -> str:
    lines = message.splitlines()
    return "\n".join([*lines[:LINES_MAX], *(["..."] if len(lines) > LINES_MAX else [])])


def entry_status(entry: Entry) -> Text:
    return Text(str(entry.status), style=_STATUS_STYLES.get(entry.status, "bold yellow"))


def _row(name: str, words: str) -> Text:
    return Text.assemble((f"{name:<12}", "dim"), harmless(words))


def _verdict(verdict: Verdict) -> Text:
    return Text(str(verdict), style=_STYLES[verdict])
