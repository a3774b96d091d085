from __future__ import annotations

import pytest

from checker.history import Event, EventType
from cluster.systems.base import Outcome
from workloads.dispatch import Dispatcher, Invocation, WorkloadError
from workloads.generator import PENDING, Answer, Context, Generator, Nothing, Op, Repeat, Wait


class Notes:
    """Keeps events in memory; `time` is set by the test."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.time = 0

    def __call__(
        self,
        process: int | str,
        type: EventType,
        f: str,
        *,
        key: str | None = None,
        value: dict[str, object] | None = None,
        error: str | None = None,
        node: str | None = None,
    ) -> Event:
        event = Event(len(self.events), self.time, process, type, f, key, value, error, node)
        self.events.append(event)
        return event


class Fixed:
    """Answers the same whatever happens."""

    def __init__(self, answer: Op | Wait | None) -> None:
        self.answer = answer
        self.seen: list[tuple[Context, Event]] = []

    def op(self, ctx: Context) -> Answer:
        return self.answer, self

    def update(self, ctx: Context, event: Event) -> Generator:
        self.seen.append((ctx, event))
        return self


def started(generator: Generator, threads: int = 2) -> tuple[Dispatcher, Notes]:
    notes = Notes()
    dispatcher = Dispatcher(threads, ("n1", "n2", "n3"), notes)
    dispatcher.start(generator)
    return dispatcher, notes


def endless() -> Generator:
    return Repeat(lambda thread, _: Op(thread, "inspect", "a"))


def test_an_info_retires_the_process_and_nothing_else() -> None:
    dispatcher, notes = started(endless())
    for outcome in (Outcome("ok"), Outcome("fail", error="held"), Outcome("info", error="timeout"), Outcome("ok")):
        step = dispatcher.poll(0)
        assert isinstance(step, Invocation)
        dispatcher.complete(step.op.thread, outcome, 0)
    processes = [event.process for event in notes.events]
    # Threads 0 and 1 take turns; the third answer, to thread 0, was the info.
    assert processes == [0, 0, 1, 1, 0, 0, 1, 1]
    step = dispatcher.poll(0)
    assert isinstance(step, Invocation)
    assert (step.op.thread, step.process, step.node) == (0, 2, "n1")


def test_a_resting_thread_is_free_when_its_rest_is_over_and_not_before() -> None:
    dispatcher, _ = started(endless(), threads=1)
    step = dispatcher.poll(10)
    assert isinstance(step, Invocation)
    dispatcher.complete(0, Outcome("fail", error="not-connected"), 10, rest_ns=90)
    assert dispatcher.poll(99) == Wait(100)
    assert isinstance(dispatcher.poll(100), Invocation)


def test_a_wait_ends_early_for_a_rest() -> None:
    dispatcher, _ = started(endless(), threads=1)
    dispatcher.poll(0)
    dispatcher.complete(0, Outcome("ok"), 0, rest_ns=50)
    dispatcher.start(Fixed(Wait(1000)))
    assert dispatcher.poll(10) == Wait(50)
    assert dispatcher.poll(50) == Wait(1000)


def test_a_generator_that_waits_for_nothing_is_an_error() -> None:
    dispatcher, _ = started(Fixed(PENDING))
    with pytest.raises(WorkloadError, match="no operation is open"):
        dispatcher.poll(0)


def test_a_generator_may_wait_while_an_operation_is_open() -> None:
    dispatcher, _ = started(endless())
    dispatcher.poll(0)
    dispatcher.start(Fixed(PENDING))
    assert dispatcher.poll(1) == PENDING


def test_an_op_for_a_busy_thread_is_an_error_and_is_not_recorded() -> None:
    dispatcher, notes = started(Fixed(Op(1, "inspect", "a")))
    dispatcher.poll(0)
    with pytest.raises(WorkloadError, match="thread 1 an operation while it is not free"):
        dispatcher.poll(0)
    assert len(notes.events) == 1


def test_the_generator_sees_every_event_with_the_state_after_it() -> None:
    generator = Fixed(Op(0, "inspect", "a"))
    dispatcher, notes = started(generator)
    dispatcher.poll(0)
    dispatcher.complete(0, Outcome("info", error="timeout"), 7)
    assert [event for _, event in generator.seen] == notes.events
    after_invoke, after_info = (ctx for ctx, _ in generator.seen)
    assert (after_invoke.free, after_invoke.processes) == ((1,), (0, 1))
    assert (after_info.free, after_info.processes, after_info.time) == ((1, 0), (2, 1), 7)
    assert after_info.thread_of(notes.events[1]) == 0
    assert after_info.thread_of(Event(9, 9, "nemesis", "info", "kill")) is None


def test_process_numbers_go_on_from_one_generator_to_the_next() -> None:
    dispatcher, _ = started(endless(), threads=1)
    dispatcher.poll(0)
    dispatcher.complete(0, Outcome("info"), 0)
    dispatcher.start(Nothing())
    assert dispatcher.poll(0) is None
    dispatcher.start(endless())
    step = dispatcher.poll(0)
    assert isinstance(step, Invocation)
    assert step.process == 1
