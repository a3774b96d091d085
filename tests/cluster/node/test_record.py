"""What a node writes down of what it applies."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.node.commands import Expire, Expired, Grant, Granted, Noop, NothingDone
from cluster.node.core import Applied
from cluster.node.record import Line, Record, decode, machine_clock
from cluster.node.steward import Proposed


def lines(path: Path) -> list[Line]:
    return [decode(text) for text in path.read_bytes().splitlines()]


def test_a_life_is_written_down_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "applied.jsonl"
    record = Record(path)
    record.add((), [Applied(1, 1, Noop(), NothingDone())], led=1)
    record.add([Proposed(2, 1, "7")], (), led=1)
    record.add((), [Applied(2, 1, Grant("k\u00e9y", 500), Granted(3)), Applied(3, 1, Expire("a", 3), Expired(True))], 0)
    record.fail("AssertionError: why")
    record.close()
    began, leads, noop, proposed, grant, expire, failed = lines(path)
    assert began.began == machine_clock()
    assert (leads.leads, failed.failed) == (1, "AssertionError: why")
    assert (noop.index, noop.command, noop.result) == (1, Noop(), NothingDone())
    assert (proposed.proposed, proposed.term, proposed.tag) == (2, 1, "7")
    assert (grant.index, grant.term, grant.command, grant.result) == (2, 1, Grant("k\u00e9y", 500), Granted(3))
    assert expire.result == Expired(True)
    assert (began.at or 0) <= (grant.at or 0)


def test_the_next_life_begins_on_a_new_line(tmp_path: Path) -> None:
    path = tmp_path / "applied.jsonl"
    Record(path).close()
    path.write_bytes(path.read_bytes() + b'{"index":1,"te')
    Record(path).close()
    whole, torn, again = path.read_bytes().splitlines()
    assert decode(whole).began == decode(again).began == machine_clock()
    assert torn == b'{"index":1,"te'


def test_where_nothing_can_be_written_the_node_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Record(tmp_path / "missing" / "applied.jsonl")
    with pytest.raises(OSError, match="No space left"):
        Record(Path("/dev/full"))
