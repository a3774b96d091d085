"""The search and the polynomial rules against trying everything, for every model; and the budgets."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from checker import Verdict, search
from checker.search import unique, wgl
from checker.search.calls import OPEN, Call
from checker.search.models import Model, ModelError, create

#: For each model, what a random history of it is made of: (function, values to choose from, results to choose from).
VOCABULARY: dict[str, list[tuple[str, list[Any], list[Any]]]] = {
    "register": [("write", [1, 2, 3], [None]), ("read", [None], [1, 2, None])],
    "cas-register": [("write", [1, 2], [None]), ("read", [None], [1, 2]), ("cas", [[1, 2], [2, 1], [None, 1]], [None])],
    "mutex": [("acquire", [None], [None]), ("release", [None], [None])],
    "owner-mutex": [("acquire", [None], [None]), ("release", [None], [None])],
    "leased-mutex": [("acquire", [None], [None]), ("release", [None], [None])],
    "reentrant-mutex": [("acquire", [None], [None]), ("release", [None], [None])],
    "fenced-mutex": [("acquire", [None], [0, 1, 2, 3]), ("release", [None], [None])],
    "reentrant-fenced-mutex": [("acquire", [None], [0, 1, 2, 2]), ("release", [None], [None])],
    "semaphore": [("acquire", [None, 2], [None]), ("release", [None, 2], [None])],
    "read-write-lock": [(f, [None], [None]) for f in ("read-lock", "read-unlock", "write-lock", "write-unlock")],
    "fifo-queue": [("enqueue", [1, 2, 3], [None]), ("dequeue", [None], [1, 2, 3, None])],
    "key-value": [("put", ["a"], [None]), ("append", ["b"], [None]), ("get", [None], ["", "a", "ab", "b"])],
    "set": [("add", [1, 2], [None]), ("remove", [1], [None]), ("read", [None], [[], [1], [2], [1, 2]])],
}

PER_MODEL = 400


def random_calls(rng: random.Random, name: str, length: int, unique_values: bool = False) -> list[Call]:
    model = create(name)
    calls: list[Call] = []
    position, width, fresh = 0, rng.choice([1, 2, 3]), iter(range(1, 100))
    open_calls: list[dict[str, Any]] = []
    made = 0
    likely = _plausible(rng, name)
    while made < length or open_calls:
        if made < length and (len(open_calls) < width or rng.random() < 0.2):
            f, values, results = rng.choice(VOCABULARY[name] if likely is None else likely)
            value = next(fresh) if unique_values and f in ("write", "enqueue", "add") else rng.choice(values)
            open_calls.append(
                {"process": rng.randrange(3), "f": f, "value": value, "results": results, "start": position}
            )
            made += 1
        else:
            call = open_calls.pop(rng.randrange(len(open_calls)))
            results = call.pop("results")
            errors = model.observes.get(call["f"], ())
            if rng.random() < 0.2:
                calls.append(Call(**call, result=None, outcome="info", end=OPEN))
            elif errors and rng.random() < 0.2:
                calls.append(Call(**call, result=None, outcome="fail", end=position, error=errors[0]))
            else:
                calls.append(Call(**call, result=rng.choice(results), outcome="ok", end=position))
        position += 1
    return sorted(calls, key=lambda call: call.start)


def _plausible(rng: random.Random, name: str) -> list[tuple[str, list[Any], list[Any]]] | None:
    """Now and then only some of the functions, so that more histories fit."""
    vocabulary = VOCABULARY[name]
    return rng.sample(vocabulary, rng.randint(1, len(vocabulary))) if rng.random() < 0.3 else None


def try_everything(calls: Sequence[Call], model: Model) -> bool:
    """Event by event, with all configurations that can be reached; no order of trying, no memory, no short cuts."""
    steps = sorted(
        [(call.start, True, i) for i, call in enumerate(calls)]
        + [(c.end, False, i) for i, c in enumerate(calls) if c.end < OPEN]
    )
    reached: set[tuple[Any, frozenset[int]]] = {(model.initial, frozenset())}
    for _, starts, number in steps:
        if starts:
            reached = {(state, waiting | {number}) for state, waiting in reached}
        else:
            reached = {(state, waiting) for state, waiting in reached if number not in waiting}
        frontier = list(reached)
        while frontier:
            state, waiting = frontier.pop()
            for one in waiting:
                for after in model.step(state, calls[one]):
                    configuration = (after, waiting - {one})
                    if configuration not in reached:
                        reached.add(configuration)
                        frontier.append(configuration)
    return bool(reached)


@pytest.mark.parametrize("name", search.MODELS)
def test_the_search_agrees_with_trying_everything(name: str) -> None:
    rng = random.Random(name)
    model = create(name)
    verdicts = [0, 0]
    for number in range(PER_MODEL):
        calls = random_calls(rng, name, rng.randint(2, 8))
        expected = try_everything(calls, model)
        found = wgl.search(calls, model)
        assert found.fits is expected, (number, [call.words() for call in calls])
        verdicts[expected] += 1
        if found.fits:
            _replay(calls, found.order, model)
    assert min(verdicts) > PER_MODEL / 20, verdicts


def _replay(calls: Sequence[Call], order: Sequence[int], model: Model) -> None:
    """The order that was found is one: it fits the model, respects time, and leaves out nothing that is known."""
    states = {model.initial}
    for number in order:
        states = {after for state in states for after in model.step(state, calls[number])}
    assert states
    assert {i for i, call in enumerate(calls) if call.end < OPEN} <= set(order)
    for place, number in enumerate(order):
        assert all(calls[later].end > calls[number].start for later in order[place + 1 :])


@pytest.mark.parametrize("name", ["register", "fifo-queue", "set"])
def test_the_rules_for_unique_values_agree_with_trying_everything(name: str) -> None:
    rng = random.Random(name)
    model = create(name)
    decided = [0, 0]
    for _ in range(4 * PER_MODEL):
        calls = random_calls(rng, name, rng.randint(2, 8), unique_values=True)
        fits = unique.decide(calls, model)
        if fits is not None:
            assert fits is try_everything(calls, model), [call.words() for call in calls]
            decided[fits] += 1
    assert min(decided) > PER_MODEL / 10, decided


def test_a_long_queue_is_decided_by_rule() -> None:
    calls: list[Call] = []
    for value in range(20_000):
        calls.append(Call(value % 7, "enqueue", value, None, "ok", 4 * value, 4 * value + 3))
        calls.append(Call(7, "dequeue", None, value, "ok", 4 * value + 2, 4 * value + 5))
    result = search.check(calls, "fifo-queue")
    assert result.verdict is Verdict.VALID
    assert result.numbers["by_rule"] == 1


def mutex_puzzle(count: int) -> Iterator[Call]:
    """Many acquires by different owners, open at the same time, and one too many releases."""
    for owner in range(count):
        yield Call(owner, "acquire", None, None, "ok", owner, 10_000 + owner)
        yield Call(owner, "release", None, None, "ok", 1_000 + owner, 20_000 + owner)
    yield Call(count, "release", None, None, "ok", 30_000, 30_001)


class Endless(Model):
    """A model that never comes back."""

    def step(self, state: Any, call: Call) -> Iterator[Any]:
        while True:
            time.sleep(1)
        yield state


class Greedy(Model):
    """A model that takes all memory."""

    def step(self, state: Any, call: Call) -> Iterator[Any]:
        yield bytes(1 << 40)


class Wrong(Model):
    functions = frozenset({"other"})


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("reentrant-mutex", "the 1 s were used up"),
        (f"{__name__}:Endless", "the 1 s were used up"),
        (f"{__name__}:Greedy", "the 500 MB were used up"),
    ],
)
def test_a_search_ends_when_its_budget_does(model: str, reason: str) -> None:
    started = time.monotonic()
    result = search.check(list(mutex_puzzle(300)), model, search.Budget(seconds=1, megabytes=500))
    assert time.monotonic() - started < 10
    assert result.verdict is Verdict.UNKNOWN
    (finding,) = result.findings
    assert finding.verdict is Verdict.UNKNOWN
    assert reason in finding.message
    assert "operations" in finding.message


def test_a_violation_names_what_has_no_place() -> None:
    calls = [
        Call(1, "acquire", None, None, "ok", 0, 1, "k"),
        Call(2, "acquire", None, None, "ok", 2, 3, "k"),
        Call(3, "acquire", None, None, "ok", 4, 5, "other"),
    ]
    result = search.check(calls, "mutex")
    assert result.verdict is Verdict.INVALID
    (finding,) = result.findings
    assert finding.key == "k"
    assert finding.message.splitlines() == [
        "key 'k': no order of the 2 operations fits the model; the longest that was found has 1",
        "- process 1 acquire, [0-1] ok: then",
        "- process 2 acquire, [2-3] ok: has no place; the state was True",
    ]
    assert result.numbers["keys"] == 2


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("spinlock", "unknown model 'spinlock'; known are register, "),
        ("no.such.module:Model", "No module named"),
        (f"{__name__}:Missing", "Missing"),
        (f"{__name__}:mutex_puzzle", "mutex_puzzle"),
    ],
)
def test_what_is_no_model(name: str, problem: str) -> None:
    with pytest.raises((ModelError, TypeError), match=problem):
        search.check([], name)


def test_an_operation_that_the_model_does_not_know() -> None:
    with pytest.raises(ModelError, match="line 7: 'read' is no operation of this model; it knows acquire, release"):
        search.check([Call(1, "read", None, None, "ok", 0, 1, line=7)], "mutex")


def test_a_big_search_runs_in_a_process_and_succeeds() -> None:
    calls = [
        Call(n % 3, "acquire" if n % 2 == 0 else "release", None, None, "ok", 2 * n, 2 * n + 1) for n in range(200)
    ]
    result = search.check(calls, "mutex")
    assert result.verdict is Verdict.VALID
    assert result.numbers["configurations"] == 201
