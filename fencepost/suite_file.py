"""Suite files: which scenarios to run, one after another, and what to change in each.

suite: nightly
description: every scenario, twice
scenarios:
  - ../scenarios/mutex-kills.yaml                              # paths are relative to the suite file
  - {scenario: ../scenarios/mutex-kills.yaml, seed: 7, time_limit: 5m}
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fencepost import scenario as scenarios
from fencepost.quantities import A_DURATION, parse_duration_ns
from fencepost.scenario.reader import NODES_MAX, SEED_MAX
from fencepost.yaml_file import Item, Wrong, open_yaml

FIELDS = ("suite", "description", "scenarios")
ENTRY_FIELDS = ("scenario", "place", "seed", "nodes", "time_limit")

_A_PATH = "the path of a scenario file, relative to this one"


@dataclass(frozen=True, slots=True)
class SuiteEntry:
    """One scenario of a suite, and what the suite says instead of its file (None: nothing)."""

    file: Path
    place: str | None = None
    seed: int | None = None
    nodes: int | None = None
    time_limit_ns: int | None = None

    def load(self) -> scenarios.Scenario:
        """The scenario as the suite wants it. Raises ScenarioError."""
        return scenarios.override(
            scenarios.load(self.file),
            place=self.place,
            seed=self.seed,
            nodes=self.nodes,
            time_limit_ns=self.time_limit_ns,
        )


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    description: str
    entries: tuple[SuiteEntry, ...]


def is_suite(path: Path) -> bool:
    """Whether a file means to be a suite rather than a scenario. False for one that is not even YAML."""
    try:
        root = open_yaml(path, "a scenario or a suite")
    except scenarios.ScenarioError:
        return False
    return root.has_field("scenarios") or root.has_field("suite")


def load(path: Path) -> Suite:
    """Read a suite file; the scenario files are not looked at yet. Raises ScenarioError with every problem
    that was found."""
    root = open_yaml(path, "a suite")
    try:
        fields = root.fields(FIELDS)
        suite = Suite(
            fields.get("suite", lambda item: item.text("the suite's name"), path.stem),
            fields.get("description", lambda item: item.text("some words"), ""),
            fields.need("scenarios", lambda item: _entries(item, path.parent), (), "a list of scenario files"),
        )
    except Wrong as wrong:
        raise scenarios.ScenarioError([scenarios.Problem(str(path), None, "", wrong.found, wrong.remedy)]) from None
    root.document.finish()
    return suite


def _entries(item: Item, folder: Path) -> tuple[SuiteEntry, ...]:
    if item.is_empty():
        raise Wrong(item.found(), "at least one scenario file")
    return item.each("scenario files", lambda entry: _entry(entry, folder))


def _entry(item: Item, folder: Path) -> SuiteEntry:
    if not item.is_mapping():
        return SuiteEntry(_file(item, folder))
    fields = item.fields(ENTRY_FIELDS)
    return SuiteEntry(
        file=fields.need("scenario", lambda entry: _file(entry, folder), folder, _A_PATH),
        place=fields.get("place", lambda entry: entry.text("the name of a place"), None),
        seed=fields.get("seed", lambda entry: entry.integer(0, SEED_MAX), None),
        nodes=fields.get("nodes", lambda entry: entry.integer(1, NODES_MAX), None),
        time_limit_ns=fields.get("time_limit", _time_limit_ns, None),
    )


def _file(item: Item, folder: Path) -> Path:
    file = folder / item.text(_A_PATH)
    tidy = Path(os.path.normpath(file))
    # Where a folder is a symbolic link, the way up from it is not the way back.
    return tidy if not file.exists() or (tidy.exists() and tidy.samefile(file)) else file


def _time_limit_ns(item: Item) -> int:
    try:
        return parse_duration_ns(item.text(A_DURATION))
    except ValueError as problem:
        raise Wrong(item.found(), str(problem)) from None
