"""docs/systems.md: its code is that of docs/examples, and the scenario there finds the bug, with a real process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import DOCS, ROOT, Block, blocks

EXAMPLES = DOCS / "examples"
GUIDE = DOCS / "systems.md"


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", "from fencepost.cli import main; main()", "run", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=60, check=False)


@pytest.mark.parametrize("block", blocks(GUIDE, "python"), ids=str)
def test_the_guide_shows_code_that_is_there(block: Block) -> None:
    sources = [file.read_text() for file in EXAMPLES.glob("*.py")]
    assert any(block.text in source for source in sources)


def test_the_guide_shows_the_whole_scenario() -> None:
    (block,) = blocks(GUIDE, "yaml")
    assert block.text == (EXAMPLES / "tinylock.yaml").read_text()


def test_the_scenario_finds_the_bug(tmp_path: Path) -> None:
    done = run(EXAMPLES / "tinylock.yaml", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["expected"]
    assert document["claims"]["fencing"]["verdict"] == document["claims"]["linearizable"]["verdict"] == "invalid"
    assert "was granted twice" in document["claims"]["fencing"]["findings"][0]["message"]
    assert document["claims"]["recovery"]["verdict"] == "valid"
    assert document["coverage"]["kills"] == 2


def test_without_the_kill_nothing_is_wrong(tmp_path: Path) -> None:
    """As the guide says: so it is the bug that is found, and not the module that is wrong."""
    text = (EXAMPLES / "tinylock.yaml").read_text()
    dropped = ("nemesis:", "  - {fault: kill", "expect:")
    calm = "".join(line for line in text.splitlines(True) if not line.startswith(dropped))
    shutil.copytree(EXAMPLES, tmp_path, dirs_exist_ok=True)
    (tmp_path / "calm.yaml").write_text(calm.replace(", kills: 2", "").replace("time_limit: 5s", "time_limit: 3s"))
    done = run("calm.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
