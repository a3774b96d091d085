"""Membership, transfers and damage to disks, on the simulated place: what takes effect, and what is brought back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.places.base import PlaceError, ProcessState
from cluster.places.sim import SimPlace
from cluster.places.sim.loop import VirtualLoop
from cluster.readiness import await_ready
from cluster.systems.lockd import Lockd
from nemesis.conductor import Nemesis
from nemesis.ledger import Ledger
from nemesis.membership import configuration
from nemesis.schedule import plan
from nemesis.spec import FaultSpec, validate
from tests.nemesis.arena import LIMIT_NS, fault

FULL = ["inject", "injected", "heal", "healed"]

Events = list[dict[str, Any]]


def run(
    folder: Path, specs: Sequence[FaultSpec], *, nodes: int = 3, seed: int = 1, mutant: str | None = None
) -> Events:
    """What the nemesis recorded; the cluster has all its members and serves afterwards."""
    events: Events = []

    def record(_process: object, _type: object, f: str, /, *, value: dict[str, Any] | None = None) -> None:
        events.append({"f": f, **json.loads(json.dumps(value))})

    async def body() -> None:
        names = tuple(f"n{number + 1}" for number in range(nodes))
        place = SimPlace(Lockd(mutant), names, folder, seed=seed)
        await place.start()
        assert (await await_ready(place, names, 30.0)).complete
        client = await place.system.connect(place.client_address("n1"), 5.0)
        for number in range(40):
            await client.acquire(f"k{number}", 60_000, 0)
        loop = asyncio.get_running_loop()
        nemesis = Nemesis(
            place,
            plan(specs, seed, LIMIT_NS),
            record=record,
            ledger=Ledger(folder / "ledger.jsonl"),
            clock=lambda: round(loop.time() * 1e9),
            time_limit_ns=LIMIT_NS,
        )
        await nemesis.run()
        ready = await await_ready(place, names, 30.0)
        assert ready.complete, ready.describe()
        known = await configuration(place)
        assert known is not None
        assert sorted(known.members) == sorted(names)
        assert all(member.votes for member in known.members.values())
        assert [spec for spec in nemesis.resolved() if validate(spec, names, LIMIT_NS)] == []
        await place.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(body())
    return events


def actions(events: Events, id: str = "f1") -> list[str]:
    return [event["action"] for event in events if event.get("fault") == id]


def told(events: Events, action: str, id: str = "f1") -> str:
    (event,) = [event for event in events if event.get("fault") == id and event["action"] == action]
    return str(event.get("evidence", event.get("reason")))


def test_leadership_moves_to_the_node_that_is_named(tmp_path: Path) -> None:
    events = run(tmp_path, [fault("transfer", ("n2", "n3"))])
    assert actions(events) == FULL
    assert "led term 1" in told(events, "injected")
    assert "led term 2" in told(events, "injected")


def test_leadership_moves_again_and_again(tmp_path: Path) -> None:
    events = run(tmp_path, [fault("transfer", "follower", lasts=3000, interval=(200, 300))])
    assert actions(events) == FULL
    assert int(told(events, "healed").split(" moves")[0]) > 5


@pytest.mark.parametrize("target", ["leader", "follower", "minority", ("n1", "n2")])
@pytest.mark.parametrize("change", ["remove", "replace"])
def test_nodes_leave_and_come_back(tmp_path: Path, target: str | tuple[str, ...], change: str) -> None:
    events = run(tmp_path, [fault("membership", target, lasts=2000, change=change)], nodes=5)
    assert actions(events) == FULL, events
    assert ("lost everything" in told(events, "injected")) == (change == "replace")
    assert "lists n1, n2, n3, n4, n5 before" in told(events, "injected")
    assert "lists n1, n2, n3, n4, n5, after" in told(events, "healed")


def test_a_removal_that_is_not_final_wipes_nobody(tmp_path: Path) -> None:
    """The other two can't agree: one of them is cut off. All is brought back when it no longer is."""
    specs = [
        fault("transfer", ("n1",)),
        fault("partition", ("n3",), shape="one", at=1500, lasts=9000),
        fault("membership", ("n2",), at=2000, lasts=1000, change="replace"),
    ]
    for seed in range(3):
        events = run(tmp_path, specs, seed=seed)
        assert "n2 could not be removed" in told(events, "skipped", "f3")
        assert actions(events, "f3")[-1] == "healed", "once there is a majority again"


