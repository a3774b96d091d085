"""The process that searches: a task on stdin, reports into a pipe. It limits its memory; its parent kills it."""

from __future__ import annotations

import pickle
import resource
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection

from checker.search.models import ModelError, create
from checker.search.wgl import Found, search

#: Seconds between reports of how far the search is.
REPORT_S = 0.2


def main() -> None:
    reports = Connection(int(sys.argv[1]), readable=False)
    calls, name, megabytes, path = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))

    reported = time.monotonic()

    def tell(configurations: int, longest: int) -> bool:
        nonlocal reported
        if time.monotonic() - reported > REPORT_S:
            reported = time.monotonic()
            reports.send(Found(None, tuple(range(longest)), None, None, configurations))
        return False

    try:
        found = search(calls, create(name), tell)
    except MemoryError:
        found = None
    except ModelError as problem:
        reports.send(problem)
        return
    if found is None:
        reports.send(f"the {megabytes} MB were used up")
    else:
        reports.send(replace(found, state=repr(found.state)))


if __name__ == "__main__":
    main()
