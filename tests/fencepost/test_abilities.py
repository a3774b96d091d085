"""What `fencepost doctor` says of faults and scenarios that a machine can't do."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import places
from cluster.places import vdso
from fencepost import abilities, doctor
from fencepost.abilities import impossible, lacks
from fencepost.doctor import Check
from fencepost.scenario import load

SCENARIOS = Path(__file__).parents[2] / "workloads" / "scenarios"


def test_where_everything_is_there_local_nodes_and_containers_suffer_all_faults() -> None:
    found = impossible([])
    assert found.keys() == set(places.names())
    assert "partition" not in {fault for faults in found.values() for fault in faults}
    if vdso.supported():
        assert found["local"] == found["docker"] == {}


def test_what_is_missing_takes_the_faults_that_need_it_and_no_others() -> None:
    found = impossible(["proc mem", "libfaketime"])
    if vdso.supported():
        assert found["local"] == found["docker"] == {"clock: wall": "proc mem"}
        assert impossible(["proc mem"])["local"] == {}, "libfaketime serves as well"
    assert found["sim"].get("clock: wall") != "proc mem", "virtual time needs no memory of anybody"


def test_every_name_is_that_of_a_check() -> None:
    named = {name for names in abilities.NEEDED_BY_PLACE.values() for name in names}
    named |= {name for names in abilities.NEEDED_BY_CAPABILITY.values() for name in names}
    assert named <= {look.__name__.removeprefix("_").replace("_", " ") for look in doctor.CHECKS} | {"proc mem"}


@pytest.mark.parametrize(("missing", "can"), [("proc mem", False), ("docker", True), ("fuse", True)])
def test_a_scenario_cannot_run_where_a_fault_of_it_cannot(missing: str, can: bool, tmp_path: Path) -> None:
    text = (
        "time_limit: 9s\nworkload: {kind: mutex, clients: 2, keys: 1, rate: 5/s, lease: 1s, hold: 5ms..9ms}\n"
        "nemesis: [{fault: clock, clock: wall, jump: +1m, target: one, at: 1s, for: 2s}]\n"
    )
    path = tmp_path / "wall.yaml"
    path.write_text(text)
    if not vdso.supported():
        pytest.skip("clocks are turned on x86-64 only")
    why = doctor._unable(path, [Check(name, False, "it is away", "", "get it") for name in (missing, "libfaketime")])
    assert why == (None if can else f"{missing}: it is away")


def test_a_shipped_scenario_that_is_simulated_needs_nothing() -> None:
    for path in sorted(SCENARIOS.glob("*.yaml")):
        scenario = load(path)
        if scenario.place == "sim":
            assert lacks(scenario, ["docker", "fuse", "image", "libfaketime", "paramiko", "proc mem"]) == set()
