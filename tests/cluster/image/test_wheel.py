"""The wheel that hosts run from."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cluster.image import wheel
from cluster.image.content import Target


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        said: list[str] = []
        path = wheel.cached(Target.here(), said.append)
        assert said == [f"{path.name} is made now, once"]
        before = path.stat()
        assert wheel.cached(Target.here(), said.append) == path
        assert (path.stat().st_ino, len(said)) == (before.st_ino, 1), "it is there"
        assert list(path.parent.iterdir()) == [path]
    return path


def test_it_is_a_wheel_whose_record_is_right(made: Path) -> None:
    name, version, python, abi, platform = made.stem.split("-")
    assert (name, python, abi) == ("fencepost_node", python, python)
    assert platform.startswith("linux_")
    with zipfile.ZipFile(made) as archive:
        names = set(archive.namelist())
        record = archive.read(f"{name}-{version}.dist-info/RECORD").decode().splitlines()
        assert {line.split(",")[0] for line in record} == names
        for line in record[:-1]:
            path, digest, size = line.rsplit(",", 2)
            data = archive.read(path)
            assert digest == "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert int(size) == len(data)
        assert f"Tag: {python}-{abi}-{platform}" in archive.read(f"{name}-{version}.dist-info/WHEEL").decode()


def test_nodes_and_agents_run_from_it_alone(made: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(made) as archive:
        names = archive.namelist()
        compiled = {name.split("/")[0] for name in names if name.endswith(".so")}
        archive.extractall(tmp_path, [name for name in names if name.split("/")[0] in compiled])
    program = (
        "import cluster.node.cli, cluster.places.ssh.agent, psutil, sys;"
        "print(cluster.node.cli.__file__, cluster.places.ssh.agent.__file__, psutil.__file__)"
    )
    done = subprocess.run(
        # -S: nothing of this environment is found.
        [sys.executable, "-S", "-P", "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}:{made}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    node, agent, library = done.stdout.split()
    assert node.startswith(str(made))
    assert agent.startswith(str(made))
    assert library.startswith(str(tmp_path))
