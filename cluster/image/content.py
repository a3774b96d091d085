"""What goes into the image: this project's `cluster` package and the libraries that a node imports.

The libraries are those of the environment that runs the testbed, so nothing has to be downloaded and a node in a
container is the node that runs here. Only where they can't run in the image (another Python, another system, another
processor) pip fetches the same versions for it.
"""

from __future__ import annotations

import ast
import hashlib
import platform
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from cluster.places.base import PlaceError

#: Parts of `cluster` that run where the testbed runs. What they import, nodes need not have; the agent, which is among
#: the places, uses the standard library alone.
NOT_FOR_NODES = frozenset({"image", "mounted", "places", "systems"})

#: How many digits of the digest name an image.
DIGEST_DIGITS = 12

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True, slots=True)
class Target:
    """What the image's programs run on: Python's version and the processor."""

    python: tuple[int, int]
    machine: str

    @staticmethod
    def here() -> Target:
        return Target(sys.version_info[:2], machine_name(platform.machine()))


@dataclass(frozen=True, slots=True)
class Content:
    """`sources`: our modules by their path in the image's folder. `libraries`: versions by name."""

    dockerfile: str
    sources: Mapping[str, bytes]
    libraries: Mapping[str, str]

    def digest(self) -> str:
        """The same for the same content on the same kind of machine."""
        hashed = hashlib.sha256()
        parts = [
            repr(Target.here()),
            self.dockerfile,
            *(f"{name}={version}" for name, version in self.libraries.items()),
        ]
        for part in parts:
            hashed.update(part.encode() + b"\0")
        for path, source in self.sources.items():
            hashed.update(path.encode() + b"\0" + hashlib.sha256(source).digest())
        return hashed.hexdigest()[:DIGEST_DIGITS]

    def write(self, folder: Path, target: Target) -> None:
        """Lay out what the engine builds from. Raises PlaceError when a library can't be had."""
        (folder / "Dockerfile").write_text(self.dockerfile)
        libraries, sources = folder / "libraries", folder / "sources"
        libraries.mkdir()
        if sys.platform == "linux" and target == Target.here():
            _copy(self.libraries, libraries)
        else:
            _fetch(self.libraries, libraries, target)
        for path, source in self.sources.items():
            (sources / path).parent.mkdir(parents=True, exist_ok=True)
            (sources / path).write_bytes(source)


def read(also: Iterable[str] = (), without: Collection[str] = ()) -> Content:
    """The content as it is now; `also` names libraries that are needed beside those that nodes import, `without` some
    that can be done without. Raises PlaceError."""
    package = Path(__file__).parents[1]
    sources = {
        f"{package.name}/{path.relative_to(package).as_posix()}": path.read_bytes()
        for path in sorted(package.rglob("*.py"))
    }
    libraries = _versions({*_imported(sources), *also}, without)
    return Content((Path(__file__).with_name("Dockerfile")).read_text(), sources, libraries)


def machine_name(name: str) -> str:
    """A processor under the name that wheels give it."""
    return _MACHINES.get(name.lower(), name.lower())


def _imported(sources: Mapping[str, bytes]) -> set[str]:
    """The names of the distributions that nodes import."""
    modules: set[str] = set()
    for path, source in sources.items():
        if path.split("/")[1] in NOT_FOR_NODES:
            continue
        for statement in ast.walk(ast.parse(source, path)):
            if isinstance(statement, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in statement.names}
            elif isinstance(statement, ast.ImportFrom) and statement.module is not None and statement.level == 0:
                modules.add(statement.module.partition(".")[0])
    providers = metadata.packages_distributions()
    ours = {path.split("/")[0] for path in sources}
    names: set[str] = set()
    for module in modules - sys.stdlib_module_names - ours:
        if module not in providers:
            raise PlaceError(f"nodes import {module}, and no installed distribution has it")
        names.update(providers[module])
    return names


def _versions(names: Iterable[str], without: Collection[str]) -> dict[str, str]:
    """These distributions and all that they need here, with their versions; save some, and what only those need."""
    found: dict[str, str] = {}
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found or name in without:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # needed on other systems only
        found[name] = distribution.version
        for requirement in distribution.requires or ():
            if "extra ==" not in requirement and (match := re.match(r"[A-Za-z0-9._-]+", requirement)):
                waiting.append(match[0])
    return dict(sorted(found.items()))


def _copy(libraries: Iterable[str], site: Path) -> None:
    for name in libraries:
        for file in metadata.distribution(name).files or ():
            # Scripts lie outside; what was compiled is compiled anew.
            if file.parts[0] == ".." or file.is_absolute() or "__pycache__" in file.parts:
                continue
            source = Path(str(file.locate()))
            if source.is_file():
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).write_bytes(source.read_bytes())


def _fetch(libraries: Mapping[str, str], site: Path, target: Target) -> None:
    tags = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"),
        *("--target", str(site), "--only-binary=:all:", "--implementation", "cp"),
        *("--python-version", ".".join(map(str, target.python))),
        *(part for tag in tags for part in ("--platform", f"{tag}_{target.machine}")),
        *(f"{name}=={version}" for name, version in libraries.items()),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PlaceError(
            f"the image runs Python {'.'.join(map(str, target.python))} for {target.machine}, this is another one, and"
            f" pip could not fetch the node's libraries for it: {done.stderr.strip()}"
        )
