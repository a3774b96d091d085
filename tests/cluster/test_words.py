from __future__ import annotations

from cluster.words import counted


def test_one_thing_is_one() -> None:
    assert [counted(number, "node") for number in (0, 1, 2, 2000)] == ["0 nodes", "1 node", "2 nodes", "2,000 nodes"]
    assert [counted(number, "class", "classes") for number in (1, 2)] == ["1 class", "2 classes"]
