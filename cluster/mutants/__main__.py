"""`python -m cluster.mutants NAME serve ...`: run a deliberately broken node."""

from __future__ import annotations

import sys

import typer

from cluster.mutants import MUTANTS, names
from cluster.node.cli import EXIT_USAGE, add_serve, main

if len(sys.argv) < 2 or sys.argv[1] not in MUTANTS:
    print(f"usage: python -m cluster.mutants NAME serve ...; NAME is one of: {', '.join(names())}", file=sys.stderr)
    sys.exit(EXIT_USAGE)

mutant = MUTANTS[sys.argv.pop(1)]
commands = typer.Typer(help=f"A mutant of lockd: {mutant.description}.", add_completion=False)
commands.callback()(lambda: None)
add_serve(commands, mutant.core_type, mutant.storage_type)
main(commands)
