"""Docker for tests: an engine is needed in CI, and a test without one is skipped elsewhere."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable

import docker
import pytest
from docker.models.containers import Container

from cluster.image import build
from cluster.places import docker_engine
from cluster.places.base import PlaceError


@functools.cache
def engine() -> docker.DockerClient:
    """The engine, with the image built. Fails in CI, and skips elsewhere, when there is none."""
    try:
        client = docker_engine.connect()
    except PlaceError as problem:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have Docker: {problem}", pytrace=False)
        pytest.skip(str(problem))
    build.ensure(client, print)
    return client


def left(run: str) -> list[str]:
    """What the engine still has of a run."""
    return [estate.what for estate in docker_engine.estates(engine(), run)]


def containers(run: str, role: str) -> dict[str, Container]:
    """A run's containers of one role, by node, with all that the engine tells of them."""
    (estate,) = docker_engine.estates(engine(), run)
    found = {}
    for sparse in estate.containers:
        if sparse.attrs["Labels"][docker_engine.ROLE_LABEL] == role:
            found[sparse.attrs["Labels"][docker_engine.NODE_LABEL]] = engine().containers.get(sparse.id)
    return found


def until(condition: Callable[[], object], what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)
