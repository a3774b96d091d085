"""The kinds of workload by name, and a workload as the runner uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from workloads.clients import Behaviour, client
from workloads.combinators import limit, stagger, time_limit
from workloads.generator import Generator
from workloads.ghosts import Ghost
from workloads.guarded_resource import GuardedResource
from workloads.hedged import Hedged
from workloads.interpreter import Call
from workloads.mixed_leases import LONG_LEASES, MixedLeases
from workloads.mutex import Mutex
from workloads.queries import HolderQueries
from workloads.recovery import recovery
from workloads.resource import Resource
from workloads.retries import Retries
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec
from workloads.steps import scripted
from workloads.threads import each_thread, groups
from workloads.waiters import WAITER_LEASES_MAX, Waiters


@dataclass(frozen=True, slots=True)
class Workload:
    """`main` is what the clients do while faults come and go, `final` what they do when all is healed. `calls` are
    the functions that are not the lock service's (see workloads.interpreter)."""

    main: Generator
    final: Generator
    calls: Mapping[str, Call] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Kind:
    """`leases`: how many times the spec's lease a client of this kind may hold a lock at the end, when all are done."""

    behaviour: Callable[[WorkloadSpec, int], Behaviour]
    uses_resource: bool = False
    abandons: bool = False
    hedges: bool = False
    leases: int = 1


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        "mutex": _Kind(lambda spec, _: Mutex(spec)),
        "guarded-resource": _Kind(GuardedResource, uses_resource=True),
        "ghost": _Kind(lambda spec, _: Ghost(spec, late=False), abandons=True, leases=0),
        "late-ghost": _Kind(lambda spec, _: Ghost(spec, late=True), abandons=True),
        "waiters": _Kind(lambda spec, _: Waiters(spec), abandons=True, leases=WAITER_LEASES_MAX),
        "retries": _Kind(lambda spec, _: Retries(spec), hedges=True),
        "holder-queries": _Kind(HolderQueries),
        "mixed-leases": _Kind(lambda spec, _: MixedLeases(spec), leases=LONG_LEASES),
    }
)


def names() -> tuple[str, ...]:
    """Every kind that a scenario may name."""
    return tuple(_KINDS)


def uses_resource(kind: str) -> bool:
    """Whether clients of this kind write to the guarded resource."""
    return _KINDS[kind].uses_resource


def abandons(kind: str) -> bool:
    """Whether clients of this kind close their connection in the middle of an acquire."""
    return _KINDS[kind].abandons


def longest_lease_ms(spec: WorkloadSpec) -> int:
    """The longest lease under which a lock may still be held when all clients are done."""
    return _KINDS[spec.kind].leases * spec.lease_ms


def build(spec: WorkloadSpec, seed: int, time_limit_ns: int) -> Workload:
    """The workload that `spec` describes; every random choice in it comes from `seed`. `spec.clients` threads."""
    kind = _KINDS[spec.kind]
    root = Seed(seed).split("workload")
    threads = range(spec.clients)

    def one(thread: int) -> Generator:
        own = root.split("client").split(thread)
        paced = client(kind.behaviour(spec, thread), own.split("turns"))
        if spec.operations is not None:
            paced = limit(spec.operations, paced)
        return stagger(own.split("pace"), spec.rate / spec.clients, paced)

    if spec.steps is not None:
        main = scripted(spec.steps)
    elif kind.hedges and spec.clients > 1:
        main = groups([_pair(threads[first : first + 2], one, root) for first in range(0, spec.clients, 2)])
    else:
        main = each_thread(threads, one)
    calls: dict[str, Call] = {}
    if kind.uses_resource:
        resource = Resource(root.split("resource"), spec.write_delay_ms)
        calls = {"write": resource.write, "read": resource.read}
    final = recovery(spec, threads, longest_lease_ms(spec))
    return Workload(time_limit(time_limit_ns, main), final, calls)


def _pair(threads: Sequence[int], one: Callable[[int], Generator], root: Seed) -> tuple[Sequence[int], Generator]:
    """Two threads of which the second repeats what the first one releases; a single one is left alone."""
    first = threads[0]
    if len(threads) == 1:
        return threads, one(first)
    return threads, Hedged(one(first), first, threads[1], root.split("hedge").split(first))
