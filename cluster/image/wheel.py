"""What runs from on a host without Docker: a wheel of this project's `cluster` package, with the libraries that nodes
and the agent import inside.

Python on the host imports from it as it is (save for packages with compiled parts, which have to be unpacked), so
nothing has to be downloaded there and no environment be made. It has bytecode where that can be made here. It is named
by its content and kept, so one that is there need not be made again.
"""

from __future__ import annotations

import base64
import compileall
import hashlib
import os
import py_compile
import tempfile
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from cluster.image import content
from cluster.image.content import Content, Target
from cluster.places.base import PlaceError

#: What the agent imports beside the libraries of nodes.
AGENT_LIBRARIES = ("psutil",)

#: What `typer` can do without, as it draws on terminals alone. It would be half of the wheel.
NOT_ON_HOSTS = ("rich",)

#: The earliest that an archive can say: the same content makes the same wheel.
_DATE = (1980, 1, 1, 0, 0, 0)

_METADATA = """\
Metadata-Version: 2.1
Name: fencepost-node
Version: {version}
Summary: What a host of Fencepost's runs: nodes and an agent
"""
_WHEEL = """\
Wheel-Version: 1.0
Generator: fencepost
Root-Is-Purelib: false
Tag: {tag}
"""


def cached(target: Target, say: Callable[[str], object] = lambda _: None) -> Path:
    """The wheel's file, which is made if it isn't there; `say` is told. Raises PlaceError when it can't be made."""
    parts = content.read(AGENT_LIBRARIES, NOT_ON_HOSTS)
    python = f"cp{target.python[0]}{target.python[1]}"
    tag = f"{python}-{python}-linux_{target.machine}"
    version = f"{metadata.version('fencepost')}+{parts.digest()}"
    path = cache_folder() / f"fencepost_node-{version}-{tag}.whl"
    if path.exists():
        return path
    say(f"{path.name} is made now, once")
    try:
        _make(path, parts, target, version, tag)
    except OSError as problem:
        raise PlaceError(f"{path} could not be made: {problem}") from problem
    return path


def _make(path: Path, parts: Content, target: Target, version: str, tag: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="wheel-", dir=path.parent) as made:
        laid_out, archive = Path(made) / "content", Path(made) / path.name
        laid_out.mkdir()
        parts.write(laid_out, target)
        if target.python == Target.here().python:
            # Beside its source, where it is looked for in an archive; and by hash, as files in there have no dates.
            how = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(
                laid_out, maxlevels=20, quiet=2, legacy=True, stripdir=str(laid_out), invalidation_mode=how
            )
        _write(archive, laid_out, version, tag)
        archive.replace(path)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "fencepost"


def _write(archive: Path, laid_out: Path, version: str, tag: str) -> None:
    files = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for root in (laid_out / "libraries", laid_out / "sources")
        for path in root.rglob("*")
        if path.is_file()
    }
    about = f"fencepost_node-{version}.dist-info"
    files[f"{about}/METADATA"] = _METADATA.format(version=version).encode()
    files[f"{about}/WHEEL"] = _WHEEL.format(tag=tag).encode()
    lines = []
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}\n")
    files[f"{about}/RECORD"] = "".join([*lines, f"{about}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data)
