"""What a command's exit code says."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum


class Exit(IntEnum):
    """The exit codes of every subcommand, and nothing but these."""

    VALID = 0
    VIOLATED = 1
    UNKNOWN = 2
    COVERAGE = 3
    BAD_INPUT = 254
    HARNESS = 255


#: Which of several runs' codes is the code of all: a violation is never hidden by anything, and a run that did not
#: happen (the harness failed, the file is bad) says less than one that ended without a verdict.
_DOMINANCE = (Exit.VALID, Exit.COVERAGE, Exit.UNKNOWN, Exit.BAD_INPUT, Exit.HARNESS, Exit.VIOLATED)


def worst(codes: Iterable[Exit]) -> Exit:
    """The code that dominates; VALID when there is none."""
    return max(codes, key=_DOMINANCE.index, default=Exit.VALID)


class UserError(Exception):
    """Something that the user can put right; the message says what is wrong, and where."""


class Finished(Exception):
    """A command is done; what it exits with."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
