"""Hosts as a user names them: how each is reached, and what it may be used for."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from cluster.places.packet_filter import NODE_PORT

SSH_PORT = 22

#: Below the home of the user, if it is no absolute path: what runs have on a host is there while they go on.
FOLDER = ".fencepost"

#: What an agent does not do without: its syntax, and `python -P`.
PYTHON_MIN = (3, 11)


def known_hosts() -> Path:
    """Where OpenSSH keeps a user's."""
    return Path(os.path.expanduser("~/.ssh/known_hosts"))


@dataclass(frozen=True, slots=True)
class Host:
    """`address` and `port` are where sshd listens, `node_address` and `node_port` where the other nodes find the node
    (an IP address). `key`: a private key's file; None: what an SSH agent and ~/.ssh have. `sudo` None: unless the user
    is root. `python`: the command. `folder`: where runs keep what they need."""

    address: str
    user: str
    node_address: str
    port: int = SSH_PORT
    key: Path | None = None
    sudo: bool | None = None
    node_port: int = NODE_PORT
    python: str = "python3"
    folder: str = FOLDER
    known_hosts: Path = field(default_factory=known_hosts)

    def __str__(self) -> str:
        return f"{self.user}@{self.address}" + ("" if self.port == SSH_PORT else f":{self.port}")
