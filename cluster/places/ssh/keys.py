"""Whether a host is the one that it was: host keys, as OpenSSH's `known_hosts` files have them."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import paramiko
from paramiko.pkey import UnknownKeyType

from cluster.places.base import PlaceError
from cluster.places.ssh.hosts import Host

#: What the machine's administrator knows.
SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")


class KnownKeys(paramiko.MissingHostKeyPolicy):
    """Refuses a host whose key nobody has vouched for; or takes its word, once, and writes the key down."""

    def __init__(self, host: Host, *, accept_new: bool) -> None:
        self._host = host
        self._accept_new = accept_new

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey) -> None:
        line = f"{hostname} {key.get_name()} {key.get_base64()}"
        if not self._accept_new:
            raise PlaceError(
                f"the host key of {self._host} is unknown ({fingerprint(key)}). If it is the host's, add this line to"
                f" {self._host.known_hosts}, or accept keys of new hosts with --accept-new-host-keys:\n{line}"
            )
        add(self._host.known_hosts, line)


def load(client: paramiko.SSHClient, host: Host) -> None:
    """Let the client know what this user and the machine know of hosts. Raises PlaceError."""
    for path in (host.known_hosts, SYSTEM_KNOWN_HOSTS):
        if path.exists():
            try:
                client.load_system_host_keys(str(path))
            except (OSError, paramiko.SSHException) as problem:
                raise PlaceError(f"{path}: known host keys can't be read: {problem}") from problem


def private(path: Path) -> tuple[paramiko.PKey | None, bool]:
    """A user's private key; and whether it can't be used without a passphrase, which an SSH agent may know. Raises
    PlaceError."""
    try:
        return paramiko.PKey.from_path(path), False
    except TypeError:
        return None, True
    except (OSError, ValueError, paramiko.SSHException, UnknownKeyType) as problem:
        raise PlaceError(f"{path} can't be read as a private key: {problem}") from problem


def add(path: Path, line: str) -> None:
    """Raises PlaceError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else b""
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, (b"" if before.endswith(b"\n") or not before else b"\n") + line.encode() + b"\n")
        finally:
            os.close(file)
    except OSError as problem:
        raise PlaceError(f"{path}: the host key could not be added: {problem.strerror}") from problem


def changed(host: Host, problem: paramiko.BadHostKeyException) -> PlaceError:
    """What to tell of a host that shows another key than the one that is known."""
    name = host.address if host.port == 22 else f"[{host.address}]:{host.port}"
    return PlaceError(
        f"the host key of {host} has changed: known is {fingerprint(problem.expected_key)}, and it shows"
        f" {fingerprint(problem.key)}. Somebody may be in between. If the host was set up anew, forget the old key:"
        f" ssh-keygen -f {host.known_hosts} -R '{name}'"
    )


def fingerprint(key: paramiko.PKey) -> str:
    """As `ssh-keygen -l` has it."""
    digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
    return f"{key.get_name()} SHA256:{digest}"
