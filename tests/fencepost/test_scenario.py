"""Reading, writing and changing scenarios that are in order; mistakes are in test_scenario_problems.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import checker
from checker import EXCUSABLE, NEVER_INVALID
from checker.verdict import ClaimResult, Finding, Results, Verdict
from cluster import mutants, places, systems
from cluster.places.base import usable
from fencepost import suite_file
from fencepost.scenario import Expectation, Scenario, ScenarioError, chaos, dump, load, override, resolved
from nemesis.kinds import KINDS, Aim, Form, Value, parameters
from nemesis.spec import CLIENT_TARGETS, SHAPES, TARGETS, FaultSpec, Moment, validate
from nemesis.swarm import RANDOM_THROUGHOUT
from workloads import kinds
from workloads.spec import Step, WorkloadSpec

WORKLOADS = Path(kinds.__file__).parent
SHIPPED = sorted((WORKLOADS / "scenarios").glob("*.yaml"))
MS, S = 1_000_000, 1_000_000_000
TIME_LIMIT_NS = 3600 * S

LEAST = """\
time_limit: 60s
workload: {kind: mutex, clients: 4, keys: 3, rate: 200/s, lease: 2s, hold: 50ms..500ms}
"""

FULL = """\
name: majority-partition-with-kills
system: lockd
place: local
nodes: 5
seed: 42                 # every random choice of the run comes from it
time_limit: 60s
assumptions: {clock_error: 1%}
workload: {kind: mutex, clients: 10, keys: 3, rate: 200/s, lease: 2s, hold: 50ms..500ms, overrun: 2%, reads: 0.25}
nemesis:
  - {fault: partition, shape: majorities-ring, every: 10s, for: 5s}
  - {fault: kill, target: leader, at: 12s, for: 3s}
  - {fault: pause, target: [n1, n2], at: 15.5s, every: 20s, for: 500ms}
  - {fault: partition, cuts: [[n1, n2], [n2, n1]], at: 1s, for: 1s}
