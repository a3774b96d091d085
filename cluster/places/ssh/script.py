"""What is done on a host without anything of ours being there: its source is sent to `python3 -`.

look PORT SUDO          what the host has, JSON; SUDO "no": it is not to be used
lay-out FOLDER RUN WHEEL    make the run's folder: stdin has its mark in one line, and then the wheel
list FOLDER             the runs that have left something, by the folder of runs and by their processes: JSON
end RUN                 end the run's processes and remove its rules; JSON: what could not be done
pack FOLDER             the folder as a tar archive
clear RUN FOLDER        remove the run's folder, and the folder of runs if it is empty then; JSON as above

It may be older or newer than what a run uploaded, so it knows of that only names: processes bear RUN_VARIABLE in their
environment, rules are in a table or chains that are called after the run, and the folder has a file MARK. The standard
library alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile

RUN_VARIABLE = "FENCEPOST_RUN"
MARK = "mark.json"

KILL_BUDGET_S = 5.0
TOOL_BUDGET_S = 10.0


def look(port: int, may_sudo: bool) -> dict[str, object]:
    sudo, rights = root(may_sudo)
    return {
        "python": list(sys.version_info[:3]),
        "platform": sys.platform,
        "machine": platform.machine(),
        "release": platform.release(),
        "uid": os.getuid(),
        "home": os.path.expanduser("~"),
        "harness": os.environ.get("SSH_CONNECTION", "").split(" ")[0],
        "sudo": sudo,
        "rights": rights,
        "filters": [tool for tool in ("nft", "iptables", "iptables-legacy") if find(tool)],
        "memory": memory(sudo),
        "free": free(port),
    }


def root(may_sudo: bool) -> tuple[bool, str]:
    """Whether to become root by sudo; and why root's rights can't be had, if so."""
    if os.getuid() == 0:
        return False, ""
    if not may_sudo:
        return False, "the user is not root, and sudo is not to be used"
    try:
        done = subprocess.run(["sudo", "-n", "true"], capture_output=True, timeout=TOOL_BUDGET_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return False, "the user is not root, and sudo can't be used: %s" % problem  # noqa: UP031 (see `memory`)
    if done.returncode == 0:
        return True, ""
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return False, "the user is not root, and sudo asks for a password (" + (said[-1] if said else "?") + ")"


def find(tool: str) -> str | None:
    return shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/local/sbin")


def memory(sudo: bool) -> str:
    """Why root, or this user, can't write the memory of another process of the user's; empty if that is possible."""
    child = subprocess.Popen(["sleep", "60"])
    path = "/proc/%d/mem" % child.pid  # noqa: UP031 (as old a Python as there may be)
    try:
        if sudo:
            probe = ["sudo", "-n", sys.executable, "-c", "open(%r, 'r+b', 0)" % path]  # noqa: UP031
            done = subprocess.run(probe, capture_output=True, timeout=TOOL_BUDGET_S, check=False)
            said = done.stderr.decode(errors="replace").strip().splitlines()
            return "" if done.returncode == 0 else (said[-1] if said else "it can't be opened")
        with open(path, "r+b", buffering=0):
            return ""
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)
    finally:
        child.kill()
        child.wait()


def free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError:
            return False
    return True


def lay_out(folder: str, run: str, wheel: str) -> None:
    """Packages with compiled parts can't be imported from an archive; they are unpacked."""
    os.umask(0o077)
    own = os.path.join(folder, run)
    os.makedirs(folder, exist_ok=True)
    os.mkdir(own)
    with open(os.path.join(own, MARK), "wb") as file:
        file.write(sys.stdin.buffer.readline())
    os.makedirs(os.path.join(own, "node", "data"))
    archive = os.path.join(own, wheel)
    with open(archive, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with zipfile.ZipFile(archive) as members:
        names = members.namelist()
        compiled = {name.split("/")[0] for name in names if name.endswith(".so")}
        members.extractall(os.path.join(own, "compiled"), [one for one in names if one.split("/")[0] in compiled])


def processes() -> dict[str, list[int]]:
    """Those that bear a run's name, by that; this one and who started it excepted."""
    found: dict[str, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in (os.getpid(), os.getppid()):
            continue
        with contextlib.suppress(OSError):
            with open("/proc/" + name + "/environ", "rb") as file:
                variables = file.read().split(b"\0")
            with open("/proc/" + name + "/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
            for variable in variables:
                key, _, run = variable.decode(errors="replace").partition("=")
                if key == RUN_VARIABLE and state not in "ZX":
                    found.setdefault(run, []).append(int(name))
    return found


def list_runs(folder: str) -> list[dict[str, object]]:
    running = processes()
    runs: dict[str, dict[str, object]] = {run: {"processes": len(pids)} for run, pids in running.items()}
    with contextlib.suppress(OSError):
        for run in os.listdir(folder):
            with contextlib.suppress(OSError, ValueError), open(os.path.join(folder, run, MARK)) as file:
                runs.setdefault(run, {"processes": 0}).update(json.load(file))
    return [dict(about, run=run) for run, about in sorted(runs.items())]


def end(run: str) -> list[str]:
    deadline = time.monotonic() + KILL_BUDGET_S
    problems = []
    while alive := processes().get(run):
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            problems.append("did not end after SIGKILL: process " + ", ".join(map(str, alive)))
            break
        time.sleep(0.02)
    return problems + remove_rules(run)


def remove_rules(run: str) -> list[str]:
    if os.geteuid() != 0:
        return []
    table = "fencepost_" + run
    if find("nft") and call("nft", "list", "table", "inet", table):
        call("nft", "delete", "table", "inet", table)
        if call("nft", "list", "table", "inet", table):
            return ["the table " + table + " of nft could not be removed"]
    chain = ("fencepost-" + run).upper()
    problems = []
    for tool in ("iptables", "ip6tables", "iptables-legacy", "ip6tables-legacy"):
        if not find(tool) or not call(tool, "-w", "-n", "-L", chain):
            continue
        for hook, jump in (("INPUT", chain), ("OUTPUT", chain + "-AWAY")):
            while call(tool, "-w", "-D", hook, "-j", jump):
                pass
        for action in ("-F", "-X"):
            for name in (chain, chain + "-AWAY", chain + "-MUTE"):
                call(tool, "-w", action, name)
        if call(tool, "-w", "-n", "-L", chain):
            problems.append("the chain " + chain + " of " + tool + " could not be removed")
    return problems


def call(tool: str, *arguments: str) -> bool:
    path = find(tool)
    if path is None:
        return False
    try:
        done = subprocess.run([path, *arguments], capture_output=True, timeout=TOOL_BUDGET_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def pack(folder: str) -> None:
    """Whatever goes away meanwhile is left out."""
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for base, folders, files in os.walk(folder):
            for name in folders + files:
                path = os.path.join(base, name)
                if os.path.islink(path) or not (os.path.isfile(path) or os.path.isdir(path)):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    archive.add(path, os.path.relpath(path, folder), recursive=False)


def clear(run: str, folder: str) -> list[str]:
    own = os.path.join(folder, run)
    if os.path.isdir(own):
        shutil.rmtree(own, ignore_errors=True)
    with contextlib.suppress(OSError):
        os.rmdir(folder)
    return [own + " could not be removed"] if os.path.exists(own) else []


def main() -> None:
    command, *arguments = sys.argv[1:]
    if command == "look":
        print(json.dumps(look(int(arguments[0]), arguments[1] != "no")))
    elif command == "lay-out":
        lay_out(*arguments)
    elif command == "list":
        print(json.dumps(list_runs(*arguments)))
    elif command == "end":
        print(json.dumps(end(*arguments)))
    elif command == "pack":
        pack(*arguments)
    elif command == "clear":
        print(json.dumps(clear(*arguments)))
    else:
        sys.exit("no command " + command)


if __name__ == "__main__":
    main()
