from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker.history import Event
from cluster.systems.base import Outcome
from tests.workloads.virtual import MS, S, constant, invokes, well_formed
from workloads.combinators import delay, limit, mix, phases, sequence, soonest, stagger, synchronize, time_limit
from workloads.generator import PENDING, Context, Generator, Nothing, Once, Op, Repeat, Wait
from workloads.seeds import Seed
from workloads.simulate import Respond, simulate
from workloads.threads import each_thread, on_threads, per_key

latencies = st.integers(1, 50 * MS)


def endless(f: str) -> Generator:
    return Repeat(lambda thread, count: Op(thread, f, value={"n": count}))


def varied(seed: int, most_ns: int) -> Respond:
    return lambda invocation, now: (
        Seed(seed).split(now).split(invocation.op.thread).between(1, most_ns),
        Outcome("ok"),
    )


def functions(history: list[Event]) -> list[str]:
    return [event.f for event in invokes(history)]


@given(st.integers(0, 60), st.integers(1, 6), latencies)
def test_limit_gives_exactly_so_many_ops(count: int, threads: int, latency_ns: int) -> None:
    history = simulate(limit(count, endless("a")), constant(latency_ns), threads=threads)
    well_formed(history)
    assert len(invokes(history)) == count


@given(st.integers(1, 2 * S), st.integers(1, 6), st.integers(MS, 50 * MS))
@settings(max_examples=30)
def test_time_limit_gives_no_op_after_it_and_no_idle_time_before_it(
    duration_ns: int, threads: int, latency_ns: int
) -> None:
    history = simulate(time_limit(duration_ns, endless("a")), constant(latency_ns), threads=threads)
    assert all(event.time < duration_ns for event in invokes(history))
    assert len(invokes(history)) == threads * -(-duration_ns // latency_ns)


def test_time_limit_ends_a_generator_that_waits_for_later() -> None:
    generator = time_limit(5 * S, delay(3600 * S, endless("a")))
    history = simulate(sequence([generator, Once(lambda thread: Op(thread, "b"))]), constant(MS), threads=1)
    assert [(event.f, event.time) for event in invokes(history)] == [("a", 0), ("b", 5 * S)]


@given(st.integers(0, 2**32), st.floats(5, 500), st.integers(1, 5))
@settings(max_examples=10)
def test_stagger_keeps_the_rate_on_average(seed: int, rate: float, threads: int) -> None:
    generator = time_limit(20 * S, stagger(Seed(seed), rate, endless("a")))
    count = len(invokes(simulate(generator, constant(1), threads=threads)))
    # The distances are even over [0, 2/rate], so a sum of n has a standard deviation of sqrt(n/3)/rate.
    assert abs(count - 20 * rate) < 6 * (20 * rate / 3) ** 0.5 + 2


@given(st.integers(0, 2**32), st.floats(20, 200))
@settings(max_examples=20)
def test_stagger_does_not_make_up_for_time_lost_to_slow_calls(seed: int, rate: float) -> None:
    """One thread and calls of a second each: never two invocations closer than an answer."""
    generator = time_limit(30 * S, stagger(Seed(seed), rate, endless("a")))
    times = [event.time for event in invokes(simulate(generator, constant(S), threads=1))]
    assert all(later - earlier >= S for earlier, later in pairwise(times))


def test_stagger_counts_prompt_ops_and_lets_them_through() -> None:
    prompt = Repeat(lambda thread, _: Op(thread, "b", prompt=True))
    generator = stagger(Seed(1), 1.0, sequence([limit(1, endless("a")), limit(3, prompt), limit(1, endless("c"))]))
    events = invokes(simulate(generator, constant(MS), threads=1))
    assert [event.f for event in events] == ["a", "b", "b", "b", "c"]
    assert events[3].time - events[0].time == 3 * MS
    assert events[4].time - events[3].time > S


@given(st.integers(1, S), latencies, st.integers(1, 4))
def test_delay_keeps_ops_apart(interval_ns: int, latency_ns: int, threads: int) -> None:
    history = simulate(limit(10, delay(interval_ns, endless("a"))), constant(latency_ns), threads=threads)
    times = [event.time for event in invokes(history)]
    assert all(later - earlier >= interval_ns for earlier, later in pairwise(times))


@given(st.integers(0, 2**32), st.integers(2, 5))
@settings(max_examples=20)
def test_mix_draws_evenly_and_ends_when_all_have(seed: int, parts: int) -> None:
    generator = mix(Seed(seed), [limit(500, endless(str(part))) for part in range(parts)])
    names = functions(simulate(generator, constant(MS), threads=3))
    assert Counter(names) == {str(part): 500 for part in range(parts)}
    first = Counter(names[:400])
    assert all(abs(first[str(part)] - 400 / parts) < 6 * (400 / parts) ** 0.5 for part in range(parts))


def test_mix_passes_over_a_part_that_waits() -> None:
    """Alone the second part would be stuck: what it waits for is an op of the first."""
    generator = mix(Seed(0), [limit(5, endless("a")), delay(S, limit(3, endless("b")))])
    history = simulate(generator, constant(MS), threads=1)
    assert Counter(functions(history)) == {"a": 5, "b": 3}
    assert max(event.time for event in invokes(history, "a")) < S


def test_soonest_prefers_the_first_that_has_something_to_do() -> None:
    generator = soonest([limit(2, delay(S, endless("a"))), limit(3, endless("b"))])
    history = simulate(generator, constant(MS), threads=1)
    assert [(event.f, event.time) for event in invokes(history)] == [
        ("a", 0),
        ("b", 1 * MS),
        ("b", 2 * MS),
        ("b", 3 * MS),
        ("a", S),
    ]


@given(st.integers(0, 2**32), st.lists(st.integers(0, 12), max_size=5), st.integers(1, 5))
def test_phases_do_not_overlap(seed: int, counts: list[int], threads: int) -> None:
    generator = phases([limit(count, endless(str(phase))) for phase, count in enumerate(counts)])
    history = simulate(generator, varied(seed, 50 * MS), threads=threads)
    well_formed(history)
    assert functions(history) == [str(phase) for phase, count in enumerate(counts) for _ in range(count)]
    for phase in range(1, len(counts)):
        before = [event.index for event in history if int(event.f) < phase and event.type != "invoke"]
        after = [event.index for event in history if int(event.f) >= phase]
        assert not before or not after or max(before) < min(after)


def test_a_sequence_without_synchronize_does_overlap() -> None:
    """The next part begins on the threads that are free; the comparison for the test above."""
    history = simulate(sequence([limit(1, endless("a")), limit(1, endless("b"))]), constant(MS), threads=2)
    assert [(event.type, event.f) for event in history[:2]] == [("invoke", "a"), ("invoke", "b")]


def test_synchronize_waits_for_its_own_threads_only() -> None:
    slow = on_threads([0], limit(1, endless("slow")))
    own = on_threads([1, 2], synchronize(limit(2, endless("own"))))
    history = simulate(soonest([slow, own]), lambda _invocation, _now: (S, Outcome("ok")), threads=3)
    assert [event.time for event in invokes(history)] == [0, 0, 0]


@given(st.integers(1, 8), st.integers(0, 7))
def test_each_thread_gives_every_thread_its_own(threads: int, count: int) -> None:
    generator = each_thread(range(threads), lambda thread: limit(count, endless(f"t{thread}")))
    history = simulate(generator, varied(threads, 20 * MS), threads=threads)
    assert Counter((event.process, event.f) for event in invokes(history)) == {
        (thread, f"t{thread}"): count for thread in range(threads) if count
    }


def test_no_thread_starves_behind_the_others() -> None:
    """A shared limit, equal calls: everybody gets an equal part."""
    generator = limit(600, each_thread(range(6), lambda _: endless("a")))
    counts = Counter(event.process for event in invokes(simulate(generator, constant(MS), threads=6)))
    assert counts == dict.fromkeys(range(6), 100)


@given(st.integers(1, 7), st.integers(0, 9), st.integers(1, 3))
def test_per_key_runs_every_key_on_one_group_of_threads(threads: int, keys: int, group: int) -> None:
    names = [f"k{number}" for number in range(keys)]

    def make(key: str) -> Generator:
        return limit(4, Repeat(lambda thread, _: Op(thread, "a", key)))

    if threads < group and keys:
        with pytest.raises(ValueError, match="make no group"):
            per_key(range(threads), names, make, threads_per_key=group)
        return
    generator = per_key(range(threads), names, make, threads_per_key=group)
    history = simulate(generator, varied(7, 20 * MS), threads=threads)
    assert Counter(event.key for event in invokes(history)) == dict.fromkeys(names, 4)
    for key in names:
        processes = {event.process for event in invokes(history) if event.key == key}
        assert len({process // group for process in processes if isinstance(process, int)}) == 1


def test_nothing_is_over_at_once() -> None:
    assert simulate(Nothing(), constant(MS), threads=2) == []
    assert simulate(phases([]), constant(MS), threads=2) == []


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_asking_twice_gives_the_same_answer(seed: int) -> None:
    generator = stagger(Seed(seed), 50.0, mix(Seed(seed), [endless("a"), endless("b"), delay(S, endless("c"))]))
    for time in range(0, 10 * S, 40 * MS):
        ctx = Context(time, (0, 1), (1,), (0, 1))
        first, _ = generator.op(ctx)
        again, after = generator.op(ctx)
        assert first == again
        generator = after


def test_no_free_thread_means_waiting() -> None:
    busy = Context(0, (0,), (), (0,))
    for generator in (
        endless("a"),
        limit(1, endless("a")),
        mix(Seed(0), [endless("a")]),
        each_thread([0], lambda _: endless("a")),
        Once(lambda thread: Op(thread, "a")),
    ):
        assert generator.op(busy)[0] == PENDING
    assert time_limit(S, endless("a")).op(busy)[0] == Wait(S)
