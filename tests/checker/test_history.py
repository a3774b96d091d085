"""Reading: what a history file may look like, and a clear word about every one that it may not."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker import HistoryError, HistoryWriter, read
from checker.formats import read_records
from checker.history import OPEN, Event, History
from tests.checker import generate, script

ACQUIRE = {"process": 1, "type": "invoke", "f": "acquire", "key": "a", "value": {"lease_ms": 1000, "wait_ms": 0}}
GRANTED = {"process": 1, "type": "ok", "f": "acquire", "key": "a", "value": {"token": 3}}


def lines(*events: dict[str, Any]) -> bytes:
    numbered = ({"index": index, "time": index, **event} for index, event in enumerate(events))
    return b"".join(json.dumps(event).encode() + b"\n" for event in numbered)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[bytes], Path]:
    def to_file(data: bytes) -> Path:
        path = tmp_path / "history.jsonl"
        path.write_bytes(data)
        return path

    return to_file


def test_what_the_writer_wrote_is_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    clock = iter(range(0, 1000, 10))
    writer = HistoryWriter(path, lambda: next(clock))
    written = [
        writer.append(1, "invoke", "acquire", key="ä", value={"lease_ms": 5}, node="n1"),
        writer.append("nemesis", "info", "kill", value={"fault": "f1"}),
        writer.append(1, "fail", "acquire", key="ä", error="held", node="n1"),
    ]
    writer.close()
    assert read(path).events == written


def test_operations_are_paired_in_the_order_of_their_invokes() -> None:
    history = History.of(
        script.events("""
            1 acquire a lease_ms=1500
            2 inspect b
            2 ok null
            1 ok 7
            3 release a 7
            4 acquire a
            4 info
            5 renew a 7
            5 fail not-held
            6 acquire a
            6 fail held
            """)
    )
    told = [(op.process, op.f, op.key, op.outcome, op.token, op.error, op.index, op.end) for op in history.operations]
    assert told == [
        (1, "acquire", "a", "ok", 7, None, 0, 3),
        (2, "inspect", "b", "ok", None, None, 1, 2),
        (3, "release", "a", "info", 7, None, 4, OPEN),
        (4, "acquire", "a", "info", None, "timeout", 5, OPEN),
        (5, "renew", "a", "fail", 7, "not-held", 7, 8),
        (6, "acquire", "a", "fail", None, "held", 9, 10),
    ]
    assert history.operations[0].lease_ns == 1_500_000_000
    assert [operation.index for operation in history.by_key["a"]] == [0, 4, 5, 7, 9]


def test_processes_with_names_are_no_clients() -> None:
    events = [
        Event(0, 0, "nemesis", "info", "partition", None, {"cut": [["n1", "n2"]]}),
        Event(1, 0, "observer", "ok", "anything"),
    ]
    assert History.of(events).operations == []


def test_a_byte_order_mark_is_let_be(write: Callable[[bytes], Path]) -> None:
    path = write(codecs.BOM_UTF8 + lines(ACQUIRE, GRANTED))
    assert [operation.token for operation in read(path).operations] == [3]
    assert [record.f for record in read_records(path)] == ["acquire", "acquire"]


def test_clients_that_are_text_are_no_records_either(write: Callable[[bytes], Path]) -> None:
    path = write(lines(ACQUIRE, {**GRANTED, "process": "one"}))
    with pytest.raises(HistoryError, match=r"line 2: .*number the clients"):
        read_records(path)


def test_unknown_fields_are_let_be(write: Callable[[bytes], Path]) -> None:
    history = read(write(lines({**ACQUIRE, "thread": 4}, {**GRANTED, "extra": {"a": [1]}})))
    assert [operation.token for operation in history.operations] == [3]


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_last_line_that_was_cut_is_dropped_with_a_warning(write: Callable[[bytes], Path], cut: int) -> None:
    whole = lines(ACQUIRE, GRANTED)
    history = read(write(whole[:-cut] if cut > 1 else whole[:-2]))
    assert [operation.outcome for operation in history.operations] == ["info"]
    assert "the last line (2) is cut" in history.warnings[0]


def test_a_last_line_that_only_lacks_its_newline_counts(write: Callable[[bytes], Path]) -> None:
    history = read(write(lines(ACQUIRE, GRANTED)[:-1]))
    assert [operation.token for operation in history.operations] == [3]
    assert history.warnings == ()


def test_a_cut_in_the_middle_of_a_character_is_a_cut(write: Callable[[bytes], Path]) -> None:
    data = lines(ACQUIRE) + '{"index":1,"f":"ä'.encode()[:-1]
    assert "is cut" in read(write(data)).warnings[0]


def test_a_process_that_goes_on_after_an_unknown_outcome_is_a_warning() -> None:
    history = History.of(script.events("1 acquire a\n1 info\n1 acquire a\n1 ok 1"))
    assert "1 process went on after an operation of unknown outcome (1)" in history.warnings[0]


BAD_LINES = [
    pytest.param(b"", None, "the history is empty", id="empty"),
    pytest.param(b'{"index":0,"ti', None, "the history is empty", id="nothing but a cut line"),
    pytest.param(b"\n", 1, "the line is empty", id="a blank line"),
    pytest.param(lines(ACQUIRE) + b"\n" + lines(GRANTED), 2, "the line is empty", id="a blank line between"),
    pytest.param(lines(ACQUIRE) + b"garbage\n", 2, "not JSON", id="not JSON"),
    pytest.param(lines(ACQUIRE)[:40] + b"\n" + lines(GRANTED), 1, "not JSON", id="cut in the middle"),
    pytest.param(b"\x00\x01\xff\xfe\n", 1, "not JSON", id="binary"),
    pytest.param(lines(ACQUIRE).replace(b'"a"', b'"\xff"'), 1, "UTF-8", id="not UTF-8"),
    pytest.param(b"[1, 2]\n", 1, "not an event: Expected `object`, got `array`", id="not an object"),
    pytest.param(b'{"index":0}\n', 1, "missing required field `time`", id="a field missing"),
    pytest.param(lines({**ACQUIRE, "type": "maybe"}), 1, "Invalid enum value 'maybe'", id="unknown type"),
    pytest.param(lines({**ACQUIRE, "process": 1.5}), 1, "Expected `int | str`", id="half a process"),
    pytest.param(lines(ACQUIRE, {**GRANTED, "index": 5}), 2, "index is 5 where 1 is due", id="a gap"),
    pytest.param(lines({**ACQUIRE, "index": 1}), 1, "index is 1 where 0 is due", id="not from the start"),
    pytest.param(lines({**ACQUIRE, "time": 9}, {**GRANTED, "time": 8}), 2, "time goes back from 9 to 8", id="time"),
    pytest.param(lines(GRANTED), 1, "process 1 completes 'acquire' (ok) without having invoked it", id="no invoke"),
    pytest.param(lines(ACQUIRE, GRANTED, GRANTED), 3, "without having invoked", id="completed twice"),
    pytest.param(lines(ACQUIRE, ACQUIRE), 2, "while its 'acquire' of key 'a' (line 1) is open", id="two open"),
    pytest.param(lines(ACQUIRE, {**GRANTED, "f": "release"}), 2, "completes process 1's 'acquire'", id="another f"),
    pytest.param(lines(ACQUIRE, {**GRANTED, "key": "b"}), 2, "'acquire' of key 'b' completes", id="another key"),
    pytest.param(lines({**ACQUIRE, "f": "lock"}), 1, "unknown operation 'lock'; known are acquire", id="unknown f"),
    pytest.param(lines({**ACQUIRE, "key": None}), 1, "'acquire' without a key", id="no key"),
    pytest.param(lines({**ACQUIRE, "value": {"lease_ms": "2s"}}), 1, "found '2s'", id="lease as text"),
    pytest.param(lines({**ACQUIRE, "value": {"lease_ms": -1}}), 1, "from 0 up, found -1", id="negative lease"),
    pytest.param(lines({**ACQUIRE, "value": {"lease_ms": True}}), 1, "found True", id="lease of true"),
    pytest.param(lines({**ACQUIRE, "f": "release"}), 1, "found a value without 'token'", id="release of nothing"),
    pytest.param(lines({**ACQUIRE, "f": "renew", "value": None}), 1, "found no value", id="renew of nothing"),
    pytest.param(lines({**ACQUIRE, "f": "write", "value": {"token": "x"}}), 1, "found 'x'", id="write with a word"),
    pytest.param(lines(ACQUIRE, {**GRANTED, "value": None}), 2, "must carry a token, found no value", id="no token"),
    pytest.param(lines(ACQUIRE, {**GRANTED, "value": {"token": None}}), 2, "found None", id="null for a grant"),
    pytest.param(lines(ACQUIRE, {**GRANTED, "value": {"token": 1.0}}), 2, "found 1.0", id="token 1.0"),
    pytest.param(lines(ACQUIRE, {**GRANTED, "value": {"token": True}}), 2, "found True", id="token true"),
    pytest.param(
        lines({**ACQUIRE, "f": "inspect"}, {**GRANTED, "f": "inspect", "value": {}}),
        2,
        "must carry a token or null",
        id="inspect without",
    ),
    pytest.param(
        lines({**ACQUIRE, "f": "read"}, {**GRANTED, "f": "read", "value": {"token": "x"}}),
        2,
        "a read saw must be a whole number or null",
        id="read of a word",
    ),
]


BAD_LINES += [
    pytest.param(
        lines(ACQUIRE, GRANTED, {**ACQUIRE, "process": "client-2", "f": f, "value": {"token": 1}}),
        3,
        f"{f!r} of process 'client-2', which is text: the process of a client's operation must be a whole number, so"
        " number the clients",
        id=f"text that calls {f}",
    )
    for f in ("acquire", "release", "renew", "inspect", "write", "read")
]


@pytest.mark.parametrize(("data", "line", "problem"), BAD_LINES)
def test_what_is_no_history_is_refused_with_its_line(
    write: Callable[[bytes], Path], data: bytes, line: int | None, problem: str
) -> None:
    path = write(data)
    with pytest.raises(HistoryError) as refused:
        read(path)
    assert problem in str(refused.value)
    assert str(path) in str(refused.value)
    assert refused.value.line == line
    if line is not None:
        assert f"line {line}: " in str(refused.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match="No such file"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(HistoryError, match="Is a directory"):
        read(tmp_path)


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_reading_fail_in_another_way(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "history.jsonl"
    path.write_bytes(data)
    with pytest.raises(HistoryError):
        read(path)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["token", "lease_ms", "x"]), inner),
    max_leaves=4,
)


@given(st.data())
def test_an_event_with_any_one_field_replaced_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    events = [json.loads(msgspec.json.encode(event)) for event in generate.valid(data.draw(st.randoms()), 6)]
    event = data.draw(st.sampled_from(events))
    event[data.draw(st.sampled_from([*event, "key", "value", "error", "node"]))] = data.draw(json_values)
    path = tmp_path_factory.mktemp("fields") / "history.jsonl"
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    try:
        told = len(read(path).events)
    except HistoryError as refused:
        told = None if refused.line is None else len(events)
    assert told == len(events)


@given(st.randoms(), st.data())
def test_a_history_cut_anywhere_is_read_up_to_its_last_whole_line(
    tmp_path_factory: pytest.TempPathFactory, rng: Any, data: st.DataObject
) -> None:
    events = generate.valid(rng, 6)
    whole = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    first = whole.index(b"\n") + 1
    cut = data.draw(st.integers(first, len(whole)))
    path = tmp_path_factory.mktemp("cut") / "history.jsonl"
    path.write_bytes(whole[:cut])
    read_events = list(read(path).events)
    kept = whole[:cut].count(b"\n")
    assert read_events == events[: len(read_events)]
    assert len(read_events) - kept in (0, 1)
