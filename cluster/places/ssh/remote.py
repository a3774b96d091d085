"""What is done on one host by commands: it is looked at, laid out for a run, and cleared again. All of it blocks."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from cluster.places.base import PlaceError
from cluster.places.ssh import script
from cluster.places.ssh.connection import Connection
from cluster.places.ssh.hosts import PYTHON_MIN, Host
from cluster.places.ssh.look import Look
from cluster.places.ssh.order import Order

#: A command that looks at something; an interpreter that starts on a loaded host takes a second or two.
LOOK_BUDGET_S = 30.0
#: Five megabytes, also over a slow line.
UPLOAD_BUDGET_S = 60.0
AGENT_BUDGET_S = 30.0
END_BUDGET_S = 30.0
PACK_BUDGET_S = 60.0

_SCRIPT = Path(script.__file__)

#: What a shell says of a command that it can't find.
_NOT_FOUND = 127


class Remote:
    """Everything here raises PlaceError."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.host: Host = connection.host
        self._sudo: bool | None = None

    def look(self) -> Look:
        host = self.host
        done = self.connection.run(
            [host.python, "-", "look", str(host.node_port), "no" if host.sudo is False else "yes"],
            stdin=_SCRIPT.read_bytes(),
            budget_s=LOOK_BUDGET_S,
            again=True,
        )
        wanted = ".".join(map(str, PYTHON_MIN))
        remedy = (
            f"install Python {wanted} or newer there; `python` in the hosts file names a command other than python3"
        )
        if done.code == _NOT_FOUND:
            raise PlaceError(f"{host} has no {host.python}: {remedy}")
        if "SyntaxError" in done.complaint:
            raise PlaceError(f"{host} has too old a Python as {host.python}: {remedy}")
        try:
            says = json.loads(done.output)
        except ValueError:
            said = done.complaint.strip().splitlines() or [repr(done.output[:200])]
            raise PlaceError(f"{host}: {host.python} gave no answer that is one: {said[-1]}") from None
        if says.pop("platform") != "linux":
            raise PlaceError(f"{host} is no Linux; nodes on hosts need it")
        found = Look(**{**says, "python": tuple(says["python"]), "filters": tuple(says["filters"])})
        if found.python < PYTHON_MIN:
            raise PlaceError(f"{host} has Python {'.'.join(map(str, found.python))} as {host.python}: {remedy}")
        self._sudo = found.sudo
        return found

    @property
    def sudo(self) -> bool:
        """Whether commands for root go through sudo."""
        if self._sudo is None:
            self._sudo = self.look().sudo
        return self._sudo

    def folder(self, home: str) -> str:
        """Where runs keep what they need."""
        return str(PurePosixPath(home) / self.host.folder)

    def lay_out(self, run: str, folder: str, mark: Mapping[str, str], wheel: Path) -> str:
        """Make the run's folder, with the mark first; and bring the wheel there. Returns where Python finds modules."""
        own = f"{folder}/{run}"
        # The script can't come by stdin, which has the wheel.
        self.connection.output(
            [self.host.python, "-c", _SCRIPT.read_text(), "lay-out", folder, run, wheel.name],
            stdin=json.dumps({**mark, "run": run}).encode() + b"\n" + wheel.read_bytes(),
            budget_s=UPLOAD_BUDGET_S,
        )
        return f"{own}/compiled:{own}/{wheel.name}"

    def start_agent(self, order: Order, modules: str, *, root: bool) -> int:
        """`modules`: where Python finds them. Returns on which port of the host's loopback it listens."""
        variables = [f"PYTHONPATH={modules}", f"{script.RUN_VARIABLE}={order.run}"]
        command = ["env", *variables, self.host.python, "-P", "-m", "cluster.places.ssh.agent"]
        said = self.connection.output(
            command,
            stdin=json.dumps(asdict(order)).encode() + b"\n",
            budget_s=AGENT_BUDGET_S,
            sudo=root and self.sudo,
        )
        answer = json.loads(said)
        if "error" in answer:
            raise PlaceError(f"the agent could not start on {self.host}: {answer['error']}")
        return int(answer["ok"])

    # ---- what works whatever is left of a run, and whichever version it was of

    def runs(self, folder: str) -> list[dict[str, Any]]:
        """The runs that have left something on the host, as `script` lists them."""
        found: list[dict[str, Any]] = json.loads(self._script("list", folder))
        return found

    def end(self, run: str) -> list[str]:
        """End what belongs to the run, and remove its rules; what could not be."""
        return self._problems("end", run)

    def collect(self, folder: str, home: Path) -> None:
        """Copy what is in a folder there into one here."""
        done = self._script("pack", folder, budget_s=PACK_BUDGET_S)
        _unpack(done, home)

    def clear(self, run: str, folder: str) -> list[str]:
        """Remove the run's folder; what could not be."""
        return self._problems("clear", run, folder)

    def _problems(self, *arguments: str) -> list[str]:
        found: Collection[str] = json.loads(self._script(*arguments, budget_s=END_BUDGET_S))
        return [f"{self.host}: {problem}" for problem in found]

    def _script(self, *arguments: str, budget_s: float = LOOK_BUDGET_S) -> bytes:
        return self.connection.output(
            [self.host.python, "-", *arguments],
            stdin=_SCRIPT.read_bytes(),
            budget_s=budget_s,
            sudo=self.sudo,
            again=True,
        )


def _unpack(archive: bytes, folder: Path) -> None:
    """Files and folders alone, and none outside: what a host sends need not be well meant."""
    folder.mkdir(parents=True, exist_ok=True)
    root = folder.resolve()
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            path = (root / member.name).resolve()
            if not path.is_relative_to(root):
                raise PlaceError(f"a host sent a file for {member.name!r}, which is outside of its folder")
            if member.isdir():
                path.mkdir(parents=True, exist_ok=True)
            elif member.isfile() and (content := members.extractfile(member)) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content.read())
