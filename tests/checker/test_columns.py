"""Columns against the plain way: the same verdicts, numbers, findings and warnings, on histories of every kind."""

from __future__ import annotations

import codecs
import random
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import checker
from checker import Engine, HistoryError, Options, column_reader
from checker.check import COLUMN_CLAIMS, COLUMNS_BYTES_MIN
from checker.column_reader import read_columns
from checker.columns import Unsuited, columns_of
from checker.history import Event, History
from tests.checker import generate, script
from tests.checker.compare import history_of
from tests.checker.scripts import SCRIPTS

seeds = st.integers(0, 10**9)

#: The same as `tests.checker.compare` does, for claims other than linearizability too.
SAMPLE = 1200


def both(path: Path, **options: object) -> tuple[checker.Results, checker.Results]:
    """What the plain way and the columns say, without the time that they took."""
    plain, columns = (
        checker.check_file(path, COLUMN_CLAIMS, Options(**options), engine)  # type: ignore[arg-type]
        for engine in (Engine.PYTHON, Engine.COLUMNS)
    )
    return plain, columns


@pytest.mark.parametrize("damage", [False, True], ids=["valid", "damaged"])
def test_the_same_answers_by_several_processes(damage: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_reader, "PIECE_BYTES", 1 << 14)
    rng = random.Random(9)
    events = (generate.damaged if damage else generate.valid)(rng, operations=1_500, keys="abcdefg")
    path = write(tmp_path / "history.jsonl", events)
    one, *others = (
        checker.check_file(path, COLUMN_CLAIMS, Options(tokens_span_keys=spans), Engine.COLUMNS, jobs)
        for spans in (False, True)
        for jobs in (1, 2, 7)
    )
    assert same(one, others[0])
    assert same(one, others[1])
    assert same(others[2], others[3])
    assert same(others[2], others[4])


