"""`python -m cluster.mounted CONTROL FOLDER MOUNTPOINT NAME`: mounts FOLDER at MOUNTPOINT, failing as CONTROL says.

NAME is what the mount is called in the list of mounts. Says "ready" on stdout; then reads lines from stdin: "lose"
undoes what was written and not synced, answered by "lost" and how many bytes that was. The end of stdin unmounts,
so that nothing stays mounted when whoever started this dies.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import threading
import time
from pathlib import Path

import mfusepy  # type: ignore[import-untyped, unused-ignore]

from cluster.faulty.control import ControlFile
from cluster.mounted.files import FaultyFolder
from cluster.mounted.mount import FUSE_TYPE, restore, unmount
from cluster.mounted.unsynced import Unsynced
from cluster.places.base import PlaceError

USAGE = "usage: python -m cluster.mounted CONTROL FOLDER MOUNTPOINT NAME"

#: Whoever still has files open keeps the file system alive after it is unmounted.
END_BUDGET_S = 3.0


class _Mounted(FaultyFolder):
    def init(self, path: str) -> None:
        print("ready", flush=True)


def main() -> None:
    if len(sys.argv) != 5:
        sys.exit(USAGE)
    control, folder, point, name = sys.argv[1:]
    files = _Mounted(
        Path(folder), ControlFile(Path(control)), Unsynced(random.Random()), lambda: mfusepy.fuse_get_context()[2]
    )

    def listen() -> None:
        for line in sys.stdin:
            if line.strip() == "lose":
                print(f"lost {files.lose()}", flush=True)
        unmount(Path(point))
        time.sleep(END_BUDGET_S)
        put_back()
        os._exit(0)

    def put_back() -> None:
        with contextlib.suppress(PlaceError):  # then whoever heals the run does it
            restore(Path(point))

    threading.Thread(target=listen, daemon=True).start()
    # What is remembered of names and sizes is wrong after bytes were lost.
    forget = {"attr_timeout": 0, "entry_timeout": 0, "negative_timeout": 0}
    mfusepy.FUSE(files, point, foreground=True, fsname=name, subtype=FUSE_TYPE.removeprefix("fuse."), **forget)
    put_back()


if __name__ == "__main__":
    main()
