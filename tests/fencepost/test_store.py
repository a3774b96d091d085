from __future__ import annotations

import errno
import json
import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from fencepost import runner, store
from fencepost.exits import Exit, UserError
from fencepost.outcome import Outcome
from fencepost.scenario import Scenario
from tests.fencepost.outcomes import results, scenario

#: A file that can be opened and not written, as on a full disk.
FULL = Path("/dev/full")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_a_run_gets_a_folder_under_its_scenario_and_latest_points_to_it(tmp_path: Path) -> None:
    folder = store.create(tmp_path / "store", "demo", NOW)
    assert folder.path == tmp_path / "store" / "demo" / "2026-01-02T03-04-05Z"
    assert (tmp_path / "store" / "latest").resolve() == folder.path.resolve()
    assert not (tmp_path / "store" / "latest").readlink().is_absolute()


def test_runs_of_one_second_get_different_folders_also_at_once(tmp_path: Path) -> None:
    made: list[Path] = []
    threads = [threading.Thread(target=lambda: made.append(store.create(tmp_path, "x", NOW).path)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 16
    assert (tmp_path / "latest").resolve() in {path.resolve() for path in made}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_latest_is_never_missing_while_it_moves(tmp_path: Path) -> None:
    store.create(tmp_path, "x", NOW)
    over, missing = threading.Event(), []

    def look() -> None:
        while not over.is_set():
            if not (tmp_path / "latest").is_dir():
                missing.append(True)

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(100):
        store.create(tmp_path, "x", NOW)
    over.set()
    thread.join()
    assert missing == []


def test_a_folder_called_latest_costs_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "latest" / "kept").mkdir(parents=True)
    assert store.create(tmp_path, "x", NOW).path.is_dir()
    assert (tmp_path / "latest" / "kept").is_dir()
    assert "was not moved" in caplog.text


@pytest.mark.parametrize(
    ("scenario", "name"),
    [
        ("../../etc/passwd", "etc-passwd"),
        ("a b/c", "a-b-c"),
        ("...", "scenario"),
        ("latest", "latest-scenario"),
        ("ü", "scenario"),
    ],
)
def test_a_scenario_name_cannot_leave_the_store(tmp_path: Path, scenario: str, name: str) -> None:
    folder = store.create(tmp_path, scenario, NOW)
    assert folder.path.parent == tmp_path / name


def test_a_store_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(store.StoreError, match=r"cannot make a run's folder in .*file"):
        store.create(tmp_path / "file", "x")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    store.write_text(tmp_path / "f", "old")
    with pytest.raises(TypeError):
        store.write_text(tmp_path / "f", 7)  # type: ignore[arg-type]
    assert (tmp_path / "f").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "f"]
    store.write_text(tmp_path / "f", "half a pair: \ud800")
    assert "ud800" in (tmp_path / "f").read_text()


def test_the_log_of_a_run_is_its_own(tmp_path: Path) -> None:
    logger = logging.getLogger("somewhere")
    with store.logging_to(tmp_path / "a.log"):
        logger.debug("inside %s", "key \ud800")
    logger.warning("outside")
    text = (tmp_path / "a.log").read_text()
    assert "inside key" in text
    assert "outside" not in text


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
def test_a_log_on_a_full_disk_is_one_line_and_no_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("somewhere")
    with store.logging_to(FULL):
        logger.debug("one")
        logger.debug("two")
    assert capsys.readouterr().err == (
        "fencepost: the store cannot be written: /dev/full: No space left on device; the log has gaps\n"
    )


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("file", ["harness.log", "scenario.yaml"])
def test_a_store_that_is_full_at_the_start_is_named(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = store.create(tmp_path / "store", "x")
    if file == "scenario.yaml":
        folder.scenario.symlink_to(FULL)
    else:
        folder.log.mkdir()
    monkeypatch.setattr(store, "create", lambda *_: folder)
    with pytest.raises(UserError, match=f"the store cannot be written: {folder.path}: "):
        runner.run(replace(scenario(), path=Path(__file__)), tmp_path / "store", Console(quiet=True))


def test_results_that_cannot_be_written_are_the_harness_failing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: object) -> None:
        if path.name == "results.json":
            raise OSError(errno.ENOSPC, "No space left on device")

    def run_it(plan: Scenario, folder: store.RunFolder, *_: object) -> Outcome:
        return Outcome(plan, folder, results())

    monkeypatch.setattr(store, "write_json", full)
    monkeypatch.setattr(runner, "_run", run_it)
    end = runner.run(scenario(), tmp_path / "store", Console(quiet=True))
    assert end.failure == f"the store cannot be written: {end.folder.path}: No space left on device"
    assert end.exit is Exit.HARNESS


def test_versions_name_what_took_part() -> None:
    versions = json.loads(json.dumps(store.versions({"name": "lockd", "version": "lockd 1"}, "local")))
    assert versions["system"] == {"name": "lockd", "version": "lockd 1"}
    assert versions["libraries"]["msgspec"]
