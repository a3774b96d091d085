"""`fencepost doctor`: what this machine can do, what would enable the rest, and which shipped scenarios it can't run.

Every check tries the thing itself where that leaves no trace: rules and queues in a network namespace that is gone
afterwards, memory of a child process. Nothing of the machine's own is touched.
"""

from __future__ import annotations

import ctypes.util
import os
import platform
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

import workloads
from cluster.image import build
from cluster.mounted import mount
from cluster.places import docker_engine, faketime
from cluster.places.base import PlaceError
from cluster.places.packet_filter import Blocked, Iptables, Nft, Step
from cluster.places.ssh import inspection
from cluster.places.ssh.hosts import Host
from fencepost import abilities
from fencepost import scenario as scenarios
from fencepost.scenario import ScenarioError

#: What is tried answers at once; an engine or a tool that hangs must not hang the doctor.
TRIAL_BUDGET_S = 10.0

#: A place of 5 nodes with all its links and clients stays well below.
FILES_WANTED = 4_096


@dataclass(frozen=True, slots=True)
class Check:
    """`says`: what was found. `remedy`: what would enable it, where it is missing. `use`: what it is good for."""

    name: str
    ok: bool
    says: str
    use: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    checks: Sequence[Check]
    #: Shipped scenarios that can't run here, and why.
    unable: dict[str, str]
    scenarios: int
    #: By place, faults that can't be had there, and why.
    impossible: dict[str, dict[str, str]]

    def to_dict(self) -> dict[str, Any]:
        checks = [
            {"name": check.name, "ok": check.ok, "says": check.says, "use": check.use}
            | ({} if check.ok else {"remedy": check.remedy})
            for check in self.checks
        ]
        scenarios = {"shipped": self.scenarios, "unable": self.unable}
        return {"checks": checks, "faults": {"impossible": self.impossible}, "scenarios": scenarios}

    def print_on(self, console: Console) -> None:
        for check in self.checks:
            sign, style = ("yes", "green") if check.ok else ("no", "yellow")
            line = Text.assemble((f"{check.name:<13}", "bold"), (f"{sign:<5}", style), check.says)
            if not check.ok:
                line.append(f" ({check.use}; {check.remedy})", "dim")
            console.print(line, soft_wrap=True)
        for place, faults in self.impossible.items():
            reasons: dict[str, list[str]] = {}
            for fault, why in faults.items():
                reasons.setdefault(why, []).append(fault)
            told = "; ".join(f"not {', '.join(names)} ({why})" for why, names in reasons.items()) or "all of them"
            console.print(Text.assemble((f"{'faults':<13}", "bold"), f"at {place}: {told}"), soft_wrap=True)
        if not self.unable:
            console.print(f"scenarios    all {self.scenarios} that are shipped can run here", highlight=False)
        for name, why in self.unable.items():
            console.print(
                Text.assemble((f"{'scenarios':<13}", "bold"), f"{name} can't run here: {why}"), soft_wrap=True
            )


def examine(hosts: Sequence[Host] = (), *, accept_new_host_keys: bool = False) -> Report:
    """Also of hosts for the place ssh, where some are given."""
    checks = [look() for look in CHECKS]
    if hosts:
        checks += _hosts(hosts, accept_new_host_keys)
    unable: dict[str, str] = {}
    files = sorted((Path(workloads.__file__).parent / "scenarios").glob("*.yaml"))
    for path in files:
        if (why := _unable(path, checks)) is not None:
            unable[path.stem] = why
    failed = [check.name for check in checks if not check.ok]
    return Report(checks, unable, len(files), abilities.impossible(failed))


def _unable(path: Path, checks: Sequence[Check]) -> str | None:
    try:
        lacking = abilities.lacks(scenarios.load(path), [check.name for check in checks if not check.ok])
    except ScenarioError as problem:
        return str(problem)
    missing = [check for check in checks if check.name in lacking]
    return "; ".join(f"{check.name}: {check.says}" for check in missing) or None


# ---- the checks


def _python() -> Check:
    return Check("python", True, f"{platform.python_version()} on {platform.machine()}, {platform.release()}", "")


def _files() -> Check:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    enough = hard == resource.RLIM_INFINITY or hard >= FILES_WANTED
    says = "no limit" if hard == resource.RLIM_INFINITY else f"up to {hard}"
    return Check("open files", enough, says, "local clusters of many nodes", f"ulimit -Hn {FILES_WANTED} or more")


def _docker() -> Check:
    use = "the place docker"
    try:
        client = docker_engine.connect()
        with docker_engine.explained("the engine did not say what it is"):
            says = client.info()
    except PlaceError as problem:
        return Check("docker", False, str(problem), use, "install and start Docker; see above")
    version, system = says.get("ServerVersion", "?"), says.get("OperatingSystem", "?")
    return Check("docker", True, f"engine {version} on {system}", use)


def _image() -> Check:
    use = "nodes in Docker"
    try:
        client = docker_engine.connect()
        name = build.name()
        if docker_engine.has_image(client, name):
            return Check("image", True, f"{name} is built", use)
        bases = build.bases(client)
    except PlaceError as problem:
        return Check("image", False, str(problem), use, "Docker")
    if bases:
        return Check("image", True, f"not built yet; can be, on {bases[0]}", use)
    if shutil.which("mmdebstrap"):
        return Check("image", True, "not built yet; can be, from a registry or from Debian packages", use)
    says = "not built yet; whether a registry can be reached shows when it is"
    return Check("image", True, says, use)