checks: [linearizable, mutual-exclusion, fencing]
coverage: {leader_changes: 2, expiries: 5}
expect: {invalid: [fencing]}
"""


def written(folder: Path, text: str, name: str = "scenario.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_full_scenario(tmp_path: Path) -> None:
    path = written(tmp_path, FULL)
    scenario = load(path)
    assert scenario == Scenario(
        name="majority-partition-with-kills",
        system="lockd",
        mutant=None,
        place="local",
        nodes=5,
        seed=42,
        time_limit_ns=60 * S,
        clock_error=0.01,
        workload=WorkloadSpec("mutex", 10, 3, 200.0, 2000, (50, 500), overrun=0.02, reads=0.25),
        nemesis=(
            FaultSpec("partition", shape="majorities-ring", every_ns=10 * S, for_ns=5 * S),
            FaultSpec("kill", target="leader", at_ns=12 * S, for_ns=3 * S),
            FaultSpec("pause", target=("n1", "n2"), at_ns=15_500 * MS, every_ns=20 * S, for_ns=500 * MS),
            FaultSpec("partition", cuts=(("n1", "n2"), ("n2", "n1")), at_ns=1 * S, for_ns=1 * S),
        ),
        checks=("linearizable", "mutual-exclusion", "fencing"),
        coverage={"leader_changes": 2, "expiries": 5},
        expect=Expectation(("fencing",)),
    )
    assert scenario.path == path
    assert scenario.node_names() == ("n1", "n2", "n3", "n4", "n5")


def test_what_a_scenario_does_not_say(tmp_path: Path) -> None:
    scenario = load(written(tmp_path, LEAST, "least.yaml"))
    assert (scenario.name, scenario.system, scenario.place, scenario.nodes, scenario.seed) == (
        "least",
        "lockd",
        "local",
        5,
        0,
    )
    assert scenario.checks == checker.DEFAULT_CLAIMS
    assert scenario.nemesis == ()
    assert scenario.coverage == {}
    assert scenario.expect == Expectation()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_scenario_is_in_order_and_named_after_its_file(path: Path) -> None:
    assert load(path).name == path.stem


def test_the_suites_that_are_shipped_are_in_order() -> None:
    suites = sorted((WORKLOADS / "suites").glob("*.yaml"))
    assert [path.stem for path in suites] == ["smoke"]
    for path in suites:
        suite = suite_file.load(path)
        scenarios = [entry.load() for entry in suite.entries]
        assert len(scenarios) >= 4
        assert any(scenario.mutant and scenario.expect.invalid for scenario in scenarios)
        assert sum(scenario.time_limit_ns for scenario in scenarios) < 100 * S


def test_the_demo_demands_what_it_promises() -> None:
    demo = load(WORKLOADS / "scenarios" / "demo.yaml")
    assert (demo.nodes, demo.workload.clients, demo.time_limit_ns) == (5, 10, 45 * S)
    for name, least in (("leader_changes", 2), ("partitions", 1), ("kills", 1), ("pauses", 1), ("operations", 2000)):
        assert demo.coverage[name] >= least


# ---- round trip

milliseconds = st.integers(1, 3_600_000 - 1)
shares = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.5, 1.0]))
names = st.text(min_size=1, max_size=100).filter(lambda name: name.strip() != "" and name.isprintable())
nodes = tuple(f"n{number}" for number in range(1, 8))


wait_parts = st.sampled_from([(), (("abandon_ms", 20),)])
acquires = st.builds(
    Step,
    at_ns=st.integers(0, 10**12),
    client=st.just(0),
    do=st.just("acquire"),
    key=st.just("k1"),
    value=wait_parts.map(lambda more: (("lease_ms", 700), ("wait_ms", 0), *more)),
)
others = st.builds(
    Step,
    at_ns=st.integers(0, 10**12),
    client=st.just(0),
    do=st.sampled_from(("release", "inspect")),
    key=st.just("k1"),
    value=st.sampled_from([(("token", 3),), (("token", 2**40),)]),
    grant=st.none() | st.just("first"),
)
steps = st.tuples(acquires, st.lists(others, max_size=3)).map(
    lambda parts: (replace(parts[0], grant="first"), *parts[1])
)


@st.composite
def workload_specs(draw: st.DrawFn) -> WorkloadSpec:
    kind = draw(st.sampled_from(kinds.names()))
    lease_ms = draw(st.integers(2, 3_600_000 - 1))
    hold = sorted(draw(st.tuples(st.integers(0, lease_ms - 1), st.integers(0, lease_ms - 1))))
    delay = sorted(draw(st.tuples(milliseconds, milliseconds)))
    return WorkloadSpec(
        kind=kind,
        clients=draw(st.integers(1, 100)),
        keys=draw(st.integers(1, 100)),
        rate=draw(st.floats(1e-3, 1e6)),
        lease_ms=lease_ms,
        hold_ms=(hold[0], hold[1]),
        wait_ms=draw(st.integers(0, 3_600_000 - 1)),
        overrun=draw(shares),
        reads=draw(shares),
        timeout_ms=draw(milliseconds),
        write_delay_ms=(delay[0], delay[1]) if kinds.uses_resource(kind) else (0, 20),
        steps=draw(st.none() | steps),
    )


spans_ms = st.tuples(st.integers(20, 2000), st.integers(0, 2000)).map(lambda ends: (ends[0], sum(ends)))

VALUES: dict[Form, st.SearchStrategy[Value]] = {
    Form.SPAN: spans_ms,
    Form.STEP: st.integers(-(10**15), 10**15).filter(bool),
    Form.FACTOR: st.floats(0.01, 100).filter(lambda factor: factor != 1),
    Form.SPEED: st.integers(100, 10**12 - 1),
    Form.SIZE: st.integers(64, 10**6),
    Form.SHARE: st.floats(0, 1, exclude_min=True),
    Form.MEMORY: st.integers(2**20, 2**45),
    Form.PORT: st.just("main"),
    Form.PATTERN: st.sampled_from(["*", "log", "snap/*"]),
    Form.CHOICE: st.sampled_from(["remove", "replace"]),
    Form.CLOCK: st.sampled_from(["lease", "wall"]),
    Form.KINDS: st.lists(st.sampled_from(sorted(set(KINDS) - {"random"})), unique=True, min_size=1).map(tuple),
}


@st.composite
def options(draw: st.DrawFn, kind: str) -> tuple[tuple[str, Value], ...]:
    return tuple(
        (name, draw(VALUES[parameter.form]))
        for name, parameter in sorted(parameters(kind).items())
        if parameter.required or draw(st.booleans())
    )


moments = st.none() | st.one_of(
    st.builds(
        Moment,
        log=st.sampled_from(["role=leader", "a|b", "x{2}"]),
        after_ns=st.integers(0, 900).map(lambda n: n * 10**6),
    ),
    st.builds(Moment, counter=st.just("grants"), grows=st.integers(1, 9)),
)


@st.composite
def fault_specs(draw: st.DrawFn) -> FaultSpec:
    kind = draw(st.sampled_from(["partition", *KINDS]))
    spec = draw(aimed_specs(kind))
    return replace(spec, options=draw(options(kind)), when=draw(moments))


@st.composite
def aimed_specs(draw: st.DrawFn, fault: str) -> FaultSpec:
    for_ns = draw(st.integers(500 * MS, 600 * S))
    at_ns = draw(st.none() | st.integers(0, 1000 * S))
    every_ns = draw(
        st.integers(for_ns + 1, 1000 * S) if at_ns is None else st.none() | st.integers(for_ns + 1, 1000 * S)
    )
    listed = st.lists(st.sampled_from(nodes), min_size=1, max_size=7, unique=True).map(tuple)
    if fault == "random":
        return FaultSpec(fault, at_ns=at_ns, every_ns=every_ns, for_ns=for_ns)
    if fault == "client-pause":
        clients = st.lists(st.sampled_from(["client-0", "client-1"]), min_size=1, unique=True).map(tuple)
        target = draw(st.sampled_from(CLIENT_TARGETS) | clients)
        return FaultSpec(fault, target, at_ns=at_ns, every_ns=every_ns, for_ns=for_ns)
    if KINDS[fault].aims is Aim.NODES or (fault != "partition" and draw(st.booleans())):
        processes = draw(st.sampled_from(sorted(TARGETS)) | listed)
        return FaultSpec(fault, processes, at_ns=at_ns, every_ns=every_ns, for_ns=for_ns)
    if draw(st.booleans()):
        links = st.tuples(st.sampled_from(nodes), st.sampled_from(nodes)).filter(lambda link: link[0] != link[1])
        cuts = draw(st.lists(links, min_size=1, max_size=20).map(tuple))
        return FaultSpec(fault, cuts=cuts, at_ns=at_ns, every_ns=every_ns, for_ns=for_ns)
    shape = draw(st.sampled_from(sorted(SHAPES)))
    target = draw(st.none() | st.sampled_from(SHAPES[shape].targets or (None,)))
    return FaultSpec(fault, target, shape, at_ns, every_ns, for_ns)


able = usable(places.load("local").capabilities, systems.create("lockd"))


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    checks = draw(st.lists(st.sampled_from(checker.CLAIMS), min_size=1, unique=True).map(tuple))
    faults = draw(st.lists(fault_specs(), max_size=5).map(tuple))
    return Scenario(
        name=draw(names),
        workload=draw(workload_specs()),
        time_limit_ns=TIME_LIMIT_NS,
        mutant=draw(st.none() | st.sampled_from(mutants.names())),
        nodes=len(nodes),
        seed=draw(st.integers(0, 2**63 - 1)),
        clock_error=draw(st.floats(0, 1, exclude_max=True)),
        nemesis=tuple(spec for spec in faults if not validate(spec, nodes, TIME_LIMIT_NS, able, clients=1)),
        recovery=draw(st.sampled_from(("all", "quorum"))),
        checks=checks,
        coverage=draw(st.dictionaries(st.sampled_from(["leader_changes", "operations"]), st.integers(0, 3))),
        expect=draw(expectations(checks)),
    )


def expectations(checks: tuple[str, ...]) -> st.SearchStrategy[Expectation]:
    def some(fit: Callable[[str], bool]) -> st.SearchStrategy[tuple[str, ...]]:
        among = [claim for claim in checks if fit(claim)]
        return st.lists(st.sampled_from(among), unique=True).map(tuple) if among else st.just(())

    invalid, excused = some(lambda claim: claim not in NEVER_INVALID), some(lambda claim: claim in EXCUSABLE)
    return st.builds(Expectation, invalid=invalid) | st.builds(Expectation, excused=excused)


@given(scenarios())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_scenario_survives_being_written(tmp_path: Path, scenario: Scenario) -> None:
    assert load(written(tmp_path, dump(scenario))) == scenario


def test_what_is_written_can_be_read_by_people(tmp_path: Path) -> None:
    text = dump(load(written(tmp_path, FULL)))
    assert "- {fault: kill, target: leader, at: 12s, for: 3s}\n" in text
    assert "rate: 200/s, lease: 2s, hold: 50ms..500ms" in text
    assert "- {fault: pause, target: [n1, n2], at: 15500ms, every: 20s, for: 500ms}\n" in text
    assert "expect: {invalid: [fencing]}\n" in text


# ---- override


def test_the_command_line_wins(tmp_path: Path) -> None:
    scenario = load(written(tmp_path, LEAST))
    changed = override(scenario, seed=7, nodes=3, time_limit_ns=30 * S)
    assert (changed.seed, changed.nodes, changed.time_limit_ns) == (7, 3, 30 * S)
    assert (changed.workload, changed.path) == (scenario.workload, scenario.path)
    assert override(scenario) == scenario
    assert override(scenario, seed=0).seed == 0


def test_what_the_command_line_says_is_validated(tmp_path: Path) -> None:
    scenario = load(written(tmp_path, FULL))
    with pytest.raises(ScenarioError) as caught:
        override(scenario, nodes=3, time_limit_ns=14 * S)
    assert [str(problem).removeprefix(f"{tmp_path}/scenario.yaml: ") for problem in caught.value.problems] == [
        "nemesis[0].shape: found majorities-ring with 3 nodes; "
        "expected at least 4 nodes (every node sees a majority, and no two see the same one)",
        "nemesis[0].every: found from 10s to 15s; expected a fault that ends within the time limit, 14s",
        "nemesis[1].at: found from 12s to 15s; expected a fault that ends within the time limit, 14s",
        "nemesis[2].at: found from 15.5s to 16s; expected a fault that ends within the time limit, 14s",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": 0}, "nodes: found 0; expected a whole number from 1 to 99"),
        ({"seed": -1}, "seed: found -1; expected a whole number from 0 to 9223372036854775807"),
        ({"time_limit_ns": 0}, "time_limit: found 0s; expected more than 0s"),
        ({"time_limit_ns": 604_801 * S}, "time_limit: found 604801s; expected at most 168h (7 days)"),
        (
            {"place": "moon"},
            "place: found 'moon'; expected one of local, docker, ssh, sim, or one of your own: package.module:Class",
        ),
    ],
)
def test_nonsense_on_the_command_line(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        override(load(written(tmp_path, LEAST)), **changes)  # type: ignore[arg-type]
    assert [str(problem) for problem in caught.value.problems] == [f"{tmp_path}/scenario.yaml: {message}"]


# ---- what a run leaves for the next


@given(st.data())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_took_place_can_be_run_again(tmp_path: Path, data: st.DataObject) -> None:
    """However few of the planned faults there were before somebody stopped the run."""
    demo = load(WORKLOADS / "scenarios" / "demo.yaml")
    happened = tuple(data.draw(st.lists(st.sampled_from(demo.nemesis), unique=True)))
    again = load(written(tmp_path, dump(resolved(demo, happened))))
    assert again.nemesis == happened
    assert again.coverage["kills"] == min(1, sum(spec.fault == "kill" for spec in happened))
    assert again.coverage["operations"] == demo.coverage["operations"]


# ---- expectation


def results(**verdicts: Verdict) -> Results:
    claims = {name.replace("_", "-"): ClaimResult(verdict) for name, verdict in verdicts.items()}
    return Results(claims, {"ok": 1, "fail": 0, "info": 0}, {}, 0.0)


VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("expect", "found", "met"),
    [
        ((), results(linearizable=VALID), True),
        ((), results(linearizable=UNKNOWN), False),
        ((), results(linearizable=INVALID), False),
        ((), results(linearizable=VALID, coverage=INVALID), False),
        (("fencing",), results(linearizable=VALID, fencing=INVALID), True),
        (("fencing",), results(linearizable=INVALID, fencing=INVALID), True),
        (("fencing",), results(linearizable=INVALID, fencing=VALID), False),
        (("fencing",), results(linearizable=INVALID), False),
        (("fencing", "linearizable"), results(linearizable=UNKNOWN, fencing=INVALID), False),
        (("fencing", "linearizable"), results(linearizable=INVALID, fencing=INVALID), True),
    ],
)
def test_whether_an_expectation_was_met(expect: tuple[str, ...], found: Results, met: bool) -> None:
    assert Expectation(expect).met_by(found) is met


def doubts(*kinds: str) -> ClaimResult:
    findings = tuple(Finding("mutual-exclusion", UNKNOWN, "a doubt", data={"kind": kind}) for kind in kinds)
    return ClaimResult(UNKNOWN, findings)


@pytest.mark.parametrize(
    ("claims", "met"),
    [
        ({"mutual-exclusion": doubts("assumption-broken")}, True),
        ({"mutual-exclusion": ClaimResult(VALID)}, True),
        ({"mutual-exclusion": ClaimResult(INVALID)}, False),
        ({"mutual-exclusion": doubts("assumption-broken", "no-lease")}, False),
        ({"mutual-exclusion": ClaimResult(VALID), "fencing": doubts("assumption-broken")}, False),
        ({"mutual-exclusion": doubts("assumption-broken"), "coverage": ClaimResult(UNKNOWN)}, False),
    ],
)
def test_only_a_broken_assumption_excuses(claims: dict[str, ClaimResult], met: bool) -> None:
    found = Results(claims, {"ok": 1, "fail": 0, "info": 0}, {}, 0.0)
    assert Expectation(excused=("mutual-exclusion",)).met_by(found) is met
    assert not Expectation().met_by(Results({"mutual-exclusion": doubts("assumption-broken")}, {}, {}, 0.0))


def test_random_throughout_is_a_word(tmp_path: Path) -> None:
    text = FULL[: FULL.index("nemesis:")] + "nemesis: random\n"
    scenario = load(written(tmp_path, text))
    assert scenario.nemesis == (RANDOM_THROUGHOUT,)
    assert chaos.plan(scenario), "a minute has room for faults"
    assert chaos.plan(scenario) == chaos.plan(scenario)
