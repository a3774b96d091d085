"""The agent of a host, on this machine and without the rights of root."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.places.base import ProcessState
from cluster.places.ssh import agent, script
from cluster.places.ssh.agent import HostAgent
from cluster.places.ssh.order import Order

NODE = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]


@pytest.fixture
def order(tmp_path: Path) -> Order:
    (tmp_path / "data").mkdir()
    return Order("secret", "f00d", "n1", str(tmp_path), os.getuid(), ("127.0.0.1", 17420), (), ("clock",))


async def ask(port: int, what: str, **about: Any) -> Any:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(json.dumps({"secret": "secret", "do": what, **about}).encode() + b"\n")
    answer = json.loads(await reader.readline())
    writer.close()
    return answer.get("ok", answer)


@pytest.fixture
async def port(order: Order) -> AsyncIterator[int]:
    listening = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(HostAgent(order).run(listening.set_result))
    try:
        yield await listening
    finally:
        running.cancel()
        await asyncio.wait({running})


def node(run: str) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in script.processes().get(run, [])]


async def test_a_node_is_its_child_and_bears_the_run(port: int, order: Order) -> None:
    assert await ask(port, "state") == ProcessState.DEAD
    await ask(port, "start", argv=NODE, env={"COLOUR": "red"})
    (process,) = node("f00d")
    assert process.environ()["COLOUR"] == "red"
    assert process.cwd() == order.home
    assert await ask(port, "state") == ProcessState.RUNNING
    await ask(port, "kill")
    assert "n1 was ended by SIGKILL" in await ask(port, "account")
    assert "error" in await ask(port, "block", seconds=1, lost=["192.0.2.1"])
    assert "error" in await ask(port, "sing")


async def test_a_port_is_held_until_it_is_let_go(port: int) -> None:
    assert await ask(port, "hold") is True
    reader, writer = await asyncio.open_connection("127.0.0.1", 17420)
    assert await reader.read() == b""
    writer.close()
    await ask(port, "release")
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", 17420)


async def test_who_is_forgotten_ends_its_node(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "ORPHANED_AFTER_S", 1.0)
    monkeypatch.setattr(agent, "ORPHAN_POLL_S", 0.1)
    listening = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(HostAgent(order).run(listening.set_result))
    await ask(await listening, "start", argv=NODE, env={})
    (process,) = node("f00d")
    await asyncio.wait_for(running, 20)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def started(order: Order) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """An agent as a connection starts it: who starts it ends, and it goes on."""
    command = [sys.executable, "-P", "-m", "cluster.places.ssh.agent"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), script.RUN_VARIABLE: "f00d"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    stdout, _ = process.communicate(json.dumps(asdict(order)) + "\n", timeout=60)
    try:
        yield process, int(json.loads(stdout)["ok"])
    finally:
        script.end("f00d")


async def test_it_goes_on_in_the_background_and_the_script_ends_it_with_its_node(
    started: tuple[subprocess.Popen[str], int], order: Order
) -> None:
    starter, port = started
    assert starter.returncode == 0
    await ask(port, "start", argv=NODE, env={})
    assert len(node("f00d")) == 2
    assert script.end("f00d") == []
    assert node("f00d") == []
    assert "not filtering" in (Path(order.home) / "agent.log").read_text()


async def test_told_to_end_it_ends_its_node_first(started: tuple[subprocess.Popen[str], int]) -> None:
    _, port = started
    await ask(port, "start", argv=NODE, env={})
    (own,) = [process for process in node("f00d") if "cluster.places.ssh.agent" in process.cmdline()]
    own.send_signal(signal.SIGTERM)
    deadline = asyncio.get_running_loop().time() + 20
    while node("f00d"):
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)
