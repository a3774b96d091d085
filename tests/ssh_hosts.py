"""Hosts for tests: containers with sshd, on a network of their own."""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import docker
import paramiko
import pytest
from docker.models.containers import Container
from docker.models.networks import Network

from cluster.image import build
from cluster.places import docker_engine
from cluster.places.base import PlaceError
from cluster.places.ssh.hosts import Host

#: What nodes' images have, and what makes a host of it.
PACKAGES = (*build.PACKAGES, "openssh-server", "sudo")

#: A user who may do everything by sudo, without a password, and one who may not.
ADMIN, PLAIN = "admin", "plain"

#: Also when the host is started again: its keys stay.
_SSHD = """
set -e
mkdir -p /run/sshd
if [ ! -e /etc/ssh/ready ]; then
  rm -f /etc/ssh/ssh_host_*
  ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
  useradd -m -s /bin/bash admin
  useradd -m -s /bin/bash plain
  echo 'admin ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/admin
  for home in /root /home/admin /home/plain; do
    mkdir -p -m 700 $home/.ssh
    echo "$1" >$home/.ssh/authorized_keys
    chown -R $(stat -c %U:%G $home) $home/.ssh
  done
  touch /etc/ssh/ready
fi
exec /usr/sbin/sshd -D -e -o UseDNS=no -p ${2:-22}
"""

#: Until sshd answers; a loaded machine starts ten containers in as many seconds.
START_BUDGET_S = 60.0

LABEL = "fencepost.test-host"


@functools.cache
def engine() -> docker.DockerClient:
    """Fails in CI, and skips elsewhere, when there is none."""
    try:
        return docker_engine.connect()
    except PlaceError as problem:
        if os.environ.get("CI"):
            pytest.fail(f"CI must have Docker: {problem}", pytrace=False)
        pytest.skip(str(problem))


@functools.cache
def image() -> str:
    """Made once, and then found by its content."""
    return build.from_packages_only(engine(), print, PACKAGES)


@dataclass(frozen=True, slots=True)
class Lab:
    """`hosts` can be given to a place as they are: their keys are known."""

    folder: Path
    network: Network
    containers: tuple[Container, ...]
    hosts: tuple[Host, ...]

    def run(self, number: int, command: str) -> str:
        """What a command says that root runs on a host."""
        return str(self.containers[number].exec_run(["sh", "-c", command]).output.decode())

    def left(self, number: int) -> list[str]:
        """What is on a host that does not belong there: processes, rules, folders."""
        found = self.run(
            number,
            "nft list tables | grep -i fencepost; iptables-save 2>/dev/null | grep -i fencepost;"
            "ls -d /root/.fencepost/* /root/.fencepost /home/*/.fencepost/* /home/*/.fencepost 2>/dev/null;"
            "grep -lsa FENCEPOST_RUN= /proc/[0-9]*/environ | cut -d/ -f3 | xargs -r ps -o args= -ww -p",
        )
        return [line for line in found.splitlines() if line.strip()]

    def all_left(self) -> list[str]:
        return [line for number in range(len(self.containers)) for line in self.left(number)]

    def restart(self, number: int) -> None:
        """Stop a host and start it again."""
        container = self.containers[number]
        container.kill()
        container.start()
        self.await_sshd(number)

    def await_sshd(self, number: int) -> None:
        _await_sshd(self.hosts[number])

    def drop_connections(self, number: int) -> None:
        """End every SSH session of a host, as a firewall that forgets about them does; sshd goes on."""
        self.run(
            number,
            "for p in $(pgrep -x sshd 2>/dev/null || ls /proc | grep -E '^[0-9]+$');"
            " do grep -qs 'sshd: ' /proc/$p/cmdline && ! grep -qs 'listener' /proc/$p/cmdline && kill -9 $p; done",
        )

    def hosts_file(self, path: Path, **more: object) -> Path:
        """A hosts file as a user writes it."""
        first = self.hosts[0]
        fields = {"user": first.user, "key": first.key, "known_hosts": first.known_hosts, **more}
        lines = [f"{name}: {value}" for name, value in fields.items()]
        lines += ["hosts:", *(f"  - {{address: {host.address}, port: {host.port}}}" for host in self.hosts)]
        path.write_text("\n".join(lines) + "\n")
        return path


@contextlib.contextmanager
def _own_records(folder: Path) -> Iterator[None]:
    """What is recorded of runs on hosts, and removed again, must not mix with this user's."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(folder / "state")
    try:
        yield
    finally:
        if before is None:
            del os.environ["XDG_STATE_HOME"]
        else:
            os.environ["XDG_STATE_HOME"] = before


@contextlib.contextmanager
def lab(folder: Path, count: int, *, user: str = "root", port: int = 22) -> Iterator[Lab]:
    """So many hosts, which are gone afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    with _own_records(folder), _containers(folder, count, user, port) as made:
        yield made


@contextlib.contextmanager
def _containers(folder: Path, count: int, user: str, port: int) -> Iterator[Lab]:
    key = paramiko.ECDSAKey.generate()
    key.write_private_key_file(str(folder / "key"))
    client, name = engine(), f"fencepost-test-{secrets.token_hex(4)}"
    network = client.networks.create(name, driver="bridge", labels={LABEL: "yes"})
    containers: list[Container] = []
    try:
        for number in range(count):
            # What can't be started has to be removed as well.
            containers.append(
                client.containers.create(
                    image(),
                    ["sh", "-c", _SSHD, "sh", f"{key.get_name()} {key.get_base64()}", str(port)],
                    name=f"{name}-{number}",
                    hostname=f"host{number}",
                    labels={LABEL: "yes"},
                    network=name,
                    init=True,
                    # What root has on a host, as far as the testbed needs it.
                    cap_add=["NET_ADMIN", "SYS_PTRACE"],
                )
            )
            containers[-1].start()
        hosts = []
        for container in containers:
            container.reload()
            address = container.attrs["NetworkSettings"]["Networks"][name]["IPAddress"]
            host = Host(address, user, address, port, folder / "key", known_hosts=folder / "known_hosts")
            _await_sshd(host)
            hosts.append(host)
        made = Lab(folder, network, tuple(containers), tuple(hosts))
        know(made, folder / "known_hosts")
        yield made
    finally:
        for container in containers:
            container.remove(force=True, v=True)
        network.remove()


def know(made: Lab, path: Path) -> None:
    """Write down the hosts' keys, as they tell them inside."""
    lines = []
    for number, host in enumerate(made.hosts):
        kind, key = made.run(number, "cat /etc/ssh/ssh_host_ed25519_key.pub").split()[:2]
        name = host.address if host.port == 22 else f"[{host.address}]:{host.port}"
        lines.append(f"{name} {kind} {key}\n")
    path.write_text("".join(lines))


def _await_sshd(host: Host) -> None:
    deadline = time.monotonic() + START_BUDGET_S
    while True:
        try:
            with socket.create_connection((host.address, host.port), 1) as sock:
                sock.settimeout(2)
                if sock.recv(16).startswith(b"SSH"):
                    return
        except OSError:
            pass
        assert time.monotonic() < deadline, f"{host} did not answer within {START_BUDGET_S} s"
        time.sleep(0.05)


def as_user(made: Lab, user: str) -> tuple[Host, ...]:
    return tuple(replace(host, user=user) for host in made.hosts)
