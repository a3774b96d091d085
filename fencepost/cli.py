"""The console script `fencepost`, from its start to its exit code, which is always one of `fencepost.exits`.

Loading takes most of the time of a short command, so everything is loaded as late as it can be. Until the commands are
there is nothing to heal: Ctrl-C ends the process at once, and without a traceback from the middle of an import.
"""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from fencepost.exits import Exit


def main() -> NoReturn:
    """The console script."""
    # Not where whoever started this wants Ctrl-C to be ignored.
    quiet = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if quiet:
        signal.signal(signal.SIGINT, _leave)
    import logging

    from fencepost import explore_command

    logging.getLogger().addHandler(logging.NullHandler())
    if quiet:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(_exit_code(explore_command.app))


def _leave(number: int, frame: object) -> NoReturn:  # noqa: ARG001
    os.write(2, b"fencepost: interrupted\n")
    os._exit(255)  # Exit.HARNESS, which may not be loaded yet


def _exit_code(app: Callable[[], object]) -> int:
    from fencepost.exits import Exit, Finished

    try:
        app()
    except Finished as finished:
        return finished.code
    except SystemExit as left:
        # --help and --version leave with 0, wrong arguments with 2, a broken pipe with 1, Ctrl-C with 130.
        if left.code == 130:
            return _complain("interrupted", Exit.HARNESS)
        return {0: Exit.VALID, None: Exit.VALID, 2: Exit.BAD_INPUT}.get(left.code, Exit.HARNESS)  # type: ignore[arg-type]
    except KeyboardInterrupt:
        return _complain("interrupted", Exit.HARNESS)
    except Exception as problem:
        return _explain(problem)
    return Exit.VALID


def _explain(problem: Exception) -> Exit:
    """Whose fault it is, and what to say."""
    from checker import HistoryError, OptionsError
    from cluster.places.base import PlaceError
    from fencepost.exits import Exit, UserError
    from fencepost.yaml_file import ScenarioError

    match problem:
        case ScenarioError():
            # Each line begins with the file and the place in it, as those of a compiler do.
            from fencepost.terminal import harmless

            print(harmless(str(problem)), file=sys.stderr)
            return Exit.BAD_INPUT
        case UserError() | HistoryError() | OptionsError():
            return _complain(str(problem), Exit.BAD_INPUT)
        case PlaceError():
            return _complain(str(problem), Exit.HARNESS)
    return _complain(_unexpected(problem), Exit.HARNESS)


def _complain(message: str, code: Exit) -> Exit:
    from fencepost.terminal import harmless

    print(harmless(f"fencepost: {message}"), file=sys.stderr)
    return code


def _unexpected(problem: Exception) -> str:
    """One line for the user; the traceback goes to a file."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(problem))
    says = f"the harness failed: {type(problem).__name__}: {problem}"
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="fencepost-", suffix=".log", delete=False, errors="replace"
        ) as file:
            file.write(text)
    except OSError:
        return says
    return f"{says}; where: {file.name}"
