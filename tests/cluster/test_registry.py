from __future__ import annotations

import pytest

from cluster import places, systems
from cluster.places.local import LocalPlace
from cluster.registry import UnknownName
from cluster.systems.lockd import Lockd
from tests.cluster.standin import Standin


def test_built_in_names_are_found() -> None:
    assert isinstance(systems.create("lockd"), Lockd)
    assert places.load("local") is LocalPlace
    assert systems.names() == ("lockd",)
    assert places.names() == ("local",)


def test_a_module_of_the_users_own_is_found() -> None:
    assert isinstance(systems.create("tests.cluster.standin:Standin"), Standin)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("etdc", "no system 'etdc': there are lockd"),
        ("nowhere.at_all:Thing", "can't be imported .*No module named 'nowhere'"),
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
