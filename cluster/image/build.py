"""Making the image, and its base where no registry can be reached.

The base is, in this order: an official Python image or one from Debian packages that the engine has already; an
official one that can be pulled; one that is made from Debian packages by mmdebstrap and imported. What was chosen is
said. Images are named by a digest of their content, so one that is there need not be made again.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import docker
import requests
from docker.errors import BuildError, DockerException

from cluster.image import content
from cluster.image.content import Target
from cluster.places.base import PlaceError
from cluster.places.docker_engine import explained, has_image, words

REPOSITORY = "fencepost/lockd"
BASE_REPOSITORY = "fencepost/base"

DEBIAN = "bookworm"
#: What Debian's release has.
DEBIAN_PYTHON = (3, 11)
PACKAGES = ("python3", "iproute2", "iptables", "nftables")

#: Making a base from packages takes about a minute; a mirror that doesn't answer must not take forever.
MMDEBSTRAP_BUDGET_S = 900.0
LINES_OF_COMPLAINT_MAX = 15

Say = Callable[[str], object]


def name() -> str:
    """The name of the image of the present content, whether or not it was built."""
    return f"{REPOSITORY}:{content.read().digest()}"


def ensure(client: docker.DockerClient, say: Say) -> str:
    """The image's name; builds it when the engine doesn't have it. `say` gets a line for each step that takes long.
    Raises PlaceError."""
    image = name()
    if not has_image(client, image):
        say(f"the image {image} is missing: it is built now, once")
        return build(client, say)
    return image


def build(client: docker.DockerClient, say: Say, *, from_packages: bool = False) -> str:
    """Build the image, on a base from Debian packages if that is asked for or nothing else can be had.
    Returns its name. Raises PlaceError."""
    parts = content.read()
    image = f"{REPOSITORY}:{parts.digest()}"
    base, python = _base(client, say, from_packages)
    with explained("the engine did not say what it runs on"):
        machine = content.machine_name(str(client.info()["Architecture"]))
    say(f"building {image} on {base}")
    with tempfile.TemporaryDirectory(prefix="fencepost-image-") as folder:
        parts.write(Path(folder), Target(python, machine))
        try:
            client.images.build(
                path=folder,
                tag=image,
                buildargs={"BASE": base},
                labels={"fencepost.image": "lockd", "fencepost.base": base},
                rm=True,
                forcerm=True,
            )
        except BuildError as problem:
            log = [line for entry in problem.build_log for line in str(entry.get("stream", "")).splitlines() if line]
            tail = "\n".join(f"  {line}" for line in log[-LINES_OF_COMPLAINT_MAX:])
            raise PlaceError(f"the image could not be built: {problem.msg}\n{tail}") from problem
        except (DockerException, requests.RequestException) as problem:
            raise PlaceError(f"the image could not be built: {words(problem)}") from problem
    say(f"built {image}")
    return image


def outdated(client: docker.DockerClient) -> list[str]:
    """The names of images that were built from other content than the present one."""
    present = name()
    with explained("images could not be listed"):
        images = client.images.list(name=REPOSITORY)
    return sorted({tag for image in images for tag in image.tags if tag != present})


def bases(client: docker.DockerClient) -> list[str]:
    """The images that the engine has and that could be built on, best first. Raises PlaceError."""
    return [base for base in (_official(), _from_packages()) if has_image(client, base)]


def _base(client: docker.DockerClient, say: Say, from_packages: bool) -> tuple[str, tuple[int, int]]:
    """An image to build on, which the engine has then, and its Python's version."""
    official = _official()
    here = Target.here().python
    if not from_packages:
        if present := bases(client):
            return present[0], here if present[0] == official else DEBIAN_PYTHON
        say(f"pulling {official}")
        try:
            client.images.pull(official)
        except (DockerException, requests.RequestException) as problem:
            say(f"{official} can't be pulled ({words(problem)}): the base is made from Debian packages instead")
        else:
            return official, here
    return from_packages_only(client, say, PACKAGES), DEBIAN_PYTHON


def _official() -> str:
    here = Target.here().python
    return f"python:{here[0]}.{here[1]}-slim-{DEBIAN}"


def _from_packages(packages: Sequence[str] = PACKAGES) -> str:
    return f"{BASE_REPOSITORY}:{DEBIAN}-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:8]}"


def from_packages_only(client: docker.DockerClient, say: Say, packages: Sequence[str]) -> str:
    """The name of an image of these Debian packages and what they need, which is made if the engine doesn't have it.
    Raises PlaceError."""
    base = _from_packages(packages)
    if not has_image(client, base):
        _import_packages(client, say, base, packages)
    return base


def _import_packages(client: docker.DockerClient, say: Say, base: str, packages: Sequence[str]) -> None:
    if shutil.which("mmdebstrap") is None:
        raise PlaceError(
            "the image's base can be made from Debian packages only with mmdebstrap, which is not here:"
            " apt-get install mmdebstrap, or let the engine reach a registry (a proxy, a mirror)"
        )
    say(f"making {base} from the packages {', '.join(packages)} of Debian {DEBIAN}: about a minute")
    repository, _, tag = base.partition(":")
    with tempfile.TemporaryDirectory(prefix="fencepost-base-") as folder:
        archive = Path(folder) / "base.tar"
        command = ["mmdebstrap", "--variant=minbase", f"--include={','.join(packages)}", DEBIAN, str(archive)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=MMDEBSTRAP_BUDGET_S, cwd="/"
            )
        except subprocess.TimeoutExpired as problem:
            raise PlaceError(f"mmdebstrap was not done within {MMDEBSTRAP_BUDGET_S:.0f} s") from problem
        if done.returncode != 0:
            tail = "\n".join(f"  {line}" for line in done.stderr.splitlines()[-LINES_OF_COMPLAINT_MAX:])
            raise PlaceError(f"mmdebstrap failed:\n{tail}")
        with explained("the base could not be imported"):
            client.api.import_image_from_file(str(archive), repository=repository, tag=tag)
