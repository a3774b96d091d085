"""What runs have on hosts: a record of each, for whoever has to remove it when the harness is dead.

A record is written before anything is made on a host, and removed when everything is gone again. There are two copies:
in the run's folder, and in the user's folder for such state, where `fencepost clean` finds it whatever became of the
run's.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.places.base import PlaceError
from cluster.places.ownership import Harness
from cluster.places.ssh.hosts import Host

if TYPE_CHECKING:
    from cluster.places.ssh.remote import Remote

#: In the run's folder.
RECORD = "hosts.json"

THREADS = 32


@dataclass(frozen=True, slots=True)
class Estate:
    """All that one run has on hosts, by node."""

    run: str
    harness: Harness | None
    folder: Path | None
    hosts: dict[str, Host]

    @property
    def what(self) -> str:
        named = ", ".join(f"{node} on {host.address}" for node, host in self.hosts.items())
        return f"a cluster on {len(self.hosts)} {'host' if len(self.hosts) == 1 else 'hosts'} ({named})"

    def dump(self) -> str:
        hosts = {
            node: {name: str(value) if isinstance(value, Path) else value for name, value in asdict(host).items()}
            for node, host in self.hosts.items()
        }
        document = {"run": self.run, "harness": str(self.harness), "folder": str(self.folder), "hosts": hosts}
        return json.dumps(document, indent=2) + "\n"


def state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "fencepost" / "ssh"


def _files(estate: Estate) -> list[Path]:
    return [state_folder() / f"{estate.run}.json", *([] if estate.folder is None else [estate.folder / RECORD])]


def keep(estate: Estate) -> None:
    """Raises PlaceError."""
    for path in _files(estate):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_text(estate.dump())
            temporary.replace(path)
        except OSError as problem:
            raise PlaceError(f"{path}: what the run has on hosts can't be recorded: {problem.strerror}") from problem


def forget(estate: Estate) -> None:
    for path in _files(estate):
        with contextlib.suppress(OSError):
            path.unlink()


def find(folder: Path | None = None) -> list[Estate]:
    """Those that are recorded: of this user's runs, and of the run with this folder, if one is given."""
    paths = [*sorted(state_folder().glob("*.json")), *([] if folder is None else [folder / RECORD])]
    found: dict[str, Estate] = {}
    for path in paths:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            estate = _read(path)
            found.setdefault(estate.run, estate)
    return list(found.values())


def _read(path: Path) -> Estate:
    document = json.loads(path.read_text())
    hosts = {node: _host(about) for node, about in document["hosts"].items()}
    return Estate(document["run"], Harness.parse(document["harness"]), Path(document["folder"]), hosts)


def _host(about: dict[str, Any]) -> Host:
    known = {field.name: about[field.name] for field in fields(Host) if field.name in about}
    known["key"] = None if known["key"] is None else Path(known["key"])
    known["known_hosts"] = Path(known["known_hosts"])
    return Host(**known)


def remove(estate: Estate) -> list[str]:
    """Undo all that the run left: end its processes, remove its rules, collect logs and data into the run's folder,
    remove its folder on each host. Returns what could not be saved. Raises PlaceError, which says what could not be
    undone where, when something stays; the record stays as well then."""
    outcomes = _at_all(estate.hosts, lambda node, host: _remove(estate, node, host))
    stays = [problem for _, problems in outcomes for problem in problems]
    if stays:
        done = [node for node, (_, problems) in zip(estate.hosts, outcomes, strict=True) if not problems]
        undone = f"; nothing is left of {', '.join(done)}" if done else ""
        records = " and ".join(map(str, _files(estate)))
        raise PlaceError(
            f"{'; '.join(stays)}{undone}. Again when the host can be reached; if it is gone for good, remove {records}"
        )
    forget(estate)
    return [lost for unsaved, _ in outcomes for lost in unsaved]


def _remove(estate: Estate, node: str, host: Host) -> tuple[list[str], list[str]]:
    """What could not be saved of a host's, and what could not be undone."""
    from cluster.places.ssh.connection import Connection
    from cluster.places.ssh.remote import Remote

    connection = Connection(host)
    try:
        return clear(Remote(connection), estate, node)
    except PlaceError as problem:
        return [], [f"{node}: {problem}"]
    finally:
        connection.close()


def clear(remote: Remote, estate: Estate, node: str, folder: str | None = None) -> tuple[list[str], list[str]]:
    """As `_remove`, over a connection that there is; `folder`: where runs keep what they need there, if that is known.
    Raises PlaceError."""
    problems = remote.end(estate.run)
    unsaved = []
    folder = folder or remote_folder(remote)
    if estate.folder is not None and estate.folder.is_dir():
        try:
            remote.collect(f"{folder}/{estate.run}/node", estate.folder / "nodes" / node)
        except (PlaceError, OSError) as problem:
            unsaved.append(f"the data and logs of {node}: {problem}")
    return unsaved, [f"{node}: {problem}" for problem in [*problems, *remote.clear(estate.run, folder)]]


def remote_folder(remote: Remote) -> str:
    """Where runs keep what they need on that host. Raises PlaceError."""
    home = remote.connection.output(["sh", "-c", 'cd && pwd -P || echo "$HOME"'], budget_s=30.0, again=True)
    return remote.folder(home.decode().strip())


def left_on(hosts: Sequence[Host]) -> tuple[list[Estate], list[str]]:
    """What any runs have left on these hosts, whoever's they were; and which hosts could not be asked."""
    found: dict[str, Estate] = {}
    problems: list[str] = []
    for host, (runs, problem) in zip(hosts, _at_all({str(n): host for n, host in enumerate(hosts)}, _ask), strict=True):
        problems += problem
        for about in runs:
            run, folder = str(about["run"]), about.get("folder")
            estate = Estate(run, Harness.parse(str(about.get("harness"))), None if folder is None else Path(folder), {})
            found.setdefault(run, estate).hosts[str(about.get("node", host))] = host
    return list(found.values()), problems


def _ask(_: str, host: Host) -> tuple[list[dict[str, Any]], list[str]]:
    from cluster.places.ssh.connection import Connection
    from cluster.places.ssh.remote import Remote

    connection = Connection(host)
    try:
        remote = Remote(connection)
        return remote.runs(remote_folder(remote)), []
    except PlaceError as problem:
        return [], [str(problem)]
    finally:
        connection.close()


def _at_all(hosts: dict[str, Host], work: Callable[[str, Host], Any]) -> list[Any]:
    """At all hosts at once, in their order."""
    with ThreadPoolExecutor(THREADS) as threads:
        return list(threads.map(lambda one: work(*one), hosts.items()))
