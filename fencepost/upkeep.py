"""Cleaning up after runs whose harness is gone: `fencepost heal` for one run, `fencepost clean` for all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import msgspec

from cluster.image import build
from cluster.places import docker_engine, leftovers
from cluster.places.base import PlaceError
from cluster.places.leftovers import Leftover
from cluster.places.ownership import Harness
from cluster.places.ssh.hosts import Host
from fencepost.exits import Exit, UserError
from fencepost.store import RunFolder
from nemesis.ledger import Entry, Ledger, unfinished

Say = Callable[[str], object]


@dataclass(slots=True)
class Report:
    """What was removed, left alone and could not be removed, and which faults are healed by that."""

    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    healed: list[str] = field(default_factory=list)

    @property
    def exit(self) -> Exit:
        return Exit.HARNESS if self.failed else Exit.VALID

    def to_dict(self) -> dict[str, Any]:
        return {"removed": self.removed, "kept": self.kept, "failed": self.failed, "healed": self.healed}


def heal(path: Path, say: Say) -> Report:
    """Undo what the dead harness of one run left: its faults, and all that it had made. `path` is the run's folder.
    Raises UserError, also when the harness lives: it heals by itself."""
    folder = RunFolder(path.resolve())
    if not folder.path.is_dir():
        raise UserError(f"{path}: there is no such folder; give the folder of a run")
    found, without_docker = leftovers.find(folder.path)
    theirs = [leftover for leftover in found if leftover.folder == folder.path]
    if not theirs and not folder.is_run():
        raise UserError(
            f"{path}: not the folder of a run, as nothing in it is a run's; give such a one as store/<scenario>/<time>"
        )
    own = Harness.parse(str(folder.recorded().get("harness")))
    for harness in [own, *(leftover.harness for leftover in theirs)]:
        if harness is not None and harness.alive():
            raise UserError(
                f"{path}: its harness is alive (process {harness.pid}) and heals what it does by itself;"
                " end it with Ctrl-C or SIGTERM"
            )
    report = Report()
    faults = _unfinished(folder)
    for fault in faults:
        say(f"open        {_words(fault)}")
    for leftover in theirs:
        _remove(leftover, report, say)
    if without_docker is not None and folder.recorded().get("place") == "docker":
        _fail(report, say, without_docker)
    if not report.failed:
        _close(folder, faults, report, say)
    if not theirs and not faults and not report.failed:
        say("nothing was left to heal")
    return report


def clean(say: Say, *, everything: bool = False, images: bool = False, hosts: Sequence[Host] = ()) -> Report:
    """Remove what runs have left whose harness is dead; with `everything`, also what is in use or can't be judged.
    With `images`, also images that were built from other content than the present one. With `hosts`, also what is found
    on those, whoever's run has left it."""
    report = Report()
    found, without_docker = leftovers.find()
    _remove_dead(found, report, say, everything)
    if hosts:
        # Afterwards: what is recorded here as well is gone by then.
        there, problems = leftovers.find_on(hosts)
        for problem in problems:
            _fail(report, say, problem)
        _remove_dead(there, report, say, everything)
    if without_docker is not None:
        say(f"docker      {without_docker}")
    elif images:
        _remove_images(report, say)
    if not (report.removed or report.kept or report.failed):
        say("nothing was left to remove")
    return report


def _remove_dead(found: Iterable[Leftover], report: Report, say: Say, everything: bool) -> None:
    for leftover in found:
        alive = leftover.alive()
        if alive is False or everything:
            _remove(leftover, report, say)
        elif leftover.describe() not in report.kept:
            why = "its harness can't be judged from here" if alive is None else "its harness is alive"
            report.kept.append(leftover.describe())
            say(f"kept        {leftover.describe()}: {why} (--all removes it)")


def _remove(leftover: Leftover, report: Report, say: Say) -> None:
    try:
        unsaved = leftover.remove()
    except PlaceError as problem:
        _fail(report, say, f"{leftover.describe()}: {problem}")
        return
    report.removed.append(leftover.describe())
    say(f"removed     {leftover.describe()}")
    for lost in unsaved:
        say(f"lost        {lost}")


def _remove_images(report: Report, say: Say) -> None:
    try:
        client = docker_engine.connect()
        for image in build.outdated(client):
            _remove_image(client, image, report, say)
    except PlaceError as problem:
        _fail(report, say, str(problem))


def _remove_image(client: docker.DockerClient, image: str, report: Report, say: Say) -> None:
    try:
        with docker_engine.explained(f"the image {image}"):
            client.images.remove(image)
    except PlaceError as problem:
        report.kept.append(str(problem))
        say(f"kept        {problem}")
    else:
        report.removed.append(f"the image {image}")
        say(f"removed     the image {image}")


def _fail(report: Report, say: Say, problem: str) -> None:
    report.failed.append(problem)
    say(f"failed      {problem}")


def _unfinished(folder: RunFolder) -> Sequence[Entry]:
    try:
        return unfinished(folder.ledger)
    except FileNotFoundError:
        return ()
    except (OSError, ValueError) as problem:
        raise UserError(f"{folder.ledger}: can't be read as a ledger: {problem}") from problem


def _close(folder: RunFolder, faults: Sequence[Entry], report: Report, say: Say) -> None:
    """What a fault disturbed is gone; so it is healed, and the ledger says so."""
    if not faults:
        return
    ledger = Ledger(folder.ledger)
    try:
        for fault in faults:
            ledger.write(msgspec.structs.replace(fault, action="healed", targets=(), detail={}))
            report.healed.append(fault.fault)
            say(f"healed      {_words(fault)}")
    finally:
        ledger.close()


def _words(fault: Entry) -> str:
    targets = f" of {', '.join(fault.targets)}" if fault.targets else ""
    return f"{fault.fault} {fault.kind}{targets}"
