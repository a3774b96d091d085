"""The nemesis' events: what they tell, and that no odd one stops a check."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

import checker
from checker import Event, Timeline
from tests.checker import script

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
odd_events = st.builds(
    lambda f, value: Event(0, 0, "nemesis", "info", f, None, value),
    st.sampled_from(["kill", "leader", "ready", "counters", "phase"]),
    st.none()
    | st.dictionaries(
        st.sampled_from(["fault", "action", "targets", "evidence", "breaks", "node", "term", "seconds", "expiries"]),
        values | st.sampled_from(["inject", "injected", "heal", "healed", "skipped"]),
    ),
)


@given(st.lists(odd_events, min_size=1))
def test_odd_events_are_passed_over(events: list[Event]) -> None:
    numbered = [Event(i, i, e.process, e.type, e.f, None, e.value) for i, e in enumerate(events)]
    results = checker.check(numbered, [*checker.DEFAULT_CLAIMS, "leases", "beliefs"])
    assert results.exit_code == 0


def test_a_fault_lasts_from_its_injection_to_the_end_of_its_healing() -> None:
    timeline = Timeline.of(
        script.events("""
            nemesis pause {"fault": "f1", "action": "inject", "targets": ["n1", "n2"]}
            nemesis pause {"fault": "f1", "action": "injected", "targets": ["n1", "n2"], "evidence": "state T"}
            nemesis kill {"fault": "f2", "action": "inject", "targets": ["n3"]}
            nemesis pause {"fault": "f1", "action": "heal"}
            nemesis pause {"fault": "f1", "action": "healed"}
            """)
    )
    pause, kill = timeline.faults
    assert (pause.kind, pause.targets, pause.start, pause.end) == ("pause", ("n1", "n2"), 0, 4)
    assert (pause.took_effect, pause.evidence) == (True, "state T")
    assert (kill.end, kill.took_effect) == (None, False)
    assert kill.words() == "kill of n3 (f2, 0.002 s not healed)"
    assert [fault.id for fault in timeline.active(0, 1)] == ["f1"]
    assert [fault.id for fault in timeline.active(3, 4)] == ["f1", "f2"]
    assert [fault.id for fault in timeline.active(5, 9)] == ["f2"]


def test_a_skipped_fault_never_was() -> None:
    events = script.events("""
        nemesis kill {"fault": "f1", "action": "inject", "targets": ["n1"]}
        nemesis kill {"fault": "f1", "action": "skipped", "reason": "no leader"}
        """)
    assert Timeline.of(events).faults == ()


def test_a_new_term_of_the_same_leader_is_a_change() -> None:
    events = script.events("""
        nemesis leader {"node": "n1", "term": 1}
        nemesis leader {"node": "n1", "term": 1}
        nemesis leader {"node": "n1", "term": 3}
        nemesis leader {"node": "n2", "term": 4}
        """)
    changes = Timeline.of(events).leader_changes()
    assert [(before.term, after.node, after.term) for before, after in changes] == [(1, "n1", 3), (3, "n2", 4)]
