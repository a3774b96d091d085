"""A second Docker engine, in namespaces of its own, that tests may stop and start."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import docker
import psutil
from docker.errors import DockerException

from cluster.image import build
from tests.docker_engine import engine, until

#: A loaded machine needs seconds for what takes half of one.
START_BUDGET_S = 90.0
STOP_BUDGET_S = 60.0


class OwnEngine:
    """`holder` keeps the namespaces; whoever talks to containers has to be in them (see `inside`)."""

    def __init__(self, folder: Path, holder: subprocess.Popen[bytes]) -> None:
        self._folder = folder
        self._holder = holder
        self._space = os.readlink(f"/proc/{holder.pid}/ns/mnt")
        self._engine: subprocess.Popen[bytes] | None = None
        self.host = f"unix://{folder}/docker.sock"

    def inside(self, command: Sequence[str], *, mounts: bool = False) -> list[str]:
        """The command as it runs in the engine's network."""
        spaces = ["--net", *(["--mount"] if mounts else [])]
        return ["nsenter", "--target", str(self._holder.pid), *spaces, "--", *command]

    def start(self) -> None:
        folder = self._folder
        options = {"data-root": "data", "exec-root": "exec", "pidfile": "docker.pid"}
        # Not the machine's configuration, except for where layers are kept, which not every file system can do.
        (folder / "daemon.json").write_text(json.dumps({"storage-driver": engine().info()["Driver"]}))
        options |= {"config-file": "daemon.json"}
        command = ["dockerd", f"--host={self.host}", *(f"--{name}={folder}/{path}" for name, path in options.items())]
        with (folder / "engine.log").open("ab") as log:
            self._engine = subprocess.Popen(
                self.inside(command, mounts=True), stdout=log, stderr=log, start_new_session=True
            )
        until(self._answers, f"the engine is up: {self.log()}", START_BUDGET_S)

    def _answers(self) -> bool:
        assert self._engine is not None
        assert self._engine.poll() is None, self.log()
        try:
            return bool(self.client().ping())
        except DockerException:
            return False

    def client(self) -> docker.DockerClient:
        return docker.DockerClient(self.host)

    def log(self) -> str:
        return (self._folder / "engine.log").read_text(errors="replace")[-3000:]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        assert self._engine is not None
        self._engine.send_signal(number)
        self._engine.wait(STOP_BUDGET_S)
        self._engine = None

    def pause(self) -> None:
        """From now on it takes connections and answers nothing."""
        assert self._engine is not None
        self._engine.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._engine is not None
        self._engine.send_signal(signal.SIGCONT)

    def load(self, image: str) -> None:
        """Have the machine's engine's image."""
        saved = engine().images.get(image).save(named=image)
        self.client().images.load(b"".join(saved))

    def processes(self) -> list[psutil.Process]:
        """All in the namespaces, and those that belong to the engine by what they were started with."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                mine = os.readlink(f"/proc/{process.pid}/ns/mnt") == self._space or any(
                    str(self._folder) in word for word in process.cmdline()
                )
                if mine and process.pid != os.getpid():
                    found.append(process)
        return found


@contextlib.contextmanager
def own_engine() -> Iterator[OwnEngine]:
    """Started, with the image loaded; nothing of it is left afterwards. Needs root."""
    engine()
    folder = Path(tempfile.mkdtemp(prefix="engine-"))
    space = ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c"]
    holder = subprocess.Popen([*space, "ip link set lo up && echo && exec sleep infinity"], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"\n", "root is needed"
    own = OwnEngine(folder, holder)
    try:
        own.start()
        own.load(build.name())
        yield own
    finally:
        if own._engine is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                own.stop()
        deadline = time.monotonic() + STOP_BUDGET_S
        while (rest := own.processes()) and time.monotonic() < deadline:
            for process in rest:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(0.05)
            holder.poll()
        holder.wait(5)
        shutil.rmtree(folder)
