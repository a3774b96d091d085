"""What the clients do at the very end, when every fault is healed: every key must be there for the taking.

For each key one acquire, patient enough to outlast any lease, and its release; then one look, from another thread
and so, with more than one node, from another node. Dead leases and ghosts show as a lock that cannot be had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from checker.history import Event
from workloads.clients import NS_PER_MS, OBSERVATIONS, Agenda, Step, client, retried
from workloads.combinators import phases
from workloads.generator import Generator
from workloads.mutex import release_again
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec
from workloads.threads import per_key

#: How long past its lease a lock may live before its acquire gives up.
PATIENCE_MS = 5000
#: A call that certainly did not happen is sent again, this often at most, this long after.
ATTEMPTS_MAX = 10
PAUSE_NS = 200 * NS_PER_MS


def recovery(spec: WorkloadSpec, threads: Sequence[int], longest_ms: int | None = None) -> Generator:
    """The final operations on every key of `spec`. `longest_ms` is the longest lease that may be left: the spec's,
    unless told otherwise; 0 where every lock must have been given back."""
    longest_ms = spec.lease_ms if longest_ms is None else longest_ms
    keys = spec.key_names()
    neighbours = [*threads[1:], *threads[:1]]
    take = Step("acquire", "", {"lease_ms": spec.lease_ms, "wait_ms": longest_ms + PATIENCE_MS})
    look = Step("inspect", "")
    return phases(
        [
            per_key(threads, keys, lambda key: client(_Final(key, take), Seed(0))),
            per_key(neighbours, keys, lambda key: client(_Final(key, look), Seed(0))),
        ]
    )


@dataclass(frozen=True, slots=True)
class _Final:
    """One turn on one key; nothing in it is random."""

    key: str
    first: Step

    def begin(self, seed: Seed, turn: int) -> Agenda | None:
        return (Step(self.first.f, self.key, self.first.value),) if turn == 0 else None

    def react(self, seed: Seed, agenda: Agenda, event: Event) -> Agenda:
        done = agenda[0]
        if event.f == "release":
            return release_again(done, event)
        if event.f == "acquire" and event.type == "ok" and event.value is not None:
            return (Step("release", self.key, {"token": event.value["token"]}),)
        answered = event.type == "ok" or event.error in OBSERVATIONS or event.error == "timeout"
        return () if answered or done.attempt + 1 >= ATTEMPTS_MAX else (retried(done, PAUSE_NS),)
