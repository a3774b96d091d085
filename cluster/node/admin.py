"""The admin port: /metrics for Prometheus, /health for load balancers, /status for people.

Served by a thread of its own, so that a slow scraper never holds up a lock; what it tells is read in the event loop.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

#: An event loop that doesn't answer for so long is not healthy, in seconds.
ANSWER_S_MAX = 2.0

GAUGES = {
    "term": "Raft term.",
    "commit": "Index up to which the log is committed, as this node knows.",
    "applied": "Index up to which the log is applied.",
    "last": "Index of the last log entry.",
    "snapshot": "Index of the newest snapshot.",
    "held": "Locks that are held.",
    "waiters": "Acquires that wait in this leader's queues.",
    "connections": "Open connections, of clients and of other nodes.",
    "log_bytes": "Size of the log on disk.",
}

COUNTERS = {
    "grants": "Locks granted, since the cluster began.",
    "releases": "Locks released, since the cluster began.",
    "expiries": "Locks ended by their lease, since the cluster began.",
    "ghosts": "Grants that this node took back because their client was gone.",
    "elections": "Terms that this node began as leader.",
    "fsyncs": "Writes to the log that were synced.",
    "fsync_seconds": "Seconds that these took together.",
}


class NodeCollector(Collector):
    """Reads the node at each scrape, so that nothing is counted twice."""

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        yield GaugeMetricFamily("lockd_leads", "1 while this node leads.", value=float(status["role"] == "leader"))
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(f"lockd_{name}", text, value=status[name])
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(f"lockd_{name}", text, value=status["counters"][name])


class AdminServer:
    """Listens from its making to `close`. `status` is called in the event loop. Raises OSError."""

    def __init__(self, host: str, port: int, status: Callable[[], Mapping[str, Any]]) -> None:
        loop = asyncio.get_running_loop()

        def ask() -> Mapping[str, Any]:
            async def read() -> Mapping[str, Any]:
                return status()

            return asyncio.run_coroutine_threadsafe(read(), loop).result(ANSWER_S_MAX)

        registry = CollectorRegistry()
        registry.register(NodeCollector(ask))
        self._server = ThreadingHTTPServer((host, port), _handler(ask, registry))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="admin", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(ask: Callable[[], Mapping[str, Any]], registry: CollectorRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                match self.path:
                    case "/metrics":
                        self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
                    case "/status":
                        self._answer(200, "application/json", json.dumps(ask()).encode())
                    case "/health":
                        leader = ask()["leader"]
                        health = {"healthy": leader is not None, "leader": leader}
                        self._answer(200 if leader else 503, "application/json", json.dumps(health).encode())
                    case _:
                        self._answer(404, "text/plain", b"try /metrics, /health or /status\n")
            except TimeoutError:
                self._answer(503, "text/plain", b"the node does not answer\n")

        def _answer(self, code: int, content_type: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
