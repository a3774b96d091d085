"""Every kind of fault at every place with real nodes: it takes effect, it ends, and when the harness is killed in the
middle, `fencepost heal` leaves nothing of it. The nemesis' own probes are the evidence for effect and end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from checker.history import HistoryWriter
from cluster import places
from cluster.places import leftovers, vdso
from cluster.places.base import CutsClients, Place, usable
from cluster.readiness import await_ready
from cluster.systems.base import LockClient
from cluster.systems.lockd import Lockd
from fencepost.conduct import Conductor
from fencepost.interrupts import Interrupts
from fencepost.scenario import Scenario, load
from fencepost.store import RunFolder
from nemesis.clients import ClientPauses
from nemesis.kinds import KINDS, RANDOM, needs
from nemesis.ledger import unfinished
from nemesis.spec import FaultSpec
from tests.docker_engine import engine
from tests.fencepost.test_runs import finish, nodes_of, start, until
from tests.nemesis.arena import Arena
from tests.nemesis.each_kind import ALONE, TOGETHER, kind
from tests.ssh_hosts import lab
from workloads import kinds as workload_kinds
from workloads.interpreter import Interpreter


@contextlib.contextmanager
def nothing(folder: Path, nodes: int) -> Iterator[str]:  # noqa: ARG001
    yield ""


@contextlib.contextmanager
def docker(folder: Path, nodes: int) -> Iterator[str]:  # noqa: ARG001
    engine()
    yield ""


@contextlib.contextmanager
def ssh(folder: Path, nodes: int) -> Iterator[str]:
    with lab(folder / "lab", nodes) as hosts:
        hosts.hosts_file(folder / "hosts.yaml")
        yield "hosts: hosts.yaml\n"
        assert hosts.all_left() == []


#: For each place with real nodes: sees to it that there is what so many nodes need, or skips; gives what a scenario has
#: to say beside the place's name.
PLACES: Mapping[str, Callable[[Path, int], contextlib.AbstractContextManager[str]]] = {
    "local": nothing,
    "docker": docker,
    "ssh": ssh,
}

HEADER = """
name: every-fault
place: {place}
nodes: {nodes}
seed: 3
time_limit: {limit:.1f}s
workload: {{kind: mutex, clients: 6, keys: 3, rate: 150/s, lease: 1s, hold: 5ms..20ms, timeout: 500ms}}
checks: [linearizable, fencing]
nemesis:
"""

#: The shortest that there is.
MOMENT_S = 0.5
#: A loaded machine takes its time to start three containers.
READY_S = 60
#: Before it, clients write what old data are a copy of.
BEGIN_S = 1.5
#: Time enough to be killed in.
LONG_S = 250

#: Containers, and hosts in containers, take minutes for all kinds, and more on a busy machine; what `make test` tries
#: there is in `test_docker_runs` and `test_ssh_runs`.
SLOW = {"docker": [pytest.mark.slow], "ssh": [pytest.mark.slow]}
EVERYWHERE = pytest.mark.parametrize("place", [pytest.param(name, marks=SLOW.get(name, [])) for name in PLACES])


def scenario(place: str, nodes: int, faults: Sequence[str], lasts_s: float) -> str:
    """Faults that come close upon each other begin in their order, each when the one before has begun. The nemesis
    comes last in the file."""
    lines = [
        f"  - {{{line}, at: {BEGIN_S * 1000 + 10 * number:.0f}ms, for: {lasts_s}s}}\n"
        for number, line in enumerate(faults)
    ]
    return HEADER.format(place=place, nodes=nodes, limit=LONG_S + 10) + "".join(lines)


def possible(faults: Sequence[str], place: str) -> list[str]:
    """Those that the place can do on a machine of this kind."""
    able = usable(places.load(place).capabilities, Lockd())
    found = []
    for line in faults:
        options = yaml.safe_load("{" + line + "}")
        if (need := needs(options["fault"], options)) is None or need in able:
            found.append(line)
    return found


def told(folder: Path) -> list[dict[str, Any]]:
    """What the nemesis did, in order; of a run that goes on, up to the last whole line."""
    text = (folder / "history.jsonl").read_text() if (folder / "history.jsonl").exists() else ""
    events = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    return [event["value"] for event in events if event["process"] == "nemesis" and "action" in event["value"]]


def test_no_kind_and_no_place_is_left_out() -> None:
    kinds = set(KINDS) - {RANDOM}
    assert {kind(line) for line in ALONE} == kinds
    assert {kind(line) for group in TOGETHER.values() for line in group.faults} == kinds
    assert set(PLACES) == set(places.names()) - {"sim"}
    if vdso.supported():
        assert possible(ALONE, "docker") == possible(ALONE, "local") == list(ALONE)


@EVERYWHERE
@pytest.mark.timeout(600)
async def test_every_kind_takes_effect_and_ends(tmp_path: Path, place: str) -> None:
    with PLACES[place](tmp_path, 3) as more:
        (tmp_path / "s.yaml").write_text(more + scenario(place, 3, possible(ALONE, place), MOMENT_S))
        loaded, folder = load(tmp_path / "s.yaml"), tmp_path / "run"
        folder.mkdir()
        conductor = Conductor(loaded, RunFolder(folder), Interrupts(), lambda _: None, lambda _: None)
        await conductor.place.start()
        try:
            await ready(conductor.place)
            async with clients_of(loaded, conductor.place, folder) as clients:
                for number, spec in enumerate(loaded.nemesis):
                    await take_effect_and_end(conductor.place, folder, clients, spec, number)
        finally:
            await conductor.place.close()
    assert left(folder) == []


async def ready(place: Place) -> None:
    readiness = await await_ready(place, place.nodes, READY_S)
    assert readiness.complete, readiness.describe()


async def take_effect_and_end(place: Place, folder: Path, clients: Interpreter, spec: FaultSpec, number: int) -> None:
    arena = Arena(place, folder)
    at_once = spec if "age" in spec.given() else replace(spec, at_ns=0)
    await arena.nemesis([at_once], seed=number, families=[ClientPauses(clients)]).run()
    assert arena.actions("f1") == ["inject", "injected", "heal", "healed"], (spec, arena.events)
    assert not _doubtful(arena.event("f1", "healed")["evidence"]), (spec, arena.events)
    await ready(place)


@contextlib.asynccontextmanager
async def clients_of(loaded: Scenario, place: Place, folder: Path) -> AsyncIterator[Interpreter]:
    """The scenario's clients at work."""

    async def connect(node: str) -> LockClient:
        address = place.client_address(node) if isinstance(place, CutsClients) else place.address(node)
        return await place.system.connect(address, loaded.workload.timeout_ms / 1000)

    history = HistoryWriter(folder / "history.jsonl", time.monotonic_ns)
    workload = workload_kinds.build(loaded.workload, loaded.seed, loaded.time_limit_ns * 10)
    clients = Interpreter(
        connect=connect,
        nodes=place.nodes,
        threads=loaded.workload.clients,
        record=history.append,
        clock=time.monotonic_ns,
        calls=workload.calls,
        drain_s=1.0,
    )
    work = asyncio.create_task(clients.run(workload.main))
    try:
        yield clients
        assert not work.done()
    finally:
        clients.stop()
        await asyncio.wait({work})
        await clients.close()
        history.close()


