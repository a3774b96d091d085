"""docs/histories.md: its history, its messages and its names are those of the checker."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import msgspec
import pytest

import checker
from checker.operations import OPERATIONS
from fencepost.outcome import NOTHING_CHECKED
from tests.docs.markdown import DOCS, blocks, first_column

GUIDE = DOCS / "histories.md"
TEXT = GUIDE.read_text(encoding="utf-8")

ACQUIRE = '{"index":0,"time":5,"process":0,"type":"invoke","f":"acquire","key":"a"}\n'
OK = '{"index":1,"time":6,"process":0,"type":"ok","f":"acquire","key":"a"}\n'
BROKEN = [
    "",
    ACQUIRE.replace(":0,", ":1,", 1),
    ACQUIRE.replace("acquire", "lock"),
    ACQUIRE.replace(',"key":"a"', ""),
    ACQUIRE.replace("acquire", "release").replace("}", ',"value":{"token":"x"}}'),
    OK.replace(":1,", ":0,", 1),
    ACQUIRE + ACQUIRE.replace(":0,", ":1,", 1),
    ACQUIRE + OK.replace('"a"', '"b"'),
    ACQUIRE + OK,
    ACQUIRE + OK.replace("6", "1"),
    ACQUIRE + "garbage\n",
]


def test_the_example_says_what_it_is_said_to(tmp_path: Path) -> None:
    (block,) = blocks(GUIDE, "jsonl")
    path = tmp_path / "history.jsonl"
    path.write_text(block.text)
    results = checker.check(checker.read(path))
    assert results.violated == ("mutual-exclusion",)
    (finding,) = results.claims["mutual-exclusion"].findings
    told = " ".join(TEXT.split())
    for line in finding.message.splitlines():
        assert line in told


def test_the_python_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (history,), (example,) = blocks(GUIDE, "jsonl"), blocks(GUIDE, "python")
    (tmp_path / "history.jsonl").write_text(history.text)
    monkeypatch.chdir(tmp_path)
    exec(compile(example.text, str(example), "exec"), {})
    assert capsys.readouterr().out.startswith("invalid 1\nkey 'a': token 2 was held")


def test_every_message_is_one_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = []
    for text in BROKEN:
        Path("h.jsonl").write_text(text)
        with pytest.raises(checker.HistoryError) as refusal:
            checker.read("h.jsonl")
        given.append(str(refusal.value))
    (block,) = blocks(GUIDE, "text")
    assert block.text.splitlines() == given


def test_every_field_of_an_event_is_there() -> None:
    assert first_column(GUIDE, "The format") == [field.name for field in msgspec.structs.fields(checker.Event)]


def test_every_operation_is_there() -> None:
    assert set(first_column(GUIDE, "Operations")) == set(OPERATIONS)


def test_every_field_of_the_results_is_there() -> None:
    assert first_column(GUIDE, "results.json")[:7] == [*NOTHING_CHECKED, "run"]
    cited = (checker.Finding, checker.CitedOperation, checker.Fault, checker.ClaimResult)
    for name in {field.name for kind in cited for field in fields(kind)}:
        assert f"`{name}`" in TEXT
