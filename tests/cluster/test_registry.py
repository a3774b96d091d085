from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import places, registry, systems
from cluster.places.local import LocalPlace
from cluster.registry import UnknownName
from cluster.systems.lockd import Lockd
from tests.cluster.standin import Standin


def test_built_in_names_are_found() -> None:
    assert isinstance(systems.create("lockd"), Lockd)
    assert places.load("local") is LocalPlace
    assert systems.names() == ("lockd",)
    assert "local" in places.names()


def test_a_module_of_the_users_own_is_found() -> None:
    assert isinstance(systems.create("tests.cluster.standin:Standin"), Standin)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("etdc", "no system 'etdc': there are lockd"),
        ("nowhere.at_all:Thing", "there is no module nowhere; it has to be in the scenario's folder, in the current"),
        ("tests.cluster.nowhere:Thing", "there is no module tests.cluster.nowhere; it has to be in the scenario's"),
        ("tests.cluster.standin:Thing", "module tests.cluster.standin has no Thing"),
        ("tests.cluster.standin:ask", "can't be made with no arguments"),
        (":Thing", "no system"),
    ],
)
def test_what_cannot_be_found_is_said(name: str, says: str) -> None:
    with pytest.raises(UnknownName, match=says):
        systems.create(name)


def test_a_mutant_that_there_is_not_is_said() -> None:
    with pytest.raises(UnknownName, match="no mutant 'upside-down'"):
        systems.create("lockd", mutant="upside-down")
    with pytest.raises(UnknownName, match="can't be made with mutant="):
        systems.create("tests.cluster.standin:Standin", mutant="any")


def test_what_is_no_place_is_refused() -> None:
    with pytest.raises(UnknownName, match="is no place"):
        places.load("tests.cluster.standin:Standin")


def test_node_names() -> None:
    assert places.node_names(3) == ("n1", "n2", "n3")


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Where Python looks for modules, and which it has loaded, is as before when a test is over."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    loaded = set(sys.modules)
    yield
    for name in set(sys.modules) - loaded:
        del sys.modules[name]


@pytest.mark.usefixtures("path")
def test_modules_are_found_where_they_are_looked_for_and_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "cluster.py").write_text("raise SystemExit('ours is hidden')")
    (tmp_path / "registry_test_locks.py").write_text("class Locks: tokens_span_keys = True")
    registry.look_in(tmp_path)
    assert systems.create("registry_test_locks:Locks").tokens_span_keys
    assert registry.home("registry_test_locks") == tmp_path.resolve()
    assert isinstance(systems.create("lockd"), Lockd)


@pytest.mark.usefixtures("path")
def test_a_module_that_needs_another_one_says_which(tmp_path: Path) -> None:
    (tmp_path / "registry_test_needy.py").write_text("import nowhere_to_be_found")
    registry.look_in(tmp_path)
    with pytest.raises(UnknownName, match="module registry_test_needy needs nowhere_to_be_found"):
        systems.create("registry_test_needy:Locks")


@pytest.mark.usefixtures("path")
def test_a_module_that_is_hidden_by_one_of_the_same_name_is_told(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        registry.look_in(tmp_path / name)
    for name in ("one", "two"):
        (tmp_path / name / "registry_test_twin.py").write_text("class Locks: pass")
    systems.create("registry_test_twin:Locks")
    assert registry.hidden("registry_test_twin:Locks", tmp_path / "one") is None
    assert registry.hidden("registry_test_twin:Locks", tmp_path / "three") is None
    assert registry.hidden("registry_test_twin:Locks", tmp_path / "two") == tmp_path / "two" / "registry_test_twin.py"
