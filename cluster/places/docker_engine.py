"""The Docker engine as the testbed uses it: from asyncio, with errors for users, and with everything labelled.

The SDK blocks, so calls run in threads. A thread can't be interrupted: a cancelled call goes on behind the back of
whoever made it, and `settle` waits for those.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.models.networks import Network

from cluster.places.base import PlaceError
from cluster.places.ownership import Harness

P = ParamSpec("P")
T = TypeVar("T")

#: On every container and network, and on images.
RUN_LABEL = "fencepost.run"
HARNESS_LABEL = "fencepost.harness"
FOLDER_LABEL = "fencepost.folder"
NODE_LABEL = "fencepost.node"
ROLE_LABEL = "fencepost.role"
NODE_ROLE, AGENT_ROLE = "node", "agent"

_LOG_NAMES = {NODE_ROLE: "console.log", AGENT_ROLE: "agent.log"}

#: An engine that is asked to do ten things at once answers the last after a few seconds; a stuck one never.
CALL_TIMEOUT_S = 60
THREADS = 32

#: A container that ended and was not removed, or a network that a container is just leaving.
REMOVE_ATTEMPTS = 3


def connect() -> docker.DockerClient:
    """Raises PlaceError when there is no engine, or this user may not use it."""
    # They log every request.
    for chatty in ("urllib3", "docker"):
        logging.getLogger(chatty).setLevel(logging.INFO)
    try:
        client = docker.from_env(timeout=CALL_TIMEOUT_S, max_pool_size=THREADS)
        client.ping()
    except (DockerException, requests.RequestException) as problem:
        raise PlaceError(
            f"Docker can't be reached: {words(problem)}. Start its engine (Docker Desktop, or dockerd); this user"
            " needs access to its socket; DOCKER_HOST says where it is, if not at the usual place"
        ) from problem
    return client


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Errors of the engine as PlaceError: `what` could not be done, and why."""
    try:
        yield
    except (DockerException, requests.RequestException) as problem:
        raise PlaceError(f"{what}: {words(problem)}") from problem


def words(problem: Exception) -> str:
    """What the engine says, without the request that it says it to."""
    if isinstance(problem, APIError) and problem.explanation:
        return str(problem.explanation).strip()
    return str(problem) or type(problem).__name__


class Engine:
    """One connection to the engine, for one run."""

    def __init__(self) -> None:
        self.client = connect()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")
        self._running: set[Future[Any]] = set()

    async def call(self, what: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do `work` in a thread. Raises PlaceError: `what` could not be done."""
        future = self._threads.submit(functools.partial(work, *args, **kwargs))
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        with explained(what):
            return await asyncio.wrap_future(future)

    async def settle(self, budget_s: float) -> None:
        """Wait for calls that go on although whoever made them was cancelled."""
        if running := tuple(self._running):
            await asyncio.to_thread(wait, running, budget_s)

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        self.client.close()


@dataclass(frozen=True, slots=True)
class Estate:
    """All that one run has in the engine."""

    run: str
    harness: Harness | None
    folder: Path | None
    containers: tuple[Container, ...] = field(compare=False, default=())
    networks: tuple[Network, ...] = field(compare=False, default=())

    @property
    def what(self) -> str:
        return f"{_count(self.containers, 'container')} and {_count(self.networks, 'network')}"


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def estates(client: docker.DockerClient, run: str | None = None) -> list[Estate]:
    """What runs have in the engine; only that of `run`, if it is given. Raises PlaceError."""
    wanted = RUN_LABEL if run is None else f"{RUN_LABEL}={run}"
    with explained("containers and networks could not be listed"):
        # Without sparse listing the SDK inspects each, and fails when one has gone meanwhile.
        containers = client.containers.list(all=True, filters={"label": wanted}, sparse=True)
        networks = client.networks.list(filters={"label": wanted})
    found: dict[str, tuple[list[Container], list[Network], Mapping[str, str]]] = {}
    for container in containers:
        labels = container.attrs.get("Labels") or {}
        found.setdefault(labels[RUN_LABEL], ([], [], labels))[0].append(container)
    for network in networks:
        labels = network.attrs.get("Labels") or {}
        found.setdefault(labels[RUN_LABEL], ([], [], labels))[1].append(network)
    return [
        Estate(
            name,
            Harness.parse(labels.get(HARNESS_LABEL, "")),
            Path(labels[FOLDER_LABEL]) if FOLDER_LABEL in labels else None,
            tuple(containers),
            tuple(networks),
        )
        for name, (containers, networks, labels) in sorted(found.items())
    ]


def alive(client: docker.DockerClient, run: str, role: str) -> set[str]:
    """The nodes of a run whose container of that role runs or is frozen. Raises PlaceError."""
    return {
        container.attrs["Labels"][NODE_LABEL]
        for estate in estates(client, run)
        for container in estate.containers
        if container.attrs["Labels"].get(ROLE_LABEL) == role and container.attrs["State"] in ("running", "paused")
    }


def collect_logs(estate: Estate, folder: Path) -> list[str]:
    """Write what the engine keeps of nodes' and agents' output to `folder/nodes/<node>/`, where there is any; returns
    what could not be collected. (Nodes' own logs are there already.)"""
    problems = []
    for container in estate.containers:
        labels = container.attrs.get("Labels") or {}
        node, role = labels.get(NODE_LABEL), labels.get(ROLE_LABEL)
        if node is not None and role is not None:
            try:
                with explained(f"the log of {node}'s {role}"):
                    collect_log(container, folder / "nodes" / node / _LOG_NAMES[role])
            except (PlaceError, OSError) as problem:
                problems.append(str(problem))
    return problems


def collect_log(container: Container, path: Path) -> None:
    pieces = iter(container.logs(stream=True, follow=False))
    first = next(pieces, b"")
    if first:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(first)
            file.writelines(pieces)


def remove(client: docker.DockerClient, run: str) -> None:
    """Remove all that a run has in the engine. Raises PlaceError when something stays."""
    problems: list[str] = []
    for _ in range(REMOVE_ATTEMPTS):
        left = estates(client, run)
        if not left:
            return
        problems = [*_remove_containers(left), *_remove_networks(left)]
    left = estates(client, run)
    if left:
        raise PlaceError(f"{left[0].what} could not be removed: {'; '.join(problems)}")


def _remove_containers(left: Iterable[Estate]) -> list[str]:
    """Nodes before agents, whose networks they use; all of a kind at once."""
    containers = [container for estate in left for container in estate.containers]
    agents = [one for one in containers if (one.attrs.get("Labels") or {}).get(ROLE_LABEL) == AGENT_ROLE]
    problems: list[str] = []
    with ThreadPoolExecutor(THREADS) as threads:
        for group in ([one for one in containers if one not in agents], agents):
            problems += filter(None, threads.map(_remove_container, group))
    return problems


def _remove_container(container: Container) -> str | None:
    return _problem(lambda: container.remove(force=True, v=True))


def _remove_networks(left: Iterable[Estate]) -> list[str]:
    return [
        problem for estate in left for network in estate.networks if (problem := _problem(network.remove)) is not None
    ]


def _problem(work: Callable[[], object]) -> str | None:
    try:
        work()
    except NotFound:
        return None
    except (DockerException, requests.RequestException) as problem:
        return words(problem)
    return None


def has_image(client: docker.DockerClient, name: str) -> bool:
    with explained(f"the image {name} could not be looked up"):
        try:
            client.images.get(name)
        except ImageNotFound:
            return False
    return True
