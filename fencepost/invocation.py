"""How this program is started, for commands that are printed to be typed again."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

NAME = "fencepost"


def command(words: Sequence[str]) -> str:
    """A line for a shell. The program goes by its name where that leads to it, else by how it was started, such as
    .venv/bin/fencepost."""
    return shlex.join([_program(), *words])


def _program() -> str:
    started = Path(sys.argv[0])
    # As a library, or by `python -c`, there is no script that could be named.
    if started.name != NAME or not started.is_file():
        return NAME
    found = shutil.which(NAME)
    return NAME if found is not None and started.samefile(found) else sys.argv[0]
