"""The folder of runs: `store/<scenario>/<time>/`, and `store/latest`, which points to the run that began last."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cluster.places.ownership import Harness
from fencepost import version

LOG_FORMAT = "%(asctime)s.%(msecs)03d %(levelname)-7s %(name)s: %(message)s"

#: The libraries whose versions can change what a run does or finds.
_LIBRARIES = ("docker", "jinja2", "junitparser", "msgspec", "paramiko", "psutil", "pyyaml", "rich", "typer")

#: How a system says that a disk, or the user's share of it, is full.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

logger = logging.getLogger(__name__)


class StoreError(Exception):
    """The store cannot be written; the message says why."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run's folder and the names in it."""

    path: Path

    @property
    def history(self) -> Path:
        return self.path / "history.jsonl"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def repro(self) -> Path:
        return self.path / "repro.yaml"

    @property
    def scenario(self) -> Path:
        return self.path / "scenario.yaml"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def log(self) -> Path:
        return self.path / "harness.log"

    @property
    def versions(self) -> Path:
        return self.path / "versions.json"

    def is_run(self) -> bool:
        """Whether a run has left anything in it."""
        own = (self.log, self.scenario, self.versions, self.ledger, self.history)
        return any(file.exists() for file in own)

    def recorded(self) -> dict[str, Any]:
        """What `versions.json` says; nothing where there is none."""
        return document(self.versions)


def create(store: Path, scenario: str, now: datetime | None = None) -> RunFolder:
    """Make the folder of a new run and point `store/latest` to it.

    Two runs that begin in the same second get different folders. Raises StoreError.
    """
    stamp = (now or datetime.now(UTC)).strftime("%Y-%m-%dT%H-%M-%SZ")
    parent = store / folder_name(scenario)
    try:
        parent.mkdir(parents=True, exist_ok=True)
        path = _fresh(parent, stamp)
    except OSError as error:
        raise StoreError(f"cannot make a run's folder in {store}: {error.strerror or error}") from error
    _point(store / "latest", path)
    return RunFolder(path)


def folder_name(scenario: str) -> str:
    """A scenario's name as one component of a path: what is not portable in file names becomes a dash."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", scenario).strip("-.")[:100]
    # "latest" is the link's own name.
    return f"{name}-scenario" if name == "latest" else name or "scenario"


def _fresh(parent: Path, stamp: str) -> Path:
    attempt = 1
    while True:
        path = parent / (stamp if attempt == 1 else f"{stamp}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            attempt += 1
        else:
            return path


def _point(link: Path, target: Path) -> None:
    """Replace the link in one step, so that no reader finds it missing. Its loss costs no run."""
    relative = os.path.relpath(target, link.parent)
    temporary = link.with_name(f".latest-{os.getpid()}-{target.name}")
    try:
        temporary.symlink_to(relative, target_is_directory=True)
        temporary.replace(link)
    except OSError as error:
        logger.warning("%s was not moved to this run: %s", link, error)
        with contextlib.suppress(OSError):
            temporary.unlink()


def document(path: Path) -> dict[str, Any]:
    """A JSON file with an object in it; nothing where there is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, document: Any) -> None:
    write_text(path, json.dumps(document, indent=2, ensure_ascii=False, sort_keys=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a whole file or nothing of it."""
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        # A key can hold half of a surrogate pair, which has no UTF-8.
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def versions(system: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What took part in a run, for its versions.json; `harness` is this process, `system` says name and version, and
    what is worth knowing where the system isn't installed."""
    return {
        "fencepost": version.own(),
        "harness": str(Harness.this()),
        "place": place,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "system": dict(system),
        "libraries": {name: version.of(name) for name in _LIBRARIES},
        "argv": sys.argv,
    }


class _LogFile(logging.FileHandler):
    """One that says once, in a line, that it cannot be written: a full disk makes every line of a run fail."""

    _said = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        problem = sys.exception()
        if not isinstance(problem, OSError):
            super().handleError(record)
        elif not self._said:
            self._said = True
            print(f"fencepost: {unwritable(Path(self.baseFilename), problem)}; the log has gaps", file=sys.stderr)


def unwritable(path: Path, problem: OSError) -> str:
    """What to tell of a file or folder of the store, as the system's own words often name none."""
    return f"the store cannot be written: {path}: {problem.strerror or problem}"


@contextlib.contextmanager
def logging_to(path: Path, level: int = logging.DEBUG) -> Iterator[None]:
    """Send everything that is logged meanwhile to the run's harness.log."""
    handler = _LogFile(path, encoding="utf-8", errors="backslashreplace")
    handler.setFormatter(logging.Formatter(LOG_FORMAT, datefmt="%Y-%m-%dT%H:%M:%S"))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        with contextlib.suppress(OSError):  # what the disk had no room for
            handler.close()
