"""The agent of a host: what `cluster.places.agent` is to a container, and it runs the node, as its child.

Run as `python -m cluster.places.ssh.agent`, by root where the run needs a packet filter or turns wall clocks. It reads
one line of JSON from stdin (see `order`), goes into the background, and says on stdout where it listens:
{"ok": port}, or {"error": ...}. It listens on loopback alone: who talks to it comes through SSH, and has the secret.

Beside the requests of `cluster.places.agent` it takes these, about the node; each is answered with {"ok": ...}.
    {"do": "hold"}, {"do": "release"}    listen where the node is going to, so that its way can be tried
    {"do": "start", "argv": [...], "env": {...}}
    {"do": "kill"}, "stop", "pause", "resume", "state", "account"
    {"do": "starve", "cpu": ... | null, "memory": ... | null}    {"do": "usage"}    {"ok": [cpu_ns, cpu, memory]}
    {"do": "turn", "clock": "lease" | "wall", "step_ns": ..., "rate": ...}    {"do": "right", "clock": ...}
    {"do": "disk", "mode": ... | null, "slow_ms": ...}    {"do": "disk-report"}
    {"do": "log", "offset": ...}    {"ok": [the bytes in base64, the offset behind them]}
    {"do": "data"}    {"do": "fill", "files": {path: bytes in base64}}

Told to end (SIGTERM), or not talked to for ORPHANED_AFTER_S, it ends the node and removes its rules.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import pwd
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from cluster.places import data_folder
from cluster.places.agent import Agent, AgentError, run_steps
from cluster.places.base import Clock, ClockSetting, DiskMode, Limits, PlaceError
from cluster.places.controls import CLOCK_NAME, DISK_NAME, Controls
from cluster.places.node_log import NodeLog
from cluster.places.node_process import NodeProcess
from cluster.places.packet_filter import filters
from cluster.places.ssh.order import Order
from cluster.places.ssh.script import RUN_VARIABLE
from cluster.systems.base import Launch

LOOPBACK = "127.0.0.1"

#: A harness asks several times a minute, also while its connection is being made again. One that is silent for so long
#: is gone, and nobody has healed what it left.
ORPHANED_AFTER_S = 900.0
ORPHAN_POLL_S = 15.0

#: Of a log, in one answer.
LOG_BYTES_MAX = 256 * 1024

LOG_NAME = "node.log"
AGENT_LOG_NAME = "agent.log"


class HostAgent(Agent):
    def __init__(self, order: Order) -> None:
        port = order.listen[1]
        super().__init__(order.secret, [one for one in filters(order.run, port) if one.name in order.filters])
        self._order = order
        self._home = Path(order.home)
        user = pwd.getpwuid(order.user)
        options: dict[str, Any] = {"cwd": order.home}
        if os.geteuid() == 0:
            groups = os.getgrouplist(user.pw_name, user.pw_gid)
            options |= {"user": order.user, "group": user.pw_gid, "extra_groups": groups}
        self._process = NodeProcess(order.node, NodeLog(self._home / LOG_NAME), **options)
        self._environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": user.pw_dir,
            "USER": user.pw_name,
            "LOGNAME": user.pw_name,
            RUN_VARIABLE: order.run,
        }
        self._controls = Controls()
        self._controls.lay_out_files(order.node, self._home, order.controls)
        if os.geteuid() == 0:
            for name in (CLOCK_NAME, DISK_NAME):
                with contextlib.suppress(FileNotFoundError):
                    os.chown(self._home / name, order.user, user.pw_gid)
        self._held: asyncio.Server | None = None
        self._heard_at = time.monotonic()

    async def run(self, ready: Any) -> None:
        """Until it is told to end, or forgotten. Raises AgentError when it can't begin."""
        watch = asyncio.create_task(self._watch())
        try:
            await self.serve(LOOPBACK, 0, ready, limit=data_folder.ENCODED_BYTES_MAX)
        finally:
            watch.cancel()
            with contextlib.suppress(PlaceError):
                await self._process.stop()
            if self._filter is not None:
                await run_steps(self._filter.remove())

    async def _choose_filter(self) -> None:
        if self._filters:
            await super()._choose_filter()

    async def _watch(self) -> None:
        while time.monotonic() - self._heard_at < ORPHANED_AFTER_S:
            await asyncio.sleep(ORPHAN_POLL_S)
        print(f"nobody has asked for {ORPHANED_AFTER_S:g} s: the node is ended", file=sys.stderr, flush=True)
        self._ended.set()

    async def _do(self, request: dict[str, Any]) -> Any:
        self._heard_at = time.monotonic()
        try:
            return await self._do_to_node(request)
        except PlaceError as problem:
            raise AgentError(str(problem)) from problem

    async def _do_to_node(self, request: dict[str, Any]) -> Any:
        node, process = self._order.node, self._process
        match request["do"]:
            case "hold":
                return await self._hold()
            case "release":
                return self._release()
            case "start":
                launch = Launch(request["argv"], request["env"])
                await process.start(lambda: launch, self._environment)
            case "kill":
                await process.kill()
            case "stop":
                await process.stop()
            case "pause":
                await process.pause()
            case "resume":
                await process.resume()
            case "state":
                return process.state()
            case "account":
                return await process.account()
            case "starve":
                await process.starve(Limits(request["cpu"], request["memory"]))
            case "usage":
                usage = process.usage()
                return [usage.cpu_ns, usage.limits.cpu, usage.limits.memory]
            case "turn":
                setting = ClockSetting(int(request["step_ns"]), float(request["rate"]))
                if request["clock"] == Clock.LEASE:
                    self._controls.turn_clock(node, setting)
                else:
                    await process.turn_wall_clock(setting)
            case "right":
                if request["clock"] == Clock.LEASE:
                    self._controls.true_clock(node)
                else:
                    await process.true_wall_clock()
            case "disk":
                mode = None if request["mode"] is None else DiskMode(request["mode"])
                self._controls.break_disk(node, mode, int(request["slow_ms"]))
            case "disk-report":
                return list(self._controls.disk_report(node))
            case "log":
                piece, end = process.log.read(int(request["offset"]), LOG_BYTES_MAX)
                return [base64.b64encode(piece).decode(), end]
            case "data":
                return data_folder.encode(await asyncio.to_thread(data_folder.read, self._home / "data"))
            case "fill":
                await self._fill(data_folder.decode(request["files"]))
            case _:
                return await super()._do(request)
        return True

    async def _hold(self) -> bool:
        if self._held is None:
            try:
                self._held = await asyncio.start_server(_hang_up, *self._order.listen)
            except OSError as problem:
                raise AgentError(f"port {self._order.listen[1]} can't be used: {problem.strerror}") from problem
        return True

    def _release(self) -> bool:
        if self._held is not None:
            self._held.close()
            self._held = None
        return True

    async def _fill(self, files: dict[str, bytes]) -> None:
        folder = self._home / "data"
        async with self._process.kept_down():
            await asyncio.to_thread(data_folder.replace, folder, files)
            if os.geteuid() == 0:
                group = pwd.getpwuid(self._order.user).pw_gid
                for path in (folder, *folder.rglob("*")):
                    os.chown(path, self._order.user, group)


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


def _in_background(order: Order, told: int) -> None:
    """Serve, away from whoever started it; `told` gets the line about how that began."""
    os.setsid()
    log = os.open(Path(order.home) / AGENT_LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), log, log)):
        os.dup2(file, number)

    def tell(answer: dict[str, Any]) -> None:
        nonlocal told
        if told >= 0:
            os.write(told, json.dumps(answer).encode() + b"\n")
            os.close(told)
            told = -1

    try:
        asyncio.run(HostAgent(order).run(lambda port: tell({"ok": port})))
    except (AgentError, PlaceError, OSError) as problem:
        tell({"error": str(problem)})
    except Exception as problem:
        tell({"error": f"{type(problem).__name__}: {problem}"})
        traceback.print_exc()


def main() -> None:
    given = json.loads(sys.stdin.readline())
    order = Order(**{**given, "listen": tuple(given["listen"])})
    # Where tools of the administrator are, which not every login has.
    os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
    answer, told = os.pipe()
    if os.fork() == 0:
        os.close(answer)
        _in_background(order, told)
        os._exit(0)
    os.close(told)
    with os.fdopen(answer) as lines:
        print(lines.readline().strip() or json.dumps({"error": "it ended at once"}))


if __name__ == "__main__":
    main()
