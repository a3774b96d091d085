"""What people are told about a scenario that cannot be used: the exact words, one file for each mistake.

The files in `problems/` say themselves what is to be expected, in lines that begin with `#!`: the whole message
without the file's name.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from checker import CLAIMS, COVERAGE_KEYS
from cluster import mutants
from fencepost.scenario import ScenarioError, load
from fencepost.scenario.reader import FAULT_FIELDS, FAULT_OPTIONS
from fencepost.yaml_file import BYTES_MAX, VALUES_MAX
from nemesis.kinds import KINDS

GOLDEN = sorted((Path(__file__).parent / "problems").glob("*.yaml"))

WHOLE = """\
time_limit: 60s
workload: {kind: mutex, clients: 4, keys: 3, rate: 200/s, lease: 2s, hold: 50ms..500ms}
"""


def problems(path: Path) -> list[str]:
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    for problem in caught.value.problems:
        assert problem.file == str(path)
    return [str(problem).removeprefix(f"{path}:").strip() for problem in caught.value.problems]


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_mistake_is_named_with_line_field_and_remedy(path: Path) -> None:
    expected = [
        line.removeprefix("#! ")
        .replace("{claims}", ", ".join(CLAIMS))
        .replace("{coverage}", ", ".join(COVERAGE_KEYS))
        .replace("{mutants}", ", ".join(mutants.names()))
        .replace("{fault_fields}", ", ".join(FAULT_FIELDS + FAULT_OPTIONS))
        .replace("{faults}", ", ".join(KINDS))
        .replace("{drawn}", ", ".join(kind for kind in KINDS if kind != "random"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith("#! ")
    ]
    assert expected, "a golden file says what to expect"
    assert problems(path) == expected


def test_the_golden_files_are_here() -> None:
    assert len(GOLDEN) > 70


def test_no_file(tmp_path: Path) -> None:
    assert problems(tmp_path / "none.yaml") == ["found no such file; expected the path of a scenario"]


def test_a_folder(tmp_path: Path) -> None:
    assert problems(tmp_path) == ["found a folder; expected the path of a scenario"]


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert problems(tmp_path / "file" / "x.yaml") == [
        "found a file that cannot be read (Not a directory); expected the path of a scenario"
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.yaml"
    path.write_text(WHOLE)
    path.chmod(0)
    assert problems(path) == ["found a file that cannot be read (Permission denied); expected the path of a scenario"]


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("")
    assert problems(path) == ["found an empty file; expected a scenario"]


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes(WHOLE.encode() + "name: café\n".encode("latin-1"))
    assert problems(path) == ["3: found the byte 0xe9; expected text in UTF-8"]


def test_a_file_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    began = time.monotonic()
    assert problems(path) == [f"found more than {BYTES_MAX} bytes; expected a scenario"]
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "], ids=["lists", "mappings", "blocks"])
def test_nesting_without_end(tmp_path: Path, opening: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(opening * 20_000)
    assert problems(path) == ["found lists or mappings nested without end; expected a scenario"]


def test_what_aliases_unfold_to_is_bounded(tmp_path: Path) -> None:
    """Forty lines of aliases that mean 2,000 faults with 2,000 links each."""
    path = tmp_path / "bomb.yaml"
    links = ", ".join(["[n1, n2]"] * 2000)
    faults = ", ".join(["*fault"] * 2000)
    text = f"first: &fault {{fault: partition, cuts: [{links}], at: 1s, for: 1s}}\nnemesis: [{faults}]\n"
    path.write_text(WHOLE + text)
    began = time.monotonic()
    assert f"found more than {VALUES_MAX} values, aliases included; expected a smaller file" in problems(path)
    assert time.monotonic() - began < 10


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + WHOLE.encode())
    assert load(path).name == "bom"


def test_aliases_may_be_used(tmp_path: Path) -> None:
    path = tmp_path / "alias.yaml"
    path.write_text(WHOLE + "nemesis:\n  - &a {fault: kill, target: one, at: 1s, for: 1s}\n  - *a\n")
    first, second = load(path).nemesis
    assert first == second
