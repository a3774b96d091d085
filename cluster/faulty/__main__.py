"""`python -m cluster.faulty CONTROL [MUTANT] serve ...`; see `cluster.faulty`."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import typer

from cluster.faulty.control import ControlFile
from cluster.faulty.files import FaultyFiles
from cluster.mutants import MUTANTS, names
from cluster.node.cli import EXIT_USAGE, add_serve, main
from cluster.node.core import Core
from cluster.node.files import Files
from cluster.node.storage import Storage

USAGE = f"usage: python -m cluster.faulty CONTROL [MUTANT] serve ...; MUTANT is one of: {', '.join(names())}"

if len(sys.argv) < 3:
    print(USAGE, file=sys.stderr)
    sys.exit(EXIT_USAGE)

path = sys.argv.pop(1)
core_type, storage_type = Core, Storage
if sys.argv[1] != "serve":
    if sys.argv[1] not in MUTANTS:
        print(USAGE, file=sys.stderr)
        sys.exit(EXIT_USAGE)
    mutant = MUTANTS[sys.argv.pop(1)]
    core_type, storage_type = mutant.core_type, mutant.storage_type
try:
    control = ControlFile(Path(path))
except OSError as problem:
    print(f"the control file {path} can't be used: {problem.strerror}; the testbed makes it", file=sys.stderr)
    sys.exit(EXIT_USAGE)


class OnFaultyDisk(storage_type):  # type: ignore[misc, valid-type]  # a variable base
    def __init__(self, folder: Path, node: str, files: Files | None = None) -> None:
        super().__init__(folder, node, files or FaultyFiles(control, random.Random()))


commands = typer.Typer(help="A lockd node on a disk that fails on demand.", add_completion=False)
commands.callback()(lambda: None)
add_serve(commands, core_type, OnFaultyDisk)
main(commands)
