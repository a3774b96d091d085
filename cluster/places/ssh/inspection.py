"""What hosts have and lack, before a run and for `fencepost doctor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from cluster.image import wheel
from cluster.places import vdso
from cluster.places.base import PlaceError
from cluster.places.ssh.hosts import Host
from cluster.places.ssh.look import Look

THREADS = 32

NO_PARAMIKO = "the library paramiko is missing: pip install 'fencepost[ssh]'"


def look(hosts: Sequence[Host], *, accept_new: bool = False) -> list[Look | str]:
    """At all hosts at once: what each has, or why that can't be told. Raises PlaceError without paramiko."""
    try:
        from cluster.places.ssh.connection import Connection
        from cluster.places.ssh.remote import Remote
    except ImportError as problem:
        raise PlaceError(f"{NO_PARAMIKO} ({problem})") from problem

    def look_at(host: Host) -> Look | str:
        connection = Connection(host, accept_new=accept_new)
        try:
            return Remote(connection).look()
        except PlaceError as problem:
            return str(problem)
        finally:
            connection.close()

    # One that accepts keys writes them down: one host after the other.
    with ThreadPoolExecutor(1 if accept_new else THREADS) as threads:
        return list(threads.map(look_at, hosts))


def lacks(host: Host, found: Look, *, root: bool = False) -> list[str]:
    """What a run can't do without, with what would help; `root`: it needs what only root may do."""
    problems = []
    if not found.free:
        problems.append(
            f"{host}: port {host.node_port} is in use, perhaps by what another run has left (`fencepost clean --hosts"
            " FILE` removes that); `node_port` in the hosts file names another one"
        )
    if root and found.rights:
        remedy = "log in as root, or let the user use sudo without a password (NOPASSWD in /etc/sudoers.d)"
        problems.append(f"{host}: cuts and wall clocks need root: {found.rights}; {remedy}")
    elif root and not found.filters:
        problems.append(f"{host}: no tool of a packet filter is there: apt-get install nftables (or iptables)")
    return problems


def describe(found: Look) -> str:
    """In one line."""
    rights = ("sudo" if found.sudo else "root") if not found.rights else f"no root ({found.rights})"
    parts = [
        f"Python {'.'.join(map(str, found.python))} on {found.machine}, Linux {found.release}",
        rights,
        f"packet filter: {', '.join(found.filters) or 'none'}",
        wall_clock(found) or "wall clocks can be turned",
    ]
    return "; ".join(parts)


def wall_clock(found: Look) -> str:
    """Why wall clocks can't be turned on the host; empty if they can."""
    if found.target.machine not in vdso.MACHINES:
        return f"wall clocks can't be turned on {found.machine}"
    return f"wall clocks can't be turned: /proc/PID/mem: {found.memory}" if found.memory else ""


def prepare(hosts: Sequence[Host], say: Callable[[str], object], *, accept_new: bool) -> None:
    """See that every host can be reached and has what any run needs, and that there is a wheel for each. Raises
    PlaceError, which tells of all."""
    problems: list[str] = []
    looks = look(hosts, accept_new=accept_new)
    for host, found in zip(hosts, looks, strict=True):
        if isinstance(found, str):
            problems.append(found)
        else:
            say(f"{host}: {describe(found)}")
            problems += lacks(host, found)
    if problems:
        raise PlaceError("\n".join(problems))
    for target in dict.fromkeys(found.target for found in looks if not isinstance(found, str)):
        wheel.cached(target, say)