def _doubtful(evidence: str) -> bool:
    return any(words in evidence for words in ("not shown", "no probe passed", "undone, but", "no client reached"))


def left(folder: Path) -> list[str]:
    """What there is outside of a run's folder that names it: processes, containers, networks, mounts, rules, groups."""
    found, without_docker = leftovers.find()
    assert without_docker is None or not os.environ.get("CI")
    things = [leftover.what for leftover in found if leftover.folder == folder]
    things += [f"process {process.pid}" for process in nodes_of(folder)]
    things += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]
    things += [str(path) for path in Path("/sys/fs/cgroup").glob("**/*fencepost*") if folder.name in path.name]
    for command in (["nft", "list", "ruleset"], ["iptables-save"], ["ip", "link"], ["ip", "netns"]):
        try:
            output = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        except FileNotFoundError:
            continue
        # Docker's own rules and bridges have numbers for names; rules of ours say so.
        things += [line for line in output.splitlines() if "fencepost" in line.lower()]
    return things


def killed_in_the_middle(tmp_path: Path, place: str, more: str, nodes: int, faults: Sequence[str]) -> None:
    """Have all the faults in effect, kill the harness, heal, and see that nothing is left."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (tmp_path / "s.yaml").write_text(more + scenario(place, nodes, faults, LONG_S))
    process = start("run", "s.yaml", "--json", cwd=tmp_path, env={"TMPDIR": str(scratch)})
    try:
        latest = tmp_path / "store" / "latest"

        def in_effect() -> bool:
            if process.poll() is not None:
                raise AssertionError(process.communicate())
            done = Counter(value["action"] for value in told(latest))
            assert not done["skipped"], [value for value in told(latest) if value["action"] == "skipped"]
            return done["injected"] == len(faults)

        until(in_effect, f"{len(faults)} faults in effect", 180)
    finally:
        process.kill()
        process.communicate()
        try:
            code, stdout, stderr = finish(start("heal", "--json", cwd=tmp_path))
        finally:
            folder = latest.resolve()
            remaining = left(folder)
    assert (code, remaining) == (0, []), stderr
    document = json.loads(stdout)
    assert document["healed"] == [f"f{number}" for number in range(1, len(faults) + 1)]
    assert document["failed"] == document["kept"] == []
    assert bool(document["removed"]) == (place != "local"), "the reaper has ended local nodes already"
    assert unfinished(folder / "ledger.jsonl") == []
    assert list(scratch.iterdir()) == []
    code, stdout, _ = finish(start("heal", cwd=tmp_path))
    assert (code, stdout) == (0, "nothing was left to heal\n")


@EVERYWHERE
@pytest.mark.parametrize("group", TOGETHER)
def test_heal_undoes_all_that_a_killed_harness_had_in_effect(tmp_path: Path, place: str, group: str) -> None:
    nodes, faults = TOGETHER[group].nodes, possible(TOGETHER[group].faults, place)
    with PLACES[place](tmp_path, nodes) as more:
        killed_in_the_middle(tmp_path, place, more, nodes, faults)


@pytest.mark.slow
@EVERYWHERE
@pytest.mark.parametrize("fault", ALONE)
def test_heal_undoes_each_kind_alone(tmp_path: Path, place: str, fault: str) -> None:
    if not possible([fault], place):
        pytest.skip("this machine can't")
    with PLACES[place](tmp_path, 3) as more:
        killed_in_the_middle(tmp_path, place, more, 3, [fault])