def test_no_majority_of_the_nodes_is_ever_removed(tmp_path: Path) -> None:
    specs = [fault("membership", "minority", at=1000 * n, lasts=8000) for n in range(3)]
    events = run(tmp_path, specs, nodes=5)
    assert actions(events) == FULL
    assert "no more shall be removed" in told(events, "skipped", "f2")


def test_too_few_would_be_left_alive(tmp_path: Path) -> None:
    specs = [fault("kill", ("n2",), lasts=4000), fault("membership", "leader", at=1500, lasts=1000)]
    events = run(tmp_path, specs)
    assert "too few run" in told(events, "skipped", "f2") or "no node leads" in told(events, "skipped", "f2")


@pytest.mark.parametrize("kind", ["disk-flip", "disk-truncate"])
@pytest.mark.parametrize("target", ["leader", "all"])
@pytest.mark.parametrize("seed", range(4))
def test_damaged_data_is_refused_and_given_back(tmp_path: Path, kind: str, target: str, seed: int) -> None:
    events = run(tmp_path, [fault(kind, target, at=500, lasts=3000)], seed=seed)
    assert actions(events) == FULL
    assert told(events, "injected").count("log is damaged") == (3 if target == "all" else 1), told(events, "injected")


def test_a_node_that_goes_on_with_damaged_data_keeps_it(tmp_path: Path) -> None:
    events = run(tmp_path, [fault("disk-flip", "follower", at=500, lasts=3000)], mutant="cuts-at-damage")
    assert "started with it all the same" in told(events, "injected")
    assert actions(events) == FULL


def test_no_file_of_that_name(tmp_path: Path) -> None:
    events = run(tmp_path, [fault("disk-flip", "one", file="*.db")])
    assert "has no file *.db" in told(events, "skipped")


def test_old_data_comes_back(tmp_path: Path) -> None:
    specs = [
        fault("transfer", "follower", at=2000),  # so that there is something new on the disks
        fault("disk-restore", "one", at=4000, lasts=1000, age=(3000, 3000)),
    ]
    events = run(tmp_path, specs)
    assert actions(events, "f2") == FULL
    assert "in place of" in told(events, "injected", "f2")


def test_data_that_has_not_changed_since_is_no_old_data(tmp_path: Path) -> None:
    events = run(tmp_path, [fault("disk-restore", "one", at=4000, lasts=1000, age=(500, 500))])
    assert "was the same so long before" in told(events, "skipped")


@pytest.mark.parametrize("kind", ["disk-flip", "disk-truncate"])
def test_damage_that_was_undone_does_not_come_back_as_old_data(tmp_path: Path, kind: str) -> None:
    specs = [
        fault(kind, ("n3",), at=500, lasts=3000),
        fault("transfer", "follower", at=4000, lasts=500),
        fault("disk-restore", ("n3",), at=5000, lasts=1000, age=(3000, 3000)),
    ]
    events = run(tmp_path, specs)
    assert "log is damaged" in told(events, "injected")
    assert actions(events, "f3") == FULL


def test_only_dead_nodes_can_be_given_other_data(tmp_path: Path) -> None:
    async def body() -> None:
        place = SimPlace(Lockd(), ("n1", "n2"), tmp_path, seed=1)
        await place.start()
        assert (await await_ready(place, place.nodes, 30.0)).complete
        with pytest.raises(PlaceError, match="n1 runs"):
            await place.wipe_node("n1")
        await place.kill_node("n1")
        assert await place.state("n1") is ProcessState.DEAD
        await place.wipe_node("n1")
        assert await place.read_data("n1") == {}
        await place.close()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(body())
