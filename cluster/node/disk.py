"""The disk's thread: group commit.

Batches are handed over in order; while one fsync runs, the next ones gather, and go to disk together with a single
fsync. What depends on a batch goes out only afterwards, in the same order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from cluster.node.messages import Batch
from cluster.node.protocol import PeerMessage
from cluster.node.storage import Storage


class Written(NamedTuple):
    """A batch (or none, when only order matters) and the messages that had to wait for it."""

    batch: Batch | None
    sends: list[tuple[str, PeerMessage]]


class Disk:
    """`done` is called in the event loop with what is on disk; `failed` once, when the disk refuses: what it has then
    is unknown, so the node has to stop."""

    def __init__(
        self, storage: Storage, done: Callable[[list[Written]], None], failed: Callable[[OSError], None]
    ) -> None:
        self._storage, self._done, self._failed = storage, done, failed
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Written] = deque()
        self._wake = threading.Condition()
        self._closing = False
        self.fsyncs = 0
        self.fsync_seconds = 0.0
        self._thread = threading.Thread(target=self._run, name="disk", daemon=True)
        self._thread.start()

    def put(self, item: Written) -> None:
        with self._wake:
            self._waiting.append(item)
            self._wake.notify()

    def close(self) -> None:
        """Finish what was handed over, then end."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closing:
                    self._wake.wait()
                items = list(self._waiting)
                self._waiting.clear()
            if not items:
                return
            batches = [item.batch for item in items if item.batch is not None]
            try:
                if batches:
                    started = time.perf_counter()
                    self._storage.write(batches)
                    self.fsyncs += 1
                    self.fsync_seconds += time.perf_counter() - started
            except OSError as error:
                self._loop.call_soon_threadsafe(self._failed, error)
                return
            self._loop.call_soon_threadsafe(self._done, items)
