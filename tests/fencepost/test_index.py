from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fencepost import index
from fencepost.index import Run

FIRST, SECOND = "2026-01-02T03-04-05Z", "2026-01-02T03-04-06Z"


def add(store: Path, name: str, time: str, *, verdict: str = "valid", code: int = 0, **run: Any) -> Path:
    folder = store / name / time
    folder.mkdir(parents=True)
    (folder / "scenario.yaml").write_text("")
    (folder / "versions.json").write_text(json.dumps({"place": "sim"}))
    document = {"verdict": verdict, "run": {"scenario": f"the {name}", "seed": 7, "exit_code": code, **run}}
    (folder / "results.json").write_text(json.dumps(document))
    return folder


def listed(store: Path) -> list[tuple[str, str | None]]:
    return [(run.folder, run.verdict) for run in index.runs(store)]


def test_the_last_run_comes_first_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    add(tmp_path, "one", FIRST)
    add(tmp_path, "two", SECOND, verdict="invalid", code=1)
    assert index.runs(tmp_path) == [
        Run(f"two/{SECOND}", SECOND, "the two", 7, "sim", "invalid", 1),
        Run(f"one/{FIRST}", FIRST, "the one", 7, "sim", "valid", 0),
    ]
    assert index.runs(tmp_path / "nowhere") == []


def test_a_run_that_has_no_results_yet_is_listed_and_read_again_when_it_has(tmp_path: Path) -> None:
    folder = add(tmp_path, "one", FIRST)
    results = (folder / "results.json").read_text()
    (folder / "results.json").unlink()
    assert index.runs(tmp_path) == [Run(f"one/{FIRST}", FIRST, "one", None, "sim", None, None)]
    (folder / "results.json").write_text(results)
    assert listed(tmp_path) == [(f"one/{FIRST}", "valid")]
    shutil.rmtree(folder)
    assert listed(tmp_path) == []


def test_what_is_in_the_index_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "one", FIRST)
    found = listed(tmp_path)

    def refuse(*_: object) -> Run:
        raise AssertionError("a run was read again")

    monkeypatch.setattr(index, "_read", refuse)
    assert listed(tmp_path) == found


def damage(file: Path) -> None:
    file.write_bytes(b"this is no database" * 100)


def outdate(file: Path) -> None:
    connection = sqlite3.connect(file)
    connection.execute("DROP TABLE runs")
    connection.execute("CREATE TABLE runs (folder)")
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("harm", [Path.unlink, damage, outdate])
def test_an_index_that_is_of_no_use_is_made_anew(tmp_path: Path, harm: Any) -> None:
    add(tmp_path, "one", FIRST)
    found = listed(tmp_path)
    harm(tmp_path / index.NAME)
    assert listed(tmp_path) == found
    assert listed(tmp_path) == found
    rows = sqlite3.connect(tmp_path / index.NAME).execute("SELECT folder, verdict FROM runs").fetchall()
    assert rows == found


def test_a_store_that_cannot_be_written_is_listed_all_the_same(tmp_path: Path) -> None:
    add(tmp_path, "one", FIRST)
    (tmp_path / index.NAME).mkdir()  # in place of a file; root may write everything
    assert listed(tmp_path) == [(f"one/{FIRST}", "valid")]


@pytest.mark.parametrize(
    "text", ["", "[]", "null", "{", '{"run": 3}', '{"run": {"seed": 1e99, "exit_code": "x"}}', '{"verdict": 5}',
             '{"verdict": "\\ud800", "run": {"seed": 99999999999999999999, "scenario": ["x"]}}']
)  # fmt: skip
def test_results_may_say_anything(tmp_path: Path, text: str) -> None:
    folder = add(tmp_path, "one", FIRST)
    (folder / "results.json").write_text(text)
    (run,) = index.runs(tmp_path)
    assert (run.folder, run.scenario, run.seed, run.exit_code) == (f"one/{FIRST}", "one", None, None)
