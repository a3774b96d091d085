"""The local place with real processes."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import psutil
import pytest

from cluster.places import node_names
from cluster.places.base import Link, PlaceError, ProcessState
from cluster.places.local import LocalPlace
from cluster.places.node_log import NodeLog
from cluster.places.node_process import NodeProcess
from cluster.systems.base import Address, Launch, NodeView
from tests.cluster.standin import Standin, ask

NODES = ("n1", "n2", "n3")


async def until_answers(place: LocalPlace, node: str) -> int:
    """Wait until the node serves; its incarnation."""
    deadline = time.monotonic() + 10
    while not await place.system.ready(place.address(node), 1.0):
        assert time.monotonic() < deadline, await place.account(node)
        await asyncio.sleep(0.02)
    return (await place.system.status(place.address(node), 1.0)).incarnation


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[LocalPlace]:
    place = LocalPlace(Standin(), NODES, tmp_path)
    await place.start()
    try:
        await asyncio.gather(*(until_answers(place, node) for node in NODES))
        yield place
    finally:
        await place.close()


def pid(place: LocalPlace, node: str) -> int:
    number = place._nodes[node].process.pid
    assert number is not None
    return number


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def relays(place: LocalPlace, source: str, target: str) -> bool:
    return await ask(place.address(source), f"relay {target}", 2) == "pong"


async def test_nodes_run_with_folders_and_logs_of_their_own(place: LocalPlace, tmp_path: Path) -> None:
    assert len({place.address(node).port for node in NODES}) == 3
    for node in NODES:
        assert (tmp_path / "nodes" / node / "data").is_dir()
        assert f"{node} listens" in (tmp_path / "nodes" / node / "node.log").read_text()
        assert await place.state(node) is ProcessState.RUNNING


async def test_kill_and_start_again_at_the_same_address(place: LocalPlace, tmp_path: Path) -> None:
    before = await until_answers(place, "n1")
    address, old = place.address("n1"), pid(place, "n1")
    await place.kill_node("n1")
    await place.kill_node("n1")
    assert await place.state("n1") is ProcessState.DEAD
    assert gone(old)
    assert not await place.system.ready(address, 1.0)
    assert "was ended by SIGKILL" in await place.account("n1")
    assert not await relays(place, "n2", "n1")
    await place.start_node("n1")
    assert place.address("n1") == address
    assert await until_answers(place, "n1") != before
    assert await relays(place, "n2", "n1"), "the old link leads to the new process"
    assert (tmp_path / "nodes" / "n1" / "node.log").read_text().count("n1 listens") == 2


async def test_starting_a_running_node_changes_nothing(place: LocalPlace) -> None:
    before = pid(place, "n1")
    await place.start_node("n1")
    assert pid(place, "n1") == before


async def test_a_dead_node_keeps_its_port_from_others(place: LocalPlace) -> None:
    await place.kill_node("n1")
    with socket.socket() as thief, pytest.raises(OSError, match="in use"):
        thief.bind((place.address("n1").host, place.address("n1").port))


async def test_pause_and_resume(place: LocalPlace) -> None:
    before = await until_answers(place, "n2")
    await place.pause_node("n2")
    await place.pause_node("n2")
    assert await place.state("n2") is ProcessState.PAUSED
    assert not await place.system.ready(place.address("n2"), 0.2)
    assert not await relays(place, "n1", "n2")
    await place.resume_node("n2")
    assert await place.state("n2") is ProcessState.RUNNING
    assert await until_answers(place, "n2") == before


async def test_a_paused_node_can_be_killed_and_stopped(place: LocalPlace) -> None:
    await place.pause_node("n1")
    await place.pause_node("n2")
    started = time.monotonic()
    await asyncio.gather(place.kill_node("n1"), place.stop_node("n2"))
    assert time.monotonic() - started < 2
    assert [await place.state(node) for node in ("n1", "n2")] == [ProcessState.DEAD] * 2


async def test_pausing_a_dead_node_is_refused(place: LocalPlace) -> None:
    await place.kill_node("n1")
    with pytest.raises(PlaceError, match="dead node"):
        await place.pause_node("n1")
    await place.resume_node("n1")
    assert await place.state("n1") is ProcessState.DEAD


async def test_a_node_that_dies_by_itself_is_noticed(place: LocalPlace) -> None:
    os.kill(pid(place, "n3"), signal.SIGSEGV)
    deadline = time.monotonic() + 2
    while await place.state("n3") is not ProcessState.DEAD:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    assert "was ended by SIGSEGV" in await place.account("n3")


async def test_cut_links_stop_real_traffic_in_one_direction(place: LocalPlace) -> None:
    assert await relays(place, "n1", "n2")
    await place.set_cuts([Link("n1", "n2")])
    assert not await place.probe_link(Link("n1", "n2"), 0.2)
    assert await place.probe_link(Link("n2", "n1"), 1.0)
    assert not await relays(place, "n1", "n2")
    assert not await relays(place, "n2", "n1"), "the answer would go through the cut link"
    assert await relays(place, "n1", "n3")
    await place.set_cuts([])
    assert await relays(place, "n1", "n2")
    assert await place.probe_link(Link("n1", "n2"), 1.0)


async def test_a_probe_of_a_link_to_a_paused_node_fails(place: LocalPlace) -> None:
    await place.pause_node("n2")
    assert not await place.probe_link(Link("n1", "n2"), 0.2)


async def test_names_that_there_are_not_are_refused(place: LocalPlace) -> None:
    with pytest.raises(PlaceError, match="no node n9"):
        await place.kill_node("n9")
    with pytest.raises(PlaceError, match="no link"):
        await place.set_cuts([Link("n1", "n9")])


async def test_a_node_that_exits_tells_its_code_and_log(tmp_path: Path) -> None:
    place = LocalPlace(Standin(exit_code=7), ("n1",), tmp_path)
    await place.start()
    try:
        deadline = time.monotonic() + 5
        while "exited with code 7" not in await place.account("n1"):
            assert time.monotonic() < deadline, await place.account("n1")
            await asyncio.sleep(0.01)
        assert "no licence found" in await place.account("n1")
    finally:
        await place.close()


class NoProgram(Standin):
    """Has a program for n1 alone."""

    def launch(self, node: NodeView) -> Launch:
        return super().launch(node) if node.id == "n1" else Launch([f"/nowhere/{node.id}"])


async def test_a_program_that_there_is_not_is_a_clear_error_and_leaves_nothing(tmp_path: Path) -> None:
    place = LocalPlace(NoProgram(), NODES, tmp_path)
    with pytest.raises(PlaceError, match=r"n[23] could not be started: /nowhere/n[23]: .*No such file"):
        await place.start()
    assert gone(pid(place, "n1"))


async def test_a_node_whose_end_was_interrupted_is_started_again(place: LocalPlace) -> None:
    before = await until_answers(place, "n1")
    killing = asyncio.create_task(place.kill_node("n1"))
    await asyncio.sleep(0)
    killing.cancel()
    await asyncio.wait({killing})
    await place.start_node("n1")
    assert await until_answers(place, "n1") != before


async def test_without_its_reaper_a_place_starts_no_node(place: LocalPlace) -> None:
    reaper = place._reaper._process
    assert reaper is not None
    await place.kill_node("n1")
    reaper.kill()
    reaper.wait()
    with pytest.raises(PlaceError, match="could outlive the harness"):
        await place.start_node("n1")


class Ending:
    """A process that ends when it is told to."""

    def __init__(self) -> None:
        self.end = asyncio.get_running_loop().create_future()

    async def wait(self) -> int:
        code: int = await self.end
        return code


@pytest.mark.parametrize("steps", range(6))
async def test_who_is_cancelled_while_a_process_ends_stays_cancelled(tmp_path: Path, steps: int) -> None:
    """A crash loop that is cancelled just when its node has died must not start it again."""
    node, process = NodeProcess("n1", NodeLog(tmp_path / "node.log")), Ending()
    node._process = cast(asyncio.subprocess.Process, process)
    ending = asyncio.create_task(node.ended(5))
    await asyncio.sleep(0.01)
    process.end.set_result(0)
    for _ in range(steps):
        await asyncio.sleep(0)
    asked = ending.cancel()
    await asyncio.wait({ending})
    assert ending.cancelled() is asked


async def test_a_cluster_beyond_the_limit_of_open_files_is_refused(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    too_many = node_names(999)
    with pytest.raises(PlaceError, match=r"need \d+ open files, and the limit \(ulimit -Hn\) is"):
        await LocalPlace(Standin(), too_many, tmp_path).start()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


async def test_closing_ends_everything_paused_nodes_too(tmp_path: Path) -> None:
    place = LocalPlace(Standin(), NODES, tmp_path)
    await place.start()
    await asyncio.gather(*(until_answers(place, node) for node in NODES))
    pids = [pid(place, node) for node in NODES]
    ports: list[Address] = [place.address("n1"), *place.links.peers("n1").values()]
    reaper = place._reaper._process
    assert reaper is not None
    await place.pause_node("n1")
    await place.kill_node("n2")
    await place.close()
    await place.close()
    assert all(gone(pid) for pid in pids)
    assert reaper.returncode == 0
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex((port.host, port.port)) != 0
