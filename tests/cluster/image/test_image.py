"""What goes into the image, and that it is built once."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.image import build, content
from cluster.image.content import Content, Target
from cluster.places.base import PlaceError
from cluster.places.docker_engine import RUN_LABEL
from tests.docker_engine import engine


def test_the_content_is_the_package_and_what_nodes_import() -> None:
    found = content.read()
    assert {"cluster/node/server.py", "cluster/mutants/__main__.py", "cluster/places/agent.py"} <= set(found.sources)
    assert (
        found.sources["cluster/node/server.py"]
        == Path(sys.modules["cluster"].__path__[0], "node", "server.py").read_bytes()
    )
    assert {"msgspec", "typer", "rich"} <= set(found.libraries), "rich: what typer needs"
    assert not {"docker", "psutil", "pytest", "jinja2"} & set(found.libraries), "for the testbed alone"


def test_what_only_extras_install_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    there = content.metadata.packages_distributions()
    optional = {"distributed", "libfaketime", "mfusepy", "paramiko"}
    assert optional <= set(there), "else this shows nothing"
    monkeypatch.setattr(
        content.metadata,
        "packages_distributions",
        lambda: {module: names for module, names in there.items() if module not in optional},
    )
    assert not optional & set(content.read().libraries)


def test_the_digest_names_the_content() -> None:
    found = content.read()
    assert found.digest() == content.read().digest()
    changed = [
        replace(found, dockerfile=found.dockerfile + "#"),
        replace(found, sources={**found.sources, "cluster/node/server.py": b"pass\n"}),
        replace(found, sources={**found.sources, "cluster/extra.py": b""}),
        replace(found, libraries={**found.libraries, "msgspec": "0.0.1"}),
    ]
    assert len({found.digest(), *(other.digest() for other in changed)}) == 1 + len(changed)


def test_libraries_are_copied_as_they_are_here(tmp_path: Path) -> None:
    content.read().write(tmp_path, Target.here())
    assert (tmp_path / "Dockerfile").read_text().startswith("#")
    assert list((tmp_path / "libraries" / "msgspec").glob("_core*.so"))
    assert (tmp_path / "sources" / "cluster" / "node" / "server.py").exists()
    assert not list(tmp_path.rglob("__pycache__"))


def test_libraries_for_another_python_that_can_not_be_had_are_told_of(tmp_path: Path) -> None:
    alien = Content("FROM x", {}, {"msgspec": "999.0"})
    with pytest.raises(PlaceError, match=r"runs Python 3\.99 for x86_64.*pip could not fetch"):
        alien.write(tmp_path, Target((3, 99), "x86_64"))


def test_an_import_that_nobody_provides_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content.metadata, "packages_distributions", dict)
    with pytest.raises(PlaceError, match=r"nodes import .*, and no installed distribution has it"):
        content.read()


def test_an_image_that_is_there_is_not_built_again() -> None:
    client, said = engine(), list[str]()
    image = build.ensure(client, said.append)
    assert (image, said) == (build.name(), [])
    assert image not in build.outdated(client)


def test_the_image_runs_every_part_of_a_node() -> None:
    image = build.ensure(engine(), print)

    def run(*command: str) -> bytes:
        """As somebody whom the image doesn't know."""
        output: bytes = engine().containers.run(
            image, list(command), remove=True, network_disabled=True, user="12345:12345", labels={RUN_LABEL: "test"}
        )
        return output

    assert b"Usage" in run("python3", "-m", "cluster.node", "--help")
    assert b"Usage" in run("python3", "-m", "cluster.mutants", "every-node-grants", "serve", "--help")
    tools = run("sh", "-c", "for tool in nft iptables ip6tables ip; do command -v $tool; done")
    assert len(tools.splitlines()) == 4


def test_a_base_that_can_be_had_nowhere_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    said = list[str]()
    monkeypatch.setattr(build, "bases", lambda _: [])
    monkeypatch.setattr(build, "_official", lambda: "localhost:1/python:none")
    monkeypatch.setattr(build, "_from_packages", lambda _: "fencepost/base:none")
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    with pytest.raises(PlaceError, match="apt-get install mmdebstrap, or let the engine reach a registry"):
        build.build(engine(), said.append)
    assert said[0] == "pulling localhost:1/python:none"
    assert "can't be pulled" in said[1]
    assert "made from Debian packages instead" in said[1]
