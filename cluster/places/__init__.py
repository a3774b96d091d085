"""The places where a cluster can run, by name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, runtime_checkable

from cluster.places.base import Place, PlaceFactory
from cluster.places.ssh.hosts import Host
from cluster.registry import UnknownName, resolve
from cluster.systems.base import System

_BUILTIN = MappingProxyType(
    {
        "local": "cluster.places.local:LocalPlace",
        "docker": "cluster.places.docker:DockerPlace",
        "ssh": "cluster.places.ssh.place:SshPlace",
        "sim": "cluster.places.sim:SimPlace",
    }
)


@runtime_checkable
class Simulation(Protocol):
    """What makes a place that lives in virtual time: on an event loop of its own kind, and from a seed."""

    def new_loop(self) -> asyncio.AbstractEventLoop: ...
    def __call__(self, system: System, nodes: Sequence[str], folder: Path, *, seed: int) -> Place: ...


@runtime_checkable
class Preparable(Protocol):
    """What makes a place that needs something once, before any run: an image, say."""

    def prepare(self, say: Callable[[str], object]) -> None:
        """`say` gets a line for each step that takes long. Raises PlaceError."""


@runtime_checkable
class OnHosts(Protocol):
    """What makes a place on machines that a user names."""

    def prepare_hosts(self, hosts: Sequence[Host], say: Callable[[str], object], *, accept_new: bool) -> None:
        """See that there is what a run needs; `accept_new`: take the word of hosts that nobody knows. Raises
        PlaceError."""

    def __call__(self, system: System, nodes: Sequence[str], folder: Path, *, hosts: Sequence[Host]) -> Place: ...


@runtime_checkable
class Selective(Protocol):
    """What makes a place that can't run every system."""

    def unfit(self, system: System) -> str | None:
        """Why it can't run the system; None if it can."""


def names() -> tuple[str, ...]:
    return tuple(_BUILTIN)


def load(name: str) -> PlaceFactory:
    """What makes a place called `name`, or `package.module:Class` of the user's own. Raises UnknownName."""
    factory: PlaceFactory = resolve("place", _BUILTIN, name)
    if not callable(factory) or not hasattr(factory, "capabilities"):
        raise UnknownName(f"place {name!r} is no place: it can't be called, or states no capabilities")
    return factory


def unfit(name: str, system: System) -> str | None:
    """Why the place can't run the system; None if it can. Raises UnknownName."""
    factory = load(name)
    return factory.unfit(system) if isinstance(factory, Selective) else None


def needs_hosts(name: str) -> bool:
    """Whether the user has to name hosts for it. Raises UnknownName."""
    return isinstance(load(name), OnHosts)


def create(
    name: str, system: System, nodes: Sequence[str], folder: Path, seed: int, hosts: Sequence[Host] = ()
) -> Place:
    """A place for one run; `hosts` for one that needs them. Raises UnknownName, PlaceError."""
    factory = load(name)
    if isinstance(factory, OnHosts):
        return factory(system, nodes, folder, hosts=hosts)
    if isinstance(factory, Simulation):
        return factory(system, nodes, folder, seed=seed)
    return factory(system, nodes, folder)


def prepare(
    name: str, say: Callable[[str], object], hosts: Sequence[Host] = (), *, accept_new_host_keys: bool = False
) -> None:
    """See that there is what the place needs; may take minutes the first time. Raises UnknownName, PlaceError."""
    factory = load(name)
    if isinstance(factory, OnHosts):
        factory.prepare_hosts(hosts, say, accept_new=accept_new_host_keys)
    if isinstance(factory, Preparable):
        factory.prepare(say)


def loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop that runs at this place need; None: any. Raises UnknownName."""
    factory = load(name)
    return factory.new_loop if isinstance(factory, Simulation) else None


def node_names(count: int) -> tuple[str, ...]:
    """The names of a cluster's nodes: n1, n2, ..."""
    return tuple(f"n{number}" for number in range(1, count + 1))