def _mmdebstrap() -> Check:
    found = shutil.which("mmdebstrap")
    use, remedy = "the image's base where no registry can be reached", "apt-get install mmdebstrap"
    return Check("mmdebstrap", found is not None, found or "not installed", use, remedy)


def _root() -> Check:
    root = os.geteuid() == 0
    says = "root" if root else f"user {os.geteuid()}"
    return Check("root", root, says, "vDSO clocks and disks of other people's processes", "sudo")


def _nft() -> Check:
    check = _in_namespace(
        [*Nft().install(), *Nft().replace(Blocked(frozenset({"192.0.2.1"}), frozenset({"2001:db8::1"})), 1.0)]
    )
    use, remedy = "cuts on hosts; containers bring their own tools", "apt-get install nftables; Linux 5.16 or newer"
    return Check("nft", check is None, check or "rules with time-outs and payload match", use, remedy)


def _iptables() -> Check:
    filter_ = Iptables()
    problem = _in_namespace([*filter_.install(), *filter_.replace(Blocked(mute=frozenset({"192.0.2.1"})), 1.0)])
    return Check("iptables", problem is None, problem or "with u32", "cuts where nft can't", "apt-get install iptables")


def _netem() -> Check:
    problem = _in_namespace([Step(("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"))])
    use = "delay, loss and corruption of packets in the kernel; links' proxies do it for bytes and frames"
    return Check(
        "netem", problem is None, problem or "loaded", use, "a kernel with sch_netem, and apt-get install iproute2"
    )


def _memory() -> Check:
    """Whether a process' memory can be written: in a child that waits."""
    use, remedy = "clocks of running processes, by their vDSO", "root, or sysctl kernel.yama.ptrace_scope=0"
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with open(f"/proc/{child.pid}/mem", "r+b", buffering=0):
            pass
    except OSError as problem:
        return Check("proc mem", False, f"/proc/PID/mem: {problem.strerror}", use, remedy)
    finally:
        child.kill()
        child.communicate()
    if platform.machine() not in ("x86_64", "AMD64"):
        return Check(
            "proc mem", False, f"writable, but the payload is for x86-64, not {platform.machine()}", use, "x86-64"
        )
    return Check("proc mem", True, "a child's memory can be written", use)


def _faketime() -> Check:
    use, remedy = "wall clocks of local nodes where memory can't be written", "pip install 'fencepost[faketime]'"
    if faketime.installed():
        version = metadata.version("libfaketime")
        if faketime.library() is None:
            return Check("libfaketime", False, f"{version} from PyPI fools no Python here", use, "x86-64 and glibc")
        return Check("libfaketime", True, f"{version} from PyPI: jumps, no rates", use)
    if any(Path("/usr/lib").glob("*/faketime/libfaketime.so.1")) or ctypes.util.find_library("faketime"):
        return Check("libfaketime", False, "the system's, which breaks CPython's waits", use, remedy)
    return Check("libfaketime", False, "not installed", use, remedy)


def _fuse() -> Check:
    use = "disks of other people's systems"
    if problem := mount.unsupported():
        says, _, remedy = problem.partition(": ")
        return Check("fuse", False, says, use, remedy)
    return Check("fuse", True, "data folders can be mounted", use)


def _paramiko() -> Check:
    use = "the place ssh"
    try:
        return Check("paramiko", True, metadata.version("paramiko"), use)
    except metadata.PackageNotFoundError:
        return Check("paramiko", False, "not installed", use, "pip install 'fencepost[ssh]'")


def _hosts(hosts: Sequence[Host], accept_new: bool) -> list[Check]:
    """A line for each host, or one for all when nothing can be said of any."""
    use = "a node of the place ssh"
    try:
        looks = inspection.look(hosts, accept_new=accept_new)
    except PlaceError as problem:
        return [Check("hosts", False, str(problem), use, "paramiko")]
    checks = []
    for host, found in zip(hosts, looks, strict=True):
        if isinstance(found, str):
            checks.append(Check("host", False, found, use, "docs/ssh.md says what a host needs"))
        elif problems := inspection.lacks(host, found, root=True):
            checks.append(Check("host", False, f"{host}: {inspection.describe(found)}", use, "; ".join(problems)))
        else:
            checks.append(Check("host", True, f"{host}: {inspection.describe(found)}", use))
    return checks


CHECKS: Sequence[Callable[[], Check]] = (
    _python, _files, _docker, _image, _mmdebstrap, _root, _nft, _iptables, _netem, _memory, _faketime, _fuse, _paramiko,
)  # fmt: skip


def _in_namespace(steps: Sequence[Step]) -> str | None:
    """Run the steps in a network namespace of their own; what went wrong, if so."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return "unshare is missing, so it can't be tried without touching the machine"
    enter = [unshare, "--net"] if os.geteuid() == 0 else [unshare, "--user", "--map-root-user", "--net"]
    lines = []
    for step in steps:
        lines.append(f"{shlex.join(step.argv)} <<'END' {'|| true' if step.optional else '|| exit 1'}\n{step.text}END")
    try:
        done = subprocess.run(
            [*enter, "sh", "-c", "\n".join(lines)],
            capture_output=True,
            text=True,
            timeout=TRIAL_BUDGET_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    if done.returncode == 0:
        return None
    complaint = done.stderr.strip().splitlines()
    return complaint[-1] if complaint else f"exit code {done.returncode}"
