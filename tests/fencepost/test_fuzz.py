"""Fuzzing: seeds give variants, violations are found and made small, nothing is counted twice, mutants are hunted."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from fencepost import fuzz, matrix, quorum, runner, sequence, shrink, simpler
from fencepost import scenario as scenarios
from fencepost.exits import Exit
from fencepost.fuzz import Job, Ran, Tally
from fencepost.scenario import Expectation, Scenario
from fencepost.scenario.rules import complaints
from fencepost.simulation import Simulated, simulate
from fencepost.variants import changed, seeds_of, variant
from nemesis.spec import FaultSpec

FOLDER = Path(__file__).parents[2] / "workloads" / "scenarios"


def shipped(name: str, **changes: Any) -> Scenario:
    return replace(runner.load(FOLDER / f"{name}.yaml"), **changes)


class Here(Executor):
    """Runs what it is given at once; `breaks` says for which call the worker dies instead."""

    def __init__(self, breaks: Callable[[], bool] = lambda: False) -> None:
        self._breaks = breaks

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if self._breaks():
            future.set_exception(BrokenProcessPool("a worker died"))
        else:
            future.set_result(fn(*args, **kwargs))
        return future


def fuzzed(scenario: Scenario, seeds: range, *, keep_going: bool = False, executor: Executor | None = None) -> Tally:
    pool = executor or Here()
    return fuzz.fuzz(
        fuzz.jobs([scenario], seeds),
        lambda: pool,
        lambda _: 1,
        keep_going=keep_going,
        for_s=None,
        observe=lambda *_: None,
    )


def test_the_true_lockd_has_no_violation() -> None:
    tally = fuzzed(shipped("mutex-kills"), range(4))
    assert (tally.exit, tally.runs, tally.twice) == (Exit.VALID, 4, 1)
    assert tally.coverage["operations"] > 500
    assert tally.simulated_s > 60
    assert "4 seeds" in tally.words()


def test_the_first_violation_ends_it_and_keep_going_collects() -> None:
    broken = shipped("every-node-grants", expect=Expectation())
    tally = fuzzed(broken, range(50))
    assert tally.exit is Exit.VIOLATED
    assert tally.runs <= 4
    assert "mutual-exclusion" in tally.found[0].violated
    assert "token" in tally.found[0].message
    assert len(fuzzed(broken, range(3), keep_going=True).found) == 3


def test_a_violation_that_is_expected_is_no_finding() -> None:
    restored = shipped("backup-restore")
    tally = fuzzed(restored, range(1))
    assert (tally.found, tally.as_expected, tally.exit) == ([], 1, Exit.VALID)
    assert "violations 0, and 1 that were expected" in tally.words()
    surprised = fuzzed(replace(restored, expect=Expectation()), range(1))
    assert (len(surprised.found), surprised.as_expected, surprised.exit) == (1, 0, Exit.VIOLATED)


def test_a_worker_that_dies_costs_nothing_but_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def work(job: Job) -> Ran:
        ran.append(job.seed)
        return Ran("s", job.seed, (), "valid", 1.0, {})

    monkeypatch.setattr(fuzz, "work", work)
    calls = itertools.count()
    tally = fuzzed(shipped("mutex-kills"), range(20), executor=Here(lambda: next(calls) in (3, 7)))
    assert tally.runs == 20
    assert set(ran) == set(range(20))


def test_a_worker_that_dies_of_its_seed_again_and_again_is_told() -> None:
    with pytest.raises(RuntimeError, match="seed 0 of mutex-kills died 3 times"):
        fuzzed(shipped("mutex-kills"), range(3), executor=Here(lambda: True))


def test_a_simulation_that_differs_is_a_failure_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = itertools.count()
    monkeypatch.setattr(fuzz, "_digest", lambda _: bytes([next(numbers)]))
    tally = fuzzed(shipped("mutex-kills", time_limit_ns=2 * 10**9, nemesis=()), range(1))
    assert tally.exit is Exit.HARNESS
    assert "not deterministic" in (tally.failed[0].failure or "")


def test_runs_that_reach_something_new_are_kept_and_changed() -> None:
    plan = shipped("mutex-kills", time_limit_ns=2 * 10**9, nemesis=())
    guide = fuzz.Guide(fuzz.jobs([plan], range(4)))
    ran: list[Ran] = []
    tally = fuzz.fuzz(guide, Here, lambda _: 1, keep_going=True, for_s=None, observe=lambda _, one: ran.append(one))
    planned, guided = [one for one in ran if one.plan is None], [one for one in ran if one.plan is not None]
    assert [one.seed for one in planned] == [0, 1, 2, 3]
    assert len(guided) == 2
    assert all(one.plan is not None and not list(complaints(one.plan)) for one in guided)
    assert tally.edges == set().union(*(one.edges for one in ran))
    assert tally.grown[0] == (1, len(ran[0].edges))
    assert f"edges {len(tally.edges):,}" in tally.words()
    again = simulate(guided[0].plan or plan)
    assert again.edges == guided[0].edges


def test_a_change_is_the_same_for_the_same_number() -> None:
    base = variant(shipped("mutex-partitions"), 7)
    some = [changed(base, number) for number in range(40)]
    assert some == [changed(base, number) for number in range(40)]
    assert all(not list(complaints(one)) for one in some)
    assert len({(one.workload, one.nemesis) for one in some}) > 10
    assert {one.place for one in some} == {"sim"}


@pytest.mark.parametrize("seed", [1, 2])
def test_a_majority_by_itself_has_to_serve_when_that_is_demanded(seed: int) -> None:
    plan = shipped("mutex-kills", time_limit_ns=2 * 10**9, nemesis=(), coverage={}, place="sim", seed=seed)
    run = simulate(replace(plan, nodes=5, recovery="quorum", checks=("recovery", "linearizable")))
    alone, all_nodes = [event.value or {} for event in run.events if event.f == "ready"]
    assert (len(alone["nodes"]), "nodes" in all_nodes) == (3, False)
    assert tuple(alone["nodes"]) == quorum.drawn([f"n{number}" for number in range(1, 6)], seed)
    assert run.results is not None
    assert run.results.claims["recovery"].verdict == "valid"


def test_variants_are_sound_differ_and_are_the_same_for_the_same_seed() -> None:
    base = shipped("older-term-commit")
    variants = [variant(base, seed) for seed in range(60)]
    assert variants == [variant(base, seed) for seed in range(60)]
    assert all(not list(complaints(one)) for one in variants)
    assert {one.nodes for one in variants} >= {3, 5}
    assert len({(one.workload.clients, one.workload.keys, one.workload.lease_ms, one.nemesis) for one in variants}) > 30
    assert variants[0].workload == base.workload


@pytest.mark.parametrize(("text", "seeds"), [("3", range(3, 4)), ("0..9", range(10))])
def test_seeds_are_read(text: str, seeds: range) -> None:
    assert seeds_of(text) == seeds


@pytest.mark.parametrize("text", ["", "a..b", "5..2", "-1..3"])
def test_nonsense_is_no_seeds(text: str) -> None:
    with pytest.raises(ValueError, match="seeds"):
        seeds_of(text)


def test_a_simulated_scenario_is_its_own_repro() -> None:
    plan = shipped("mutex-partitions", place="sim")
    assert scenarios.resolved(plan, ()) == plan


def test_a_failure_is_made_small_and_fails_the_same_way(tmp_path: Path) -> None:
    plan = shipped("late-ghost-release", mutant="ghost-clean-up-any-holder", place="sim", seed=0, nodes=3)
    steps: list[shrink.Step] = []
    shrinker = shrink.Shrinker("mutual-exclusion", steps.append, budget_s=8.0, clock=time.process_time)
    best = shrinker.shrink(plan)
    assert steps
    small = tmp_path / "small.yaml"
    small.write_text(scenarios.dump(best.scenario))
    again = scenarios.load(small)
    assert again.expect.invalid == ("mutual-exclusion",)
    run = simulate(again)
    assert "mutual-exclusion" in run.violated
    assert list(run.events) == list(best.events)
    invoked = [event for event in run.events if event.type == "invoke"]
    assert len(invoked) < 1_000
    assert len(again.nemesis) <= 3
    assert run.results is not None
    finding = run.results.claims["mutual-exclusion"].findings[0]
    story = sequence.mermaid(run.events, finding)
    assert story.startswith("sequenceDiagram\n")
    assert "part of the finding" in story
    picture = sequence.svg(run.events, finding)
    assert ElementTree.fromstring(picture).tag == "{http://www.w3.org/2000/svg}svg"
    assert "part of the finding" in picture


def test_operations_become_steps_of_which_few_are_needed() -> None:
    """Candidates are refused unless the claim is still violated, so what is left is what it takes."""
    plan = shipped("release-retry-steals", mutant="release-ignores-token", place="sim", time_limit_ns=4 * 10**9)
    shrinker = shrink.Shrinker("linearizable", lambda _: None, budget_s=20.0, clock=time.process_time)
    first = simulate(plan)
    best = shrinker.shrink(plan)
    assert shrink.operations(first) > 100
    faults, operations, nodes = shrink.measures(best)
    assert (faults <= 3, operations <= 12, nodes <= 3) == (True, True, True)
    assert best.scenario.workload.steps is not None
    assert "linearizable" in simulate(best.scenario).violated


def test_nodes_that_faults_name_stay_with_them_when_others_go() -> None:
    cut = FaultSpec("partition", None, at_ns=10**9, for_ns=10**9, cuts=(("n5", "n4"), ("n4", "n5")))
    kill = FaultSpec("kill", ("n5",), at_ns=10**9, for_ns=10**9)
    plan = shipped("mutex-kills", nodes=5, nemesis=(kill, cut), coverage={})
    smaller = list(simpler.fewer_nodes(Simulated(plan, (), None, ())))
    renamed = next(one for one in smaller if one.nodes == 3 and one.nemesis[0].target == ("n1",))
    assert renamed.nemesis[1].cuts == (("n1", "n2"), ("n2", "n1"))
    assert not list(complaints(renamed))


def test_what_violates_nothing_cannot_be_shrunk() -> None:
    plan = shipped("mutex-kills", time_limit_ns=2 * 10**9, nemesis=(), place="sim")
    with pytest.raises(shrink.NothingToShrink, match="no claim is violated"):
        shrink.Shrinker(None, lambda _: None, 5.0).shrink(plan)


@pytest.mark.parametrize(
    ("mutant", "claim"),
    [
        ("believed-unconfirmed", "mutual-exclusion"),
        ("dead-waiter-blocks", "ghosts"),
        ("lease-from-queueing", "leases"),
        ("lease-restarted-by-leader", "leases"),
        ("lease-on-wall-clock", "leases"),
        ("no-ghost-clean-up", "ghosts"),
        ("answers-before-fsync", "agreement"),
    ],
)
def test_a_mutant_is_found_by_a_claim_that_is_meant_for_it(mutant: str, claim: str) -> None:
    hunt = matrix.hunt(mutant, matrix.scenarios_for(mutant), 5, first_seed=0)
    assert claim in hunt.claims, hunt.words()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutant", "claim"),
    [
        ("not-held-from-projection", "linearizable"),
        ("older-term-commit", "agreement"),
        ("reads-before-term-start", "linearizable"),
        ("vote-not-persisted", "agreement"),
    ],
)
def test_a_mutant_that_shows_in_one_sequence_is_led_there(mutant: str, claim: str) -> None:
    hunt = matrix.hunt(mutant, matrix.scenarios_for(mutant), 100, first_seed=0)
    assert claim in hunt.claims, hunt.words()


def test_every_mutant_has_scenarios_meant_for_it() -> None:
    assert set(matrix.SUITED) == set(matrix.all_names())
    assert all((FOLDER / f"{name}.yaml").exists() for names in matrix.SUITED.values() for name in names)


def test_the_matrix_tells_medians_and_what_was_not_found() -> None:
    found = matrix.Hunt("no-noop", "s", 3, 1.5, ("ghosts",))
    missed = matrix.Hunt("no-noop", "s", 9, 4.5, ())
    page = matrix.table([matrix.Row("no-noop", (found, found, missed)), matrix.Row("votes-twice", (missed,))], 9)
    assert "hunted 1 to 3 times from different seeds, for 9 seeds at most" in page
    assert "1 of 2 mutants were found, 0 of them in every hunt, 0 of them within 100 seeds" in page
    assert "| 2 of 3 | 3 | 1.5 | `ghosts` |  |" in page
    assert "| none |" in page


def test_a_matrix_goes_on_with_the_hunts_that_it_lacks() -> None:
    kept = matrix.Hunt("every-node-grants", "every-node-grants", 1, 1.0, ("linearizable",), "said", 1)
    row = matrix.Row("every-node-grants", (kept,), matrix.Trace("every-node-grants", "election safety", 2, 6, 0.1))
    assert matrix.Row.from_dict(row.to_dict()) == row
    with ThreadPoolExecutor(1) as pool:
        (done,) = matrix.rows([row], seeds=1, repeats=2, pool=pool)
    assert done.hunts[0] == kept
    assert done.hunts[1].first_seed == 1 + matrix.SEED_STRIDE
    assert "2 events, 6 states: election safety" in matrix.table([done], 1)
