"""The shipped recipes about members, data on disk, failovers and waiters have teeth: each mutant that the guide names
with one is found there, and the true node is not accused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from cluster.mutants import MUTANTS
from fencepost.matrix import SUITED
from fencepost.scenario import load
from fencepost.simulation import simulate
from tests.docs.markdown import DOCS, ROOT, table

SCENARIOS = ROOT / "workloads" / "scenarios"
GUIDE = DOCS / "scenarios.md"

#: A seed with which the mutant is found, beside the claim that finds it.
FOUND = [
    ("damaged-disk", "cuts-at-damage", 1, "fencing"),
    ("rejoin-without-prevote", "no-pre-vote", 1, "recovery"),
    ("replace-cut-off", "removed-before-commit", 5, "fencing"),
    ("rolling-membership", "overlapping-changes", 2, "agreement"),
    ("timer-lost-on-failover", "timers-not-armed", 1, "leases"),
    ("leader-dies-before-ghost-cleanup", "timers-not-armed", 2, "ghosts"),
    ("waiter-timeout-race", "grant-after-timeout", 1, "linearizable"),
    ("waiter-outlives-lease", "lease-from-queueing", 1, "leases"),
]

#: One of them in each run of the tests; all of them take a minute.
EACH = [
    pytest.param(*story, marks=() if story[0] == "replace-cut-off" else pytest.mark.slow, id=f"{story[0]}-{story[1]}")
    for story in FOUND
]


@pytest.mark.parametrize(("name", "mutant", "seed", "claim"), EACH)
def test_a_mutant_is_found_where_the_guide_says(name: str, mutant: str, seed: int, claim: str) -> None:
    scenario = replace(load(SCENARIOS / f"{name}.yaml"), place="sim", seed=seed)
    broken, true = simulate(replace(scenario, mutant=mutant)), simulate(scenario)
    assert claim in broken.violated, broken.failure
    assert true.failure is None
    assert true.violated == ()


def test_old_data_on_every_node_grants_tokens_again_and_the_guide_says_so() -> None:
    scenario = load(SCENARIOS / "backup-restore.yaml")
    ran = simulate(replace(scenario, place="sim", seed=1))
    assert ran.results is not None
    assert scenario.expect.invalid == ("fencing",)
    assert scenario.expect.met_by(ran.results)
    assert "resource" not in ran.violated, "the guard refuses what was granted once more"


def test_the_guide_names_these_recipes_and_their_mutants() -> None:
    rows = {row[0].strip("`"): row[2] for row in table(GUIDE, "Recipes")}
    told = {name: set(re.findall(r"`([a-z-]+)`", cell)) for name, cell in rows.items()}
    for name, mutants in told.items():
        assert (SCENARIOS / f"{name}.yaml").exists()
        assert mutants <= set(MUTANTS)
    for name, mutant, _, _ in FOUND:
        assert mutant in told[name]
        assert name in SUITED[mutant], "so that the kill matrix looks there"
