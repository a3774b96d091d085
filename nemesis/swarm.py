"""The fault `random`: other faults, drawn from the seed.

Swarm testing: a run that can do everything a little does nothing much, and what one fault sets up the next one takes
away again. So each `random` first draws which kinds are on in this run at all, about half of them, and how hard; then,
one after another, faults of those kinds, with targets, shapes and options of their own. What comes out are plain specs:
everything after this (the plan, the resolved schedule) knows no `random`.

Kinds that break what scenarios take for granted (clocks: they run true within a bound; disks: what was on them doesn't
come back) come in only where `kinds` names them: a run whose findings are excused proves little.

(Groce, Zhang, Eide, Chen, Regehr: Swarm Testing, ISSTA 2012.)
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from cluster.places.base import Capability
from nemesis import kinds
from nemesis.kinds import KINDS, RANDOM, Aim, Value
from nemesis.spec import CLIENT_TARGETS, FOR_NS_MIN, SHAPES, TARGETS, FaultSpec, first_start_ns, validate

MS = 1_000_000

#: What `nemesis: random` means: a fault about every five seconds, which lasts about three.
RANDOM_THROUGHOUT = FaultSpec(RANDOM, every_ns=5_000 * MS, for_ns=3_000 * MS)

#: Never drawn unless they are named.
ONLY_WHEN_NAMED = frozenset({kinds.CLOCK, kinds.DISK_RESTORE, RANDOM})

#: A shape or a target can be too much for a small cluster; so many draws find one that isn't.
ATTEMPTS_MAX = 50

Options = dict[str, Value]


def expand(
    specs: Iterable[FaultSpec],
    seed: int,
    nodes: Sequence[str],
    time_limit_ns: int,
    capabilities: Collection[Capability] = tuple(Capability),
    clients: int | None = None,
) -> tuple[FaultSpec, ...]:
    """The specs, with each `random` replaced by what it draws; the same for the same seed everywhere."""
    seen: Counter[FaultSpec] = Counter()
    expanded: list[FaultSpec] = []
    for spec in specs:
        if spec.fault != RANDOM:
            expanded.append(spec)
            continue
        draws = random.Random(f"{seed}/random/{spec}/{seen[spec]}")
        seen[spec] += 1
        on = _kinds_on(spec, draws, capabilities)
        if not on:  # nothing of it can be done here, which is refused elsewhere
            continue
        hardness = draws.uniform(0.5, 1.5)
        for start_ns in _starts(spec, time_limit_ns):
            drawn = _draw(on, spec, start_ns, hardness, draws)
            attempts = 0
            while validate(drawn, nodes, time_limit_ns, capabilities, clients) and attempts < ATTEMPTS_MAX:
                drawn = _draw(on, spec, start_ns, hardness, draws)
                attempts += 1
            if attempts < ATTEMPTS_MAX:
                expanded.append(drawn)
    return tuple(expanded)


def _kinds_on(spec: FaultSpec, draws: random.Random, capabilities: Collection[Capability]) -> list[str]:
    named = dict(spec.options).get("kinds")
    pool = [str(name) for name in named] if isinstance(named, tuple) else [k for k in KINDS if k not in ONLY_WHEN_NAMED]
    usable = [kind for kind in pool if KINDS[kind].needs is None or KINDS[kind].needs in capabilities]
    return [kind for kind in usable if draws.random() < 0.5] or draws.sample(usable, min(1, len(usable)))


def _starts(spec: FaultSpec, time_limit_ns: int) -> Iterator[int]:
    start_ns = first_start_ns(spec)
    while start_ns + FOR_NS_MIN <= time_limit_ns:
        yield start_ns
        if spec.every_ns is None:
            return
        start_ns += spec.every_ns


def _draw(on: Sequence[str], spec: FaultSpec, start_ns: int, hardness: float, draws: random.Random) -> FaultSpec:
    kind = draws.choice(on)
    late_ns = int(draws.random() * 0.3 * (spec.every_ns or 0))
    lasts_ns = max(FOR_NS_MIN, int(spec.for_ns * hardness * draws.uniform(0.5, 1.5)))
    shape, target = _where(kind, draws)
    return FaultSpec(
        kind,
        target,
        shape,
        at_ns=(start_ns + late_ns) // MS * MS,
        for_ns=lasts_ns // MS * MS,
        options=tuple(sorted(_OPTIONS.get(kind, _none)(draws, hardness).items())),
    )


def _where(kind: str, draws: random.Random) -> tuple[str | None, str | None]:
    match KINDS[kind].aims:
        case Aim.LINKS if kind == kinds.PARTITION or draws.random() < 0.5:
            return draws.choice(tuple(SHAPES)), None
        case Aim.CLIENTS:
            return None, draws.choice(CLIENT_TARGETS)
    return None, draws.choice(KINDS[kind].targets or tuple(TARGETS))


def _none(draws: random.Random, hardness: float) -> Options:  # noqa: ARG001
    return {}


def _delay(draws: random.Random, hardness: float) -> Options:
    low = max(1, int(draws.choice((2, 20, 80)) * hardness))
    return {"delay": (low, low * draws.choice((1, 3, 5)))}


def _throttle(draws: random.Random, hardness: float) -> Options:
    return {"rate": int(draws.choice((2_000, 20_000, 200_000)) / hardness)}


def _largest(draws: random.Random, hardness: float) -> Options:
    return {"largest": max(64, int(draws.choice((100, 200, 1_400)) / hardness))}


def _share(draws: random.Random, hardness: float) -> Options:
    return {"share": round(min(1.0, draws.choice((0.02, 0.2, 0.6)) * hardness), 3)}


def _stagger(draws: random.Random, hardness: float) -> Options:
    return {"stagger": (0, int(600 * hardness))} if draws.random() < 0.5 else {}


def _clock(draws: random.Random, hardness: float) -> Options:
    match draws.choice(("jump", "strobe", "rate")):
        case "jump":
            return {"jump": int(draws.choice((-2_000, 300, 3_000, 60_000)) * hardness) * MS}
        case "strobe":
            return {"strobe": int(draws.choice((100, 1_000)) * hardness) * MS}
    return {"rate": draws.choice((0.5, 0.9, 1.2, 3.0))}


def _interval(draws: random.Random, hardness: float) -> Options:
    return {"interval": (int(300 / hardness), int(1_500 / hardness))} if draws.random() < 0.5 else {}


def _change(draws: random.Random, hardness: float) -> Options:  # noqa: ARG001
    return {"change": draws.choice(("remove", "replace"))}


def _bits(draws: random.Random, hardness: float) -> Options:
    return {"bits": draws.choice((1, max(1, int(8 * hardness))))}


def _age(draws: random.Random, hardness: float) -> Options:
    low = int(draws.choice((300, 1_000, 3_000)) * hardness)
    return {"age": (low, 2 * low)}


def _starve(draws: random.Random, hardness: float) -> Options:
    return {"cpu": round(min(1.0, draws.choice((0.02, 0.05, 0.2)) / hardness), 3)}


_OPTIONS: Mapping[str, Callable[[random.Random, float], Options]] = MappingProxyType(
    {
        kinds.DELAY: _delay,
        kinds.THROTTLE: _throttle,
        kinds.LARGE_PACKETS: _largest,
        kinds.DUPLICATE: _share,
        kinds.REORDER: _share,
        kinds.CORRUPT: _share,
        kinds.KILL: _stagger,
        kinds.CLOCK: _clock,
        kinds.STARVE: _starve,
        kinds.DISK_FLIP: _bits,
        kinds.DISK_RESTORE: _age,
        kinds.TRANSFER: _interval,
        kinds.MEMBERSHIP: _change,
    }
)
