"""What a mutant does in the simulation, the same file shows on real nodes; and the true node is not accused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fencepost.scenario import Scenario, load
from fencepost.simulation import simulate
from tests.docs.markdown import DOCS, ROOT, table
from tests.fencepost.test_runs import finish, start

STORIES = sorted((ROOT / "workloads" / "stories").glob("*.yaml"))
EACH = pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)

#: A real disk may keep what was not synced, and a busy machine may miss a moment of a story.
TRIES = 5


def simulated(path: Path, seed: int | None = None) -> Scenario:
    scenario = load(path)
    return replace(scenario, place="sim", seed=scenario.seed if seed is None else seed)


@EACH
def test_a_story_shows_its_mutant_and_not_the_true_node(path: Path) -> None:
    scenario = simulated(path)
    assert scenario.mutant is not None
    assert set(scenario.expect.invalid) <= set(simulate(scenario).violated)
    true = simulate(replace(scenario, mutant=None))
    assert (true.failure, true.violated) == (None, ())


@EACH
def test_no_seed_accuses_the_true_node(path: Path) -> None:
    for seed in range(2, 6):
        assert simulate(replace(simulated(path, seed), mutant=None)).violated == ()


@pytest.mark.slow
@EACH
def test_a_story_shows_on_real_nodes(path: Path, tmp_path: Path) -> None:
    (wanted,) = load(path).expect.invalid
    for _ in range(TRIES):
        run = start("repro", path, "--place", "local", "--json", cwd=tmp_path)
        _, stdout, _ = finish(run, 120)
        document = json.loads(stdout)
        if wanted in document["claims"]:
            return
    pytest.fail(f"{TRIES} runs on real nodes do not show {wanted}")


@pytest.mark.slow
@EACH
def test_true_real_nodes_stand_it(path: Path, tmp_path: Path) -> None:
    scenario = path.read_text(encoding="utf-8").splitlines()
    true = "\n".join(line for line in scenario if not line.startswith(("mutant:", "expect:")))
    (tmp_path / path.name).write_text(true, encoding="utf-8")
    code, stdout, stderr = finish(start("repro", path.name, "--place", "local", "--json", cwd=tmp_path), 120)
    assert code == 0, (json.loads(stdout)["claims"], stderr)


def test_the_guide_names_each_story() -> None:
    rows = {row[0].strip("`"): row[1].strip("`") for row in table(DOCS / "simulation.md", "On real nodes")}
    assert rows == {path.stem: load(path).mutant for path in STORIES}
