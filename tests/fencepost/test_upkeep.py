"""`fencepost heal` and `clean` for runs on this machine, whose reaper was killed too."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from cluster.places import leftovers
from cluster.places.leftovers import Leftover
from cluster.places.ownership import Harness
from fencepost import upkeep
from fencepost.exits import Exit, UserError
from nemesis.ledger import Entry, Ledger, unfinished
from tests.fencepost.test_runs import SHORT, finish, history_has, nodes_of, start, until

DEAD = Harness(Harness.this().machine, Harness.this().pid, 1.0)
ELSEWHERE = Harness("elsewhere", 1, 1.0)


def test_heal_ends_the_nodes_of_a_run_that_lost_its_harness_and_its_reaper(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SHORT.format(limit="60s", long="50s"))
    process = start("run", "s.yaml", "--json", cwd=tmp_path)
    try:
        until(lambda: history_has(tmp_path, '"partition"', '"injected"') or process.poll() is not None, "a fault")
        code, _, stderr = finish(start("heal", cwd=tmp_path))
        assert (code, len(nodes_of(tmp_path))) == (254, 3)
        assert f"its harness is alive (process {process.pid})" in stderr
        # First the reaper, which would end the nodes.
        for child in psutil.Process(process.pid).children():
            if "cluster.places.reaper" in child.cmdline():
                child.kill()
    finally:
        process.kill()
        process.communicate()
    assert len(nodes_of(tmp_path)) == 3
    code, stdout, stderr = finish(start("heal", "--json", cwd=tmp_path))
    assert code == 0, stderr
    assert nodes_of(tmp_path) == []
    document = json.loads(stdout)
    assert document["removed"] == [f"3 processes of {(tmp_path / 'store' / 'latest').resolve()}"]
    assert "f1" in document["healed"]
    code, stdout, _ = finish(start("heal", cwd=tmp_path))
    assert (code, stdout) == (0, "nothing was left to heal\n")


def test_a_folder_that_there_is_not_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such folder"):
        upkeep.heal(tmp_path / "nowhere", print)


def test_a_folder_that_is_no_runs_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="not the folder of a run"):
        upkeep.heal(tmp_path, print)


class Left:
    """What `leftovers.find` tells of, and what of it was removed."""

    def __init__(self, folder: Path) -> None:
        self.removed: list[str] = []
        self.things = [
            self.thing("dead", DEAD, folder),
            self.thing("alive", Harness.this(), folder.parent),
            self.thing("elsewhere", ELSEWHERE, folder.parent),
        ]

    def thing(self, name: str, harness: Harness, folder: Path) -> Leftover:
        def remove() -> list[str]:
            self.removed.append(name)
            return ["a log"]

        return Leftover("local", name, harness, folder, remove)


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Left:
    left = Left(tmp_path)
    monkeypatch.setattr(leftovers, "find", lambda _=None: (left.things, "no Docker"))
    return left


def test_clean_spares_what_may_be_in_use(left: Left, tmp_path: Path) -> None:
    said = list[str]()
    report = upkeep.clean(said.append)
    assert left.removed == ["dead"]
    assert said == [
        f"removed     dead of {tmp_path}",
        "lost        a log",
        f"kept        alive of {tmp_path.parent}: its harness is alive (--all removes it)",
        f"kept        elsewhere of {tmp_path.parent}: its harness can't be judged from here (--all removes it)",
        "docker      no Docker",
    ]
    assert report.exit is Exit.VALID


def test_clean_of_everything_spares_nothing(left: Left) -> None:
    upkeep.clean(print, everything=True)
    assert left.removed == ["dead", "alive", "elsewhere"]


@pytest.mark.parametrize(("place", "code"), [("local", Exit.VALID), ("docker", Exit.HARNESS)])
def test_heal_needs_docker_for_runs_in_docker_only(left: Left, tmp_path: Path, place: str, code: Exit) -> None:
    (tmp_path / "versions.json").write_text(json.dumps({"harness": str(DEAD), "place": place}))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(Entry("f1", "kill", "inject", ("n1",)))
    ledger.close()
    report = upkeep.heal(tmp_path, print)
    assert left.removed == ["dead"]
    assert report.exit is code
    assert bool(unfinished(tmp_path / "ledger.jsonl")) == (code is Exit.HARNESS), "closed when all is undone"


def test_what_stays_keeps_faults_open(left: Left, tmp_path: Path) -> None:
    def remove() -> list[str]:
        raise upkeep.PlaceError("it stays")

    left.things[0] = Leftover("local", "dead", DEAD, tmp_path, remove)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.write(Entry("f1", "kill", "inject", ("n1",)))
    ledger.close()
    report = upkeep.heal(tmp_path, print)
    assert (report.failed, report.healed) == ([f"dead of {tmp_path}: it stays"], [])
    assert report.exit is Exit.HARNESS
    assert [entry.fault for entry in unfinished(tmp_path / "ledger.jsonl")] == ["f1"]


def test_a_ledger_is_read_up_to_its_last_whole_line(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    ledger = Ledger(path)
    for entry in (
        Entry("f1", "kill", "inject", ("n1",), {"a": 1}),
        Entry("f2", "pause", "inject", ("n2",)),
        Entry("f1", "kill", "healed"),
    ):
        ledger.write(entry)
    ledger.close()
    with path.open("ab") as file:
        file.write(b'{"fault":"f3","kind":"ki')
    (open_fault,) = unfinished(path)
    assert (open_fault.fault, open_fault.kind, list(open_fault.targets)) == ("f2", "pause", ["n2"])


def test_a_ledger_that_is_none_is_the_users_mistake(left: Left, tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text("no ledger\n")
    with pytest.raises(UserError, match=r"ledger\.jsonl: can't be read as a ledger"):
        upkeep.heal(tmp_path, print)
    assert left.removed == []
