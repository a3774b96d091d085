"""Hosts files: which hosts there are for the place `ssh`, and how each is reached. Nodes take them in their order."""

from __future__ import annotations

import getpass
import ipaddress
import os
import re
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cluster import places
from cluster.places.packet_filter import NODE_PORT
from cluster.places.ssh.hosts import FOLDER, SSH_PORT, Host, known_hosts
from fencepost.scenario.model import Scenario
from fencepost.yaml_file import Fields, Item, Problem, ScenarioError, Wrong, open_yaml

#: What may be said once for all hosts, and otherwise for one.
COMMON_FIELDS = ("port", "user", "key", "sudo", "node_port", "python", "folder", "known_hosts")
HOST_FIELDS = ("address", "node_address", *COMMON_FIELDS)
FIELDS = ("hosts", *COMMON_FIELDS)

NO_HOSTS: tuple[Host, ...] = ()

_PORTS = (1, 65_535)
#: Nothing that a shell or a path would take for something else.
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@$-]{0,63}")
_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:%_-]{0,252}")

_A_HOST = f"an address, or the fields {', '.join(HOST_FIELDS)}"
_AN_ADDRESS = "a name or an address, such as 10.0.0.1 or lab1.example.org"
_AN_IP = "an IP address, under which the other nodes find this one"


def of(scenario: Scenario) -> Sequence[Host]:
    """The hosts of a scenario; none where its place needs none. Raises ScenarioError."""
    if scenario.hosts is None or not places.needs_hosts(scenario.place):
        return ()
    return load(Path(scenario.hosts))


def load(path: Path) -> tuple[Host, ...]:
    """Read a hosts file. Raises ScenarioError with every problem that was found."""
    root = open_yaml(path, "a hosts file")
    try:
        fields = root.fields(FIELDS)
        common = _common(fields, path.parent, {})
        hosts = fields.need("hosts", lambda item: _hosts(item, path.parent, common), NO_HOSTS, "a list of hosts")
    except Wrong as wrong:
        raise ScenarioError([Problem(str(path), None, "", wrong.found, wrong.remedy)]) from None
    root.document.finish()
    return hosts


def _hosts(item: Item, folder: Path, common: dict[str, Any]) -> tuple[Host, ...]:
    if item.is_empty():
        raise Wrong(item.found(), "at least one host")
    places_taken: dict[tuple[str, int], str] = {}

    def host(one: Item) -> Host:
        found = _host(one, folder, common)
        for name in ((found.address, found.port), (found.node_address, -1)):
            taken = places_taken.setdefault(name, one.path)
            if taken != one.path:
                what = "node_address" if name[1] < 0 else "address"
                raise Wrong(f"the {what} {name[0]} of {taken} again", "a host for each node")
        return found

    return item.each("hosts", host)


def _host(item: Item, folder: Path, common: dict[str, Any]) -> Host:
    if not item.is_mapping():
        address, fields = _address(item), None
    else:
        fields = item.fields(HOST_FIELDS)
        address = fields.need("address", _address, "", _AN_ADDRESS)
    own = common if fields is None else _common(fields, folder, common)
    if fields is not None and "node_address" in fields:
        inner = fields.get("node_address", _ip, "")
    else:
        inner = _resolved(address) if address else ""
    return Host(address, node_address=inner, **own)


def _common(fields: Fields, folder: Path, before: dict[str, Any]) -> dict[str, Any]:
    """What these fields say, and `before` where they don't."""
    port = _integer(*_PORTS)

    def value(name: str, parse: Callable[[Item], Any], default: Any) -> Any:
        return fields.get(name, parse, before.get(name, default))

    return {
        "port": value("port", port, SSH_PORT),
        "user": value("user", _user, getpass.getuser()),
        "key": value("key", lambda item: _file(item, folder), None),
        "sudo": value("sudo", lambda item: item.boolean(), None),
        "node_port": value("node_port", port, NODE_PORT),
        "python": value("python", _text("a command, such as python3.11"), "python3"),
        "folder": value("folder", _text("a folder"), FOLDER),
        "known_hosts": value("known_hosts", lambda item: _path(item, folder), known_hosts()),
    }


def _integer(low: int, high: int) -> Callable[[Item], int]:
    return lambda item: item.integer(low, high)


def _text(remedy: str) -> Callable[[Item], str]:
    def parse(item: Item) -> str:
        text = item.text(remedy)
        if not text or text.startswith("-") or any(letter.isspace() for letter in text):
            raise Wrong(item.found(), remedy)
        return text

    return parse


def _user(item: Item) -> str:
    remedy = "the name of a user"
    if not _USER.fullmatch(item.text(remedy)):
        raise Wrong(item.found(), remedy)
    return item.text(remedy)


def _address(item: Item) -> str:
    address = item.text(_AN_ADDRESS)
    if not _ADDRESS.fullmatch(address):
        raise Wrong(item.found(), _AN_ADDRESS)
    return address


def _ip(item: Item) -> str:
    text = item.text(_AN_IP)
    try:
        return _usable(text)
    except ValueError:
        raise Wrong(item.found(), _AN_IP) from None


def _resolved(address: str) -> str:
    """What other hosts are taken to find this one under."""
    try:
        found = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)
    except OSError:
        remedy = f"a name that can be resolved; or node_address, {_AN_IP}"
        raise Wrong(f"{address!r}, which has no address", remedy) from None
    return _usable(str(found[0][4][0]))


def _usable(address: str) -> str:
    """Raises Wrong for one that means this or any machine, and ValueError for none."""
    parsed = ipaddress.ip_address(address)
    if parsed.is_loopback or parsed.is_unspecified:
        raise Wrong(f"{address}, which is no address of one host", f"node_address, {_AN_IP}")
    return str(parsed)


def _path(item: Item, folder: Path) -> Path:
    text = item.text("the path of a file")
    return Path(os.path.abspath(folder / os.path.expanduser(text)))


def _file(item: Item, folder: Path) -> Path:
    path = _path(item, folder)
    if not path.is_file():
        raise Wrong(f"{str(path)!r}, where there is no file", "the file of a private key")
    return path
