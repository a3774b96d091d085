from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.scenario import ScenarioError
from fencepost.suite_file import Suite, SuiteEntry, is_suite, load

S = 1_000_000_000

SCENARIO = """\
time_limit: 60s
workload: {kind: mutex, clients: 4, keys: 3, rate: 200/s, lease: 2s, hold: 50ms..500ms}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "suites").mkdir()
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "kills.yaml").write_text(SCENARIO)
    return tmp_path


def written(folder: Path, text: str) -> Path:
    path = folder / "suites" / "nightly.yaml"
    path.write_text(text)
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(path)
    return [str(problem).removeprefix(f"{path}:").strip() for problem in caught.value.problems]


def test_a_suite_lists_scenarios_and_changes_them(folder: Path) -> None:
    path = written(
        folder,
        "suite: every night\n"
        "description: twice the same\n"
        "scenarios:\n"
        "  - ../scenarios/kills.yaml\n"
        "  - {scenario: ../scenarios/kills.yaml, seed: 7, nodes: 3, time_limit: 5m}\n",
    )
    file = folder / "scenarios" / "kills.yaml"
    suite = load(path)
    assert suite == Suite("every night", "twice the same", (SuiteEntry(file), SuiteEntry(file, None, 7, 3, 300 * S)))
    plain, changed = (entry.load() for entry in suite.entries)
    assert (plain.seed, plain.nodes, plain.time_limit_ns) == (0, 5, 60 * S)
    assert (changed.seed, changed.nodes, changed.time_limit_ns) == (7, 3, 300 * S)


def test_a_suite_behind_a_symbolic_link_finds_its_scenarios(folder: Path) -> None:
    """The system goes up from where the link points to, not from where it stands."""
    written(folder, "scenarios: [../scenarios/kills.yaml]\n")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "link").symlink_to(folder / "suites")
    [entry] = load(folder / "elsewhere" / "link" / "nightly.yaml").entries
    assert entry.file.samefile(folder / "scenarios" / "kills.yaml")


def test_a_suite_is_named_after_its_file_where_it_does_not_say(folder: Path) -> None:
    assert load(written(folder, "scenarios: [../scenarios/kills.yaml]\n")).name == "nightly"


def test_what_a_suite_changes_is_validated_with_its_scenario(folder: Path) -> None:
    path = written(folder, "scenarios:\n  - {scenario: ../scenarios/kills.yaml, time_limit: 1s}\n")
    with pytest.raises(ScenarioError, match=r"workload\.lease: found a lease of 2s in a run of 1s"):
        load(path).entries[0].load()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("suite: empty\n", ["scenarios: found nothing; expected a list of scenario files"]),
        ("scenarios: []\n", ["1: scenarios: found an empty list; expected at least one scenario file"]),
        ("scenarios: kills.yaml\n", ["1: scenarios: found 'kills.yaml'; expected a list of scenario files"]),
        (
            "scenario: []\n",
            [
                "scenarios: found nothing; expected a list of scenario files",
                "1: scenario: found an unknown field; expected one of suite, description, scenarios"
                " (did you mean scenarios?)",
            ],
        ),
        ("- a\n", ["found a list; expected fields: suite, description, scenarios"]),
        (
            "scenarios:\n  - ../scenarios/kills.yaml\n  - 7\n  - {seed: -1}\n  - {scenario: ../scenarios, sed: 1}\n",
            [
                "3: scenarios[1]: found '7'; expected the path of a scenario file, relative to this one",
                "4: scenarios[2].scenario: found nothing; expected the path of a scenario file, relative to this one",
                "4: scenarios[2].seed: found '-1'; expected a whole number from 0 to 9223372036854775807",
                "5: scenarios[3].sed: found an unknown field; expected one of scenario, place, seed, nodes, "
                "time_limit (did you mean seed?)",
            ],
        ),
        (
            "scenarios:\n  - {scenario: ../scenarios/kills.yaml, time_limit: 5, nodes: many, place: [local]}\n",
            [
                "2: scenarios[0].place: found a list; expected the name of a place",
                "2: scenarios[0].nodes: found 'many'; expected a whole number from 1 to 99",
                "2: scenarios[0].time_limit: found '5'; expected a number with a unit, such as 500ms, 60s or 2m",
            ],
        ),
    ],
)
def test_mistakes_are_named(folder: Path, text: str, expected: list[str]) -> None:
    assert problems(written(folder, text)) == expected


@pytest.mark.parametrize(
    ("text", "suite"),
    [
        ("scenarios: []\n", True),
        ("suite: x\n", True),
        (SCENARIO, False),
        ("- scenarios\n", False),
        ("scenarios: [\n", False),
        ("", False),
    ],
)
def test_what_means_to_be_a_suite(folder: Path, text: str, suite: bool) -> None:
    assert is_suite(written(folder, text)) is suite
