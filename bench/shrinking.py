"""How small each mutant's failure gets, and how soon. The goal: at most 3 faults, 12 operations, 3 nodes in 2 minutes.

python -m bench.shrinking [--out docs/shrinking.md [--resume]] [MUTANT...]

The run in which the kill matrix says that a mutant was found is shrunk on one core, until the goal is reached or two
minutes of CPU time are over. Seconds by the clock are given too: they tell of how busy the machine was.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fencepost import matrix, shrink
from fencepost.fuzz import Job
from fencepost.scenario import Scenario
from fencepost.simulation import simulate

FAULTS, OPERATIONS, NODES, BUDGET_S = 3, 12, 3, 120.0
#: How far a mutant is hunted whose run of the matrix shows nothing.
SEEDS_MAX = 30

#: Which run of each mutant is shrunk.
MATRIX = Path(__file__).parents[1] / "docs" / "kill-matrix.json"


class Reached(Exception):
    """The goal."""


@dataclass(frozen=True, slots=True)
class Row:
    """One mutant's failure, made small. `before` are the operations of the run that was found."""

    mutant: str
    scenario: str
    seed: int
    claim: str
    before: int
    faults: int
    operations: int
    nodes: int
    runs: int
    seconds: float
    cpu_s: float

    @property
    def small(self) -> bool:
        return self.faults <= FAULTS and self.operations <= OPERATIONS and self.nodes <= NODES

    def line(self) -> str:
        small = "yes" if self.small and self.cpu_s <= BUDGET_S else "no"
        return (
            f"| `{self.mutant}` | {self.scenario}, seed {self.seed} | `{self.claim}` | {self.before} | {self.faults} |"
            f" {self.operations} | {self.nodes} | {self.runs} | {self.seconds:.0f} | {self.cpu_s:.0f} | {small} |"
        )


def found(mutant: str) -> Scenario | None:
    """The run in which `docs/kill-matrix.json` says that the mutant was found."""
    for row in json.loads(MATRIX.read_text(encoding="utf-8"))["rows"]:
        for hunt in row["hunts"]:
            if row["mutant"] == mutant and hunt["claims"] not in ([], ["harness"]):
                seed = hunt["first_seed"] + hunt["seeds"] - 1
                scenario = next(one for one in matrix.scenarios_for(mutant) if one.name == hunt["scenario"])
                return Job(replace(scenario, mutant=mutant, place="sim"), seed).variant()
    return None


def hunted(mutant: str) -> Scenario | None:
    """The first run that violates something, from seed 0 on."""
    for seed in range(SEEDS_MAX):
        for scenario in matrix.scenarios_for(mutant):
            plan = Job(replace(scenario, mutant=mutant, place="sim"), seed).variant()
            if simulate(plan).violated:
                return plan
    return None


def measured(mutant: str) -> Row | None:
    """The run of the matrix may show nothing any more, where variants have changed since."""
    plan = found(mutant)
    row = None if plan is None else shrunk(mutant, plan)
    if row is None and (plan := hunted(mutant)) is not None:
        row = shrunk(mutant, plan)
    return row


def shrunk(mutant: str, plan: Scenario) -> Row | None:
    """None where nothing is violated."""
    started, cpu = time.monotonic(), time.process_time()

    def observe(_: shrink.Step) -> None:
        assert shrinker.best is not None
        faults, operations, nodes = shrink.measures(shrinker.best)
        if faults <= FAULTS and operations <= OPERATIONS and nodes <= NODES:
            raise Reached

    shrinker = shrink.Shrinker(None, observe, BUDGET_S, clock=time.process_time)
    try:
        shrinker.shrink(plan)
    except shrink.NothingToShrink:
        return None
    except Reached:
        pass
    assert shrinker.best is not None
    assert shrinker.claim is not None
    assert shrinker.first is not None
    took, used = time.monotonic() - started, time.process_time() - cpu
    before, after = shrink.operations(shrinker.first), shrink.measures(shrinker.best)
    where = (plan.name, plan.seed, shrinker.claim)
    return Row(mutant, *where, before, *after, shrinker.tried, round(took, 1), round(used, 1))


def page(rows: list[Row], missing: list[str], load: float) -> str:
    small = sum(row.small and row.cpu_s <= BUDGET_S for row in rows)
    lines = [
        "# How small failures get",
        "",
        f"Written by `python -m bench.shrinking`: {small} of {len(rows)} failures came down to at most {FAULTS} faults,"
        f" {OPERATIONS} operations and",
        f"{NODES} nodes within {BUDGET_S:g} s of one core's time, at a load of {load:.1f} on {os.cpu_count()} cores.",
        "Operations before and after are those of the whole run, the final phase's included: three for each key.",
        "",
        "| mutant | found in | claim | before | faults | operations | nodes | runs | seconds | CPU s | small |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(row.line() for row in rows),
    ]
    tried = {row.mutant for row in rows} | set(missing)
    if others := [name for name in matrix.all_names() if name not in tried]:
        lines += ["", f"Not tried here: {', '.join(f'`{name}`' for name in others)}."]
    if missing:
        names = ", ".join(f"`{name}`" for name in missing)
        lines += ["", f"Not found in {SEEDS_MAX} seeds, so not shrunk: {names}."]
    return "\n".join([*lines, ""])


def kept(path: Path) -> list[Row]:
    """The rows of an earlier run, if there was one."""
    return [Row(**row) for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []


def command() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.shrinking")
    parser.add_argument("mutants", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--resume", action="store_true", help="keep the rows that OUT has, and try the others")
    options = parser.parse_args()
    if options.resume and options.out is None:
        parser.error("--resume needs --out, which has what to go on from")
    logging.disable(logging.CRITICAL)
    rows = kept(options.out.with_suffix(".json")) if options.resume else []
    missing: list[str] = []
    done = {row.mutant for row in rows}
    for mutant in [name for name in options.mutants or matrix.all_names() if name not in done]:
        row = measured(mutant)
        if row is None:
            missing.append(mutant)
            print(f"{mutant}: not found in {SEEDS_MAX} seeds", flush=True)
            continue
        rows = sorted([*rows, row], key=lambda one: one.mutant)
        print(row.line(), flush=True)
        if options.out is not None:
            options.out.write_text(page(rows, missing, os.getloadavg()[2]))
            options.out.with_suffix(".json").write_text(json.dumps([asdict(one) for one in rows], indent=2) + "\n")


if __name__ == "__main__":
    command()
