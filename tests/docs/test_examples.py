"""README.md and docs/scenarios.md: their scenarios can be loaded, their messages are those that are given, and their
tables name what there is, all of it and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checker import CLAIMS, COVERAGE, COVERAGE_KEYS
from checker.coverage import FAULT_KINDS
from cluster import mutants, places
from cluster.places.base import Capability, usable
from cluster.systems.base import Feature
from cluster.systems.lockd import Lockd
from fencepost import quantities, scenario, suite_file
from fencepost.explore_command import app
from fencepost.outcome import Status
from fencepost.scenario import reader
from fencepost.scenario.reader import FIELDS, MOMENT_FIELDS, RESOURCE_FIELDS, WORKLOAD_FIELDS
from nemesis.kinds import KINDS, Aim, Form, Value
from nemesis.spec import CLIENT_TARGETS, SHAPES, TARGETS
from tests.docs.markdown import DOCS, ROOT, Block, blocks, first_column, table
from workloads import kinds

README = ROOT / "README.md"
GUIDE = DOCS / "scenarios.md"
SCENARIOS = [block for file in (README, GUIDE) for block in blocks(file, "yaml")]
WRONG = list(zip(blocks(GUIDE, "yaml wrong"), blocks(GUIDE, "text"), strict=True))


@pytest.mark.parametrize("block", SCENARIOS, ids=str)
def test_every_scenario_can_be_loaded(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text(block.text)
    loaded = scenario.load(path)
    path.write_text(scenario.dump(loaded))
    assert scenario.load(path) == loaded


def test_there_are_scenarios_in_both() -> None:
    assert {block.file for block in SCENARIOS} == {README, GUIDE}


@pytest.mark.parametrize("pair", WRONG, ids=lambda pair: str(pair[0]))
def test_every_mistake_is_answered_as_shown(
    pair: tuple[Block, Block], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.yaml").write_text(pair[0].text)
    with pytest.raises(scenario.ScenarioError) as refusal:
        scenario.load(Path("my.yaml"))
    assert str(refusal.value) == pair[1].text.rstrip("\n")


def test_the_suite_can_be_loaded(tmp_path: Path) -> None:
    (block,) = blocks(GUIDE, "yaml suite")
    (tmp_path / "workloads").symlink_to(ROOT / "workloads")
    (tmp_path / "suites").mkdir()
    path = tmp_path / "suites" / "nightly.yaml"
    path.write_text(block.text)
    assert [entry.load().name for entry in suite_file.load(path).entries] == ["mutex-kills", "mutex-kills"]


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("Fields", FIELDS),
        ("Workload", WORKLOAD_FIELDS + RESOURCE_FIELDS),
        ("Kinds of workload", kinds.names()),
        ("Nemesis", reader.FAULT_FIELDS),
        ("Faults of nodes", [name for name, kind in KINDS.items() if kind.aims is Aim.NODES]),
        ("Faults of links", [name for name, kind in KINDS.items() if kind.aims is Aim.LINKS]),
        ("Faults of clients", [name for name, kind in KINDS.items() if kind.aims is Aim.CLIENTS]),
        ("Targets", [*TARGETS, *CLIENT_TARGETS]),
        ("Shapes", SHAPES),
        ("Moments", MOMENT_FIELDS),
        ("Checks", CLAIMS),
        ("Coverage", COVERAGE_KEYS),
        ("Mutants", mutants.names()),
        ("Places", places.names()),
        ("Suites", [*suite_file.FIELDS, *suite_file.ENTRY_FIELDS, *Status]),
    ],
)
def test_a_table_names_all_that_there_is_and_nothing_else(heading: str, names: list[str]) -> None:
    assert sorted(first_column(GUIDE, heading)) == sorted(names)


def test_the_readme_names_every_claim_on_the_service() -> None:
    assert sorted(first_column(README, "Read a verdict")) == sorted(claim for claim in CLAIMS if claim != COVERAGE)


@pytest.mark.parametrize("file", [README, *sorted(DOCS.glob("*.md"))], ids=lambda file: file.stem)
def test_every_command_is_one_that_there_is(file: Path) -> None:
    told = re.findall(r"(?:^ +(?:\$ )?(?:\.venv/bin/)?|`)fencepost ([a-z]+)", file.read_text("utf-8"), re.MULTILINE)
    known = {one.name or one.callback.__name__ for one in app.registered_commands if one.callback is not None}
    assert set(told) <= known | {group.name for group in app.registered_groups}


def test_every_option_of_every_fault_is_there_with_its_default() -> None:
    rows = {(row[0].strip("`"), row[1].strip("`")): row[3].strip("`") for row in table(GUIDE, "Options")}
    known = {(kind, name): parameter for kind in KINDS for name, parameter in KINDS[kind].parameters.items()}
    assert sorted(rows) == sorted(known)
    for option, parameter in known.items():
        if parameter.required:
            assert rows[option] == "needed"
        elif parameter.default is not None:
            assert rows[option] == _written(parameter.form, parameter.default)


def _written(form: Form, value: Value) -> str:
    match value:
        case (int(low), int(high)):
            return quantities.format_range_ms((low, high))
        case float() if form is Form.SHARE:
            return f"{value:.0%}"
    return str(value)


def test_every_assumption_is_there(tmp_path: Path) -> None:
    path = tmp_path / "example.yaml"
    path.write_text("assumptions: {no: 1}")
    with pytest.raises(scenario.ScenarioError) as refusal:
        scenario.load(path)
    assert f"expected one of {', '.join(first_column(GUIDE, 'Assumptions'))}\n" in f"{refusal.value}\n"


@pytest.mark.parametrize("place", places.names())
def test_what_a_place_cannot_do_is_there(place: str) -> None:
    able = usable(places.load(place).capabilities, Lockd())
    unable = sorted(name for name, kind in KINDS.items() if kind.needs is not None and kind.needs not in able)
    told = {row[0].strip("`"): row[2] for row in table(GUIDE, "Places")}
    assert sorted(name for name in KINDS if f"`{name}`" in told[place]) == unable


def test_who_can_turn_the_wall_clock_is_there() -> None:
    (told,) = [line for line in GUIDE.read_text("utf-8").splitlines() if line.startswith("The clock `wall` can be")]
    for place in places.names():
        if Capability.TURN_WALL_CLOCKS in places.load(place).capabilities:
            assert f"`{place}`" in told


def test_what_a_fault_counts_for_is_there() -> None:
    told = {row[0].strip("`"): row[1] for row in table(GUIDE, "Coverage")}
    for demand, faults in FAULT_KINDS.items():
        assert sorted(faults) == sorted(name for name in KINDS if f"`{name}`" in told[demand])


def test_every_feature_of_a_system_is_there() -> None:
    text = (DOCS / "systems.md").read_text(encoding="utf-8")
    for feature in Feature:
        assert f"`Feature.{feature.name}`" in text