def test_a_file_that_is_wrong_anywhere_is_left_to_the_plain_reader_by_several_processes(tmp_path: Path) -> None:
    events = generate.valid(random.Random(10), operations=300)
    for wrong in (0, len(events) // 2, len(events) - 1):
        changed = list(events)
        changed[wrong] = msgspec.structs.replace(changed[wrong], index=wrong + 1)
        with pytest.raises(Unsuited):
            read_columns(write(tmp_path / "history.jsonl", changed), jobs=3)
    assert read_columns(write(tmp_path / "history.jsonl", events), jobs=3).events == len(events)


def same(one: checker.Results, other: checker.Results) -> bool:
    return {**one.to_dict(), "seconds": 0} == {**other.to_dict(), "seconds": 0}


def write(path: Path, events: list[Event]) -> Path:
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path


def test_the_same_answers_on_small_histories(tmp_path: Path) -> None:
    refused = 0
    for number in range(SAMPLE):
        events = history_of(11, number, operations=12 if number % 5 else 40)
        if events:
            path = write(tmp_path / "history.jsonl", events)
            spans = number % 2 == 0
            one, other = both(path, clock_error=number % 3 / 100, tokens_span_keys=spans)
            assert same(one, other), number
            refused += bool(one.violated)
    assert refused > SAMPLE / 4


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_same_answers_on_scripts(name: str, tmp_path: Path) -> None:
    assert same(*both(write(tmp_path / "history.jsonl", script.events(SCRIPTS[name]))))


EVENTS_OF_ALL_KINDS = """
    nemesis leader {"node": "n1", "term": 1}
    1 acquire a
    1 ok 1
    nemesis partition {"fault": "f1", "action": "inject", "targets": ["n2"]}
    nemesis partition {"fault": "f1", "action": "injected", "evidence": "no answer", "breaks": ["clock_error"]}
    1 write a 1
    1 ok
    2 acquire a
    2 ok 2
    2 write a 2 guarded=false
    2 ok
    1 write a 1 guarded=false
    1 ok
    3 renew a 2
    3 info
    3 read a
    3 ok 1
    4 inspect a
    4 ok null
    5 write a 1
    5 fail stale-token
    nemesis partition {"fault": "f1", "action": "healed"}
    nemesis ready {"seconds": 1.5}
    nemesis counters {"expiries": 4}
    6 acquire a lease_ms=null
    6 ok 3
    7 acquire a lease_ms=0.5
    """


def test_everything_that_a_history_can_hold(tmp_path: Path) -> None:
    path = write(tmp_path / "history.jsonl", script.events(EVENTS_OF_ALL_KINDS))
    assert read_columns(path).events == len(script.events(EVENTS_OF_ALL_KINDS))
    one, other = both(path, coverage={"kills": 1, "nodes_with_clients": 3})
    assert same(one, other)
    assert one.claims["mutual-exclusion"].numbers["assumption_broken"] == 2
    assert one.warnings


def test_renewals_count_the_same(tmp_path: Path) -> None:
    for seed in range(300):
        rng = random.Random(seed)
        lines = ["1 acquire a lease_ms=5", "1 ok 1"]
        for process in range(2, rng.randint(3, 9)):
            f = rng.choice(["renew a 1", "release a 1", "acquire a"])
            lines.append(f"{process} {f} lease_ms={rng.choice([1, 5, 20])}")
            if rng.random() < 0.8:
                shown = rng.choice([2, 3, 4]) if f == "acquire a" else ""
                lines.append(f"{process} {rng.choice([f'ok {shown}', 'info', 'fail not-held'])}")
        assert same(*both(write(tmp_path / "history.jsonl", script.events("\n".join(lines))))), seed


@given(seeds)
def test_columns_of_events_are_those_of_their_file(seed: int) -> None:
    events = generate.damaged(random.Random(seed))
    if events:
        columns = columns_of(events)
        operations = History.of(events).operations
        assert columns.operations(range(len(operations))) == operations


def test_a_last_line_without_an_end(tmp_path: Path) -> None:
    whole = write(tmp_path / "history.jsonl", script.events(EVENTS_OF_ALL_KINDS)).read_bytes()
    for cut in (1, 2, 40, 100):
        path = tmp_path / f"cut-{cut}.jsonl"
        path.write_bytes(whole[:-cut])
        assert same(*both(path))


ILL_FORMED = [
    b"",
    b"\n",
    b"nonsense\n",
    b'{"index":1,"time":0,"process":1,"type":"invoke","f":"acquire","key":"a"}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"lock","key":"a"}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"acquire"}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"release","key":"a"}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"release","key":"a","value":{"token":"x"}}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"acquire","key":"a","value":{"lease_ms":-1}}\n',
    b'{"index":0,"time":0,"process":1,"type":"ok","f":"acquire","key":"a","value":{"token":1}}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"acquire","key":"a"}\n'
    b'{"index":1,"time":0,"process":1,"type":"invoke","f":"acquire","key":"a"}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"acquire","key":"a"}\n'
    b'{"index":1,"time":0,"process":1,"type":"ok","f":"acquire","key":"a"}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"acquire","key":"a"}\n'
    b'{"index":1,"time":0,"process":1,"type":"ok","f":"inspect","key":"a","value":{"token":1}}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"acquire","key":"a"}\n'
    b'{"index":1,"time":0,"process":1,"type":"ok","f":"acquire","key":"b","value":{"token":1}}\n',
    b'{"index":0,"time":0,"process":1,"type":"invoke","f":"inspect","key":"a"}\n'
    b'{"index":1,"time":0,"process":1,"type":"ok","f":"inspect","key":"a"}\n',
    b'{"index":0,"time":5,"process":1,"type":"invoke","f":"inspect","key":"a"}\n'
    b'{"index":1,"time":4,"process":1,"type":"info","f":"inspect","key":"a"}\n',
    b'{"index":0,"time":5,"process":"nemesis","type":"info","f":"kill"}\n'
    b'{"index":1,"time":4,"process":1,"type":"invoke","f":"inspect","key":"a"}\n',
    b'{"index":0,"time":5,"process":1,"type":"invoke","f":"inspect","key":"a"}\n\n',
    b'{"index":0,"time":5,"process":1,"type":"invoke","f":"inspect","key":"\xff"}\n',
    b'{"index":0,"time":5,"process":1,"type":"invoke","f":"inspect","key":"a"}\n'
    b'{"index":1,"time":5,"process":"2","type":"invoke","f":"acquire","key":"a"}\n',
]


@pytest.mark.parametrize("data", ILL_FORMED)
def test_what_is_ill_formed_is_left_to_the_plain_reader(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    path.write_bytes(data)
    with pytest.raises(Unsuited):
        read_columns(path)
    with pytest.raises(HistoryError):
        checker.check_file(path, engine=Engine.COLUMNS)


def test_a_byte_order_mark_is_let_be(tmp_path: Path) -> None:
    path = write(tmp_path / "history.jsonl", script.events("1 acquire a\n1 ok 1\n2 acquire a\n2 ok 1"))
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    one, other = both(path)
    assert same(one, other)
    assert "fencing" in one.violated
    columns = read_columns(path)
    assert [operation.token for operation in columns.operations(range(2))] == [1, 1]


def test_clients_of_events_must_be_numbers_too() -> None:
    with pytest.raises(Unsuited, match="text"):
        columns_of([Event(0, 0, 1, "invoke", "inspect", "a"), Event(1, 0, "2", "invoke", "inspect", "a")])


def test_a_token_beyond_64_bits_is_checked_all_the_same(tmp_path: Path) -> None:
    events = script.events(f"1 acquire a\n1 ok {10**30}\n2 acquire a\n2 ok 1")
    one, other = both(write(tmp_path / "history.jsonl", events))
    assert same(one, other)
    assert "fencing" in one.violated


def test_long_files_are_read_as_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = generate.valid(random.Random(1), operations=6000)
    path = write(tmp_path / "history.jsonl", events)
    assert path.stat().st_size > COLUMNS_BYTES_MIN
    monkeypatch.setattr(sys.modules["checker.check"], "read", lambda _: pytest.fail("read as a list of events"))
    assert checker.check_file(path).claims["linearizable"].verdict is checker.Verdict.VALID


#: What a broken recorder might write where a value is due.
WORDS = (
    b'"held" null true 1 -1 1.0 "x" {} [] "ok" "info" "acquire" "read" "nemesis" 99999999999999999999 {"token":null}'
)
WORDS += (
    b' {"token":3,"guarded":false} {"lease_ms":0.5} {"lease_ms":-1} "\\u0061" "stale-token" 1e3 -9223372036854775808'
)


def test_damaged_lines_are_judged_the_same_to_the_letter(tmp_path: Path) -> None:
    rng = random.Random(6)
    path = tmp_path / "history.jsonl"
    refused = 0
    for number in range(600):
        events = history_of(12, number, operations=6)
        if not events:
            continue
        data = bytearray(write(path, events).read_bytes())
        colon = data.find(b":", rng.randrange(len(data) // 2))
        end = min(data.index(b"}", colon), *(found for found in [data.find(b",", colon)] if found >= 0), len(data))
        data[colon + 1 : end] = rng.choice(WORDS.split())
        path.write_bytes(data)
        said: list[object] = []
        for engine in (Engine.PYTHON, Engine.COLUMNS):
            try:
                said.append({**checker.check_file(path, COLUMN_CLAIMS, engine=engine).to_dict(), "seconds": 0})
            except HistoryError as problem:
                said.append(f"{problem.line}: {problem}")
        assert said[0] == said[1], data
        refused += isinstance(said[0], str)
    assert 100 < refused < 590
