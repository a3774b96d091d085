from __future__ import annotations

import os
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from nemesis.schedule import Planned, plan
from nemesis.spec import FaultSpec

SECOND = 1_000_000_000

KILL_OFTEN = FaultSpec("kill", target="leader", every_ns=10 * SECOND, for_ns=3 * SECOND)
PAUSE_ONCE = FaultSpec("pause", target="one", at_ns=4 * SECOND, for_ns=2 * SECOND)
RING = FaultSpec("partition", shape="majorities-ring", at_ns=3 * SECOND, every_ns=8 * SECOND, for_ns=4 * SECOND)

seconds = st.integers(1, 40).map(lambda value: value * SECOND // 2)
specs = st.builds(
    FaultSpec,
    st.sampled_from(["kill", "pause"]),
    target=st.sampled_from(["one", "leader", "minority"]),
    at_ns=st.none() | seconds,
    every_ns=seconds,
    for_ns=seconds,
)
plans = st.lists(specs, max_size=6)


def times(planned: tuple[Planned, ...], spec: FaultSpec) -> list[tuple[int, int]]:
    return [(one.start_ns // SECOND, one.end_ns // SECOND) for one in planned if one.spec == spec]


def test_at_and_every() -> None:
    planned = plan([KILL_OFTEN, PAUSE_ONCE, RING], 1, 40 * SECOND)
    assert times(planned, KILL_OFTEN) == [(10, 13), (20, 23), (30, 33)], "the fourth would end after the run"
    assert times(planned, PAUSE_ONCE) == [(4, 6)]
    assert times(planned, RING) == [(3, 7), (11, 15), (19, 23), (27, 31), (35, 39)]
    assert [one.id for one in planned] == [f"f{number}" for number in range(1, 10)]


@given(plans, st.integers(), seconds)
def test_all_last_in_full_within_the_limit_in_order(specs: list[FaultSpec], seed: int, limit_ns: int) -> None:
    planned = plan(specs, seed, limit_ns)
    assert all(0 <= one.start_ns < one.end_ns <= limit_ns for one in planned)
    assert all(one.end_ns - one.start_ns == one.spec.for_ns for one in planned)
    starts = [one.start_ns for one in planned]
    assert starts == sorted(starts)
    assert len({one.id for one in planned}) == len(planned) == len({one.stream for one in planned})


@given(plans.filter(bool), st.integers(), st.data())
def test_taking_a_spec_away_changes_no_other_draw(specs: list[FaultSpec], seed: int, data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(specs, key=repr)))
    rest = [spec for spec in specs if spec != gone]

    def drawn(specs: list[FaultSpec]) -> list[tuple[FaultSpec, int, float]]:
        return [(one.spec, one.start_ns, one.draws().random()) for one in plan(specs, seed, 60 * SECOND)]

    assert drawn(rest) == [draw for draw in drawn(specs) if draw[0] != gone]


def test_equal_specs_draw_differently_and_so_do_seeds() -> None:
    first, second = plan([PAUSE_ONCE, PAUSE_ONCE], 1, 40 * SECOND)
    assert first.draws().random() != second.draws().random()
    (other,) = plan([PAUSE_ONCE], 2, 40 * SECOND)
    assert first.draws().random() != other.draws().random()


def test_draws_are_the_same_in_every_process() -> None:
    program = (
        "from nemesis.schedule import plan; from nemesis.spec import FaultSpec;"
        "spec = FaultSpec('pause', target=('n1', 'n2'), at_ns=0, for_ns=10**9);"
        "print(plan([spec], 42, 10**10)[0].draws().random())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert float(outputs.pop()) < 1
