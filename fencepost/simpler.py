"""Simpler scenarios than a failing run's: the candidates of `fencepost.shrink`, the boldest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from checker.history import NEMESIS, Event
from checker.verdict import CitedOperation
from fencepost.scenario import Scenario
from fencepost.simulation import Simulated
from nemesis.spec import FOR_NS_MIN, FaultSpec
from workloads.spec import Step
from workloads.steps import ACTIONS

T = TypeVar("T")

MS = 1_000_000
SECOND = 1_000 * MS

#: What a scenario's end may keep behind the last event of the finding.
MARGIN_NS = 300 * MS

#: Lists of more steps than this are not searched one by one.
SINGLES_MAX = 60


# ---- time


def sooner_over(run: Simulated) -> Iterator[Scenario]:
    """End the run behind what the finding is about, if that comes before the end."""
    scenario = run.scenario
    ends = [one.invoked_s if one.completed_s is None else one.completed_s for one in cited(run)]
    limits = [scenario.time_limit_ns // 2, scenario.time_limit_ns * 3 // 4]
    if ends:
        limits.insert(0, int(max(ends) * SECOND) + MARGIN_NS)
    for limit_ns in limits:
        limit_ns = max(SECOND, limit_ns // (100 * MS) * 100 * MS)
        if limit_ns < scenario.time_limit_ns:
            yield _ending(scenario, limit_ns)


def _ending(scenario: Scenario, limit_ns: int) -> Scenario:
    faults = []
    for fault in scenario.nemesis:
        start_ns = fault.at_ns if fault.at_ns is not None else fault.every_ns or 0
        lasts_ns = min(fault.for_ns, limit_ns - start_ns)
        if lasts_ns >= FOR_NS_MIN:
            faults.append(replace(fault, for_ns=lasts_ns))
    steps = scenario.workload.steps
    if steps is not None:
        steps = tuple(step for step in steps if step.at_ns < limit_ns)
    longest_ms = max(1, limit_ns // MS - 1)
    workload = replace(
        scenario.workload,
        steps=steps,
        wait_ms=min(scenario.workload.wait_ms, longest_ms),
    )
    return replace(scenario, time_limit_ns=limit_ns, nemesis=tuple(faults), workload=workload)


def sooner_begun(run: Simulated) -> Iterator[Scenario]:
    """Everything happens earlier."""
    scenario = run.scenario
    steps = scenario.workload.steps
    starts = [fault.at_ns for fault in scenario.nemesis if fault.at_ns is not None]
    starts += [step.at_ns for step in steps or ()]
    if not starts:
        return
    for cut_ns in (min(starts), min(starts) // 2):
        cut_ns = cut_ns // (100 * MS) * 100 * MS
        limit_ns = scenario.time_limit_ns - cut_ns
        if cut_ns > 0 and limit_ns >= SECOND:
            faults = tuple(replace(f, at_ns=None if f.at_ns is None else f.at_ns - cut_ns) for f in scenario.nemesis)
            moved = None if steps is None else tuple(replace(step, at_ns=step.at_ns - cut_ns) for step in steps)
            workload = replace(scenario.workload, steps=moved)
            yield replace(scenario, nemesis=faults, time_limit_ns=limit_ns, workload=workload)


# ---- faults


def fewer_faults(run: Simulated) -> Iterator[Scenario]:
    for faults in _parts(run.scenario.nemesis):
        yield replace(run.scenario, nemesis=tuple(faults))


def shorter_faults(run: Simulated) -> Iterator[Scenario]:
    faults = run.scenario.nemesis
    for position, fault in enumerate(faults):
        lasts_ns = max(FOR_NS_MIN, fault.for_ns // 2 // (100 * MS) * 100 * MS)
        if lasts_ns < fault.for_ns:
            yield replace(run.scenario, nemesis=_replaced(faults, position, replace(fault, for_ns=lasts_ns)))


def named_faults(run: Simulated) -> Iterator[Scenario]:
    """Say "leader" where a fault hit whoever led: so it still does where somebody else leads."""
    faults = []
    for fault in run.scenario.nemesis:
        leader = _leader_at(run.events, fault.at_ns)
        links = {frozenset(link) for link in fault.cuts or ()}
        around = {frozenset((leader, node)) for node in run.scenario.node_names() if node != leader}
        if fault.at_ns is not None and fault.target == (leader,):
            fault = replace(fault, target="leader")
        elif (
            fault.at_ns is not None
            and leader is not None
            and links == around
            and len(fault.cuts or ()) == 2 * len(links)
        ):
            fault = replace(fault, cuts=None, shape="isolated-leader", target=None)
        faults.append(fault)
    if tuple(faults) != run.scenario.nemesis:
        yield replace(run.scenario, nemesis=tuple(faults))


def _leader_at(events: Sequence[Event], at_ns: int | None) -> str | None:
    leader = None
    for event in events:
        if at_ns is None or event.time > at_ns:
            break
        if event.process == NEMESIS and event.f == "leader" and event.value is not None:
            leader = event.value["node"]
    return leader


def _replaced(faults: Sequence[FaultSpec], position: int, fault: FaultSpec) -> tuple[FaultSpec, ...]:
    return (*faults[:position], fault, *faults[position + 1 :])


# ---- nodes


def fewer_nodes(run: Simulated) -> Iterator[Scenario]:
    """Faults keep the nodes that they name, under other names; one that needs more nodes is passed over as unsound."""
    scenario = run.scenario
    for nodes in (1, 2, 3, 4):
        if nodes >= scenario.nodes:
            return
        yield replace(scenario, nodes=nodes)
        yield _renamed(scenario, nodes)


def _renamed(scenario: Scenario, nodes: int) -> Scenario:
    names = scenario.node_names()
    mentioned: dict[str, None] = {}
    for fault in scenario.nemesis:
        if not isinstance(fault.target, str | None):
            mentioned |= dict.fromkeys(fault.target)
        for link in fault.cuts or ():
            mentioned |= dict.fromkeys(link)
    kept = [*(name for name in mentioned if name in names), *(name for name in names if name not in mentioned)]
    new = {name: names[number % nodes] for number, name in enumerate(kept)}
    faults = []
    for fault in scenario.nemesis:
        if not isinstance(fault.target, str | None):
            fault = replace(fault, target=tuple(dict.fromkeys(new.get(name, name) for name in fault.target)))
        if fault.cuts is not None:
            cuts = dict.fromkeys((new.get(source, source), new.get(sink, sink)) for source, sink in fault.cuts)
            fault = replace(fault, cuts=tuple(link for link in cuts if link[0] != link[1]))
        faults.append(fault)
    steps = scenario.workload.steps
    if steps is None:
        return replace(scenario, nodes=nodes, nemesis=tuple(faults))
    where = {client: names.index(new[names[client % len(names)]]) for client in {step.client for step in steps}}
    return _with_clients(replace(scenario, nodes=nodes, nemesis=tuple(faults)), where)


# ---- clients and their operations


def made_explicit(run: Simulated) -> Iterator[Scenario]:
    """The operations of the run as steps."""
    scenario = run.scenario
    if scenario.workload.steps is None:
        for grain_ns in (MS, 1_000):
            steps = steps_of(run.events, scenario.workload.clients, grain_ns)
            workload = replace(scenario.workload, steps=steps, operations=None, overrun=0.0, reads=0.0)
            yield replace(scenario, workload=workload)


def steps_of(events: Sequence[Event], clients: int, grain_ns: int) -> tuple[Step, ...]:
    """What clients did until the end of the main phase, at moments rounded down to `grain_ns`."""
    grants: dict[int, str] = {}
    acquires: dict[int, Event] = {}
    names: dict[int, str] = {}
    main: list[Event] = []
    for event in events:
        if event.f == "phase" and (event.value or {}).get("name") == "final":
            break
        if not isinstance(event.process, int) or event.f not in ACTIONS:
            continue
        if event.type == "invoke":
            main.append(event)
            if event.f == "acquire":
                acquires[event.process] = event
        elif event.f == "acquire":
            token = (event.value or {}).get("token")
            if event.type == "ok" and token is not None and token not in grants:
                names[acquires[event.process].index] = grants[token] = f"g{len(grants) + 1}"
    steps: list[Step] = []
    for event in main:
        assert isinstance(event.process, int)
        value = dict(event.value or {})
        name = names.get(event.index)
        if event.f != "acquire" and (token := value.get("token")) in grants:
            name = grants[token]
            del value["token"]
        at_ns = event.time // grain_ns * grain_ns
        steps.append(Step(at_ns, event.process % clients, event.f, event.key or "", tuple(value.items()), name))
    return tuple(steps)


def fewer_steps(run: Simulated) -> Iterator[Scenario]:
    steps = run.scenario.workload.steps
    if steps is None:
        return
    operations = cited(run)
    keys = set(_finding_keys(run))
    about = {(one.process % run.scenario.workload.clients, one.f) for one in operations}
    moments = [one.invoked_s * SECOND for one in operations]
    near = [step for step in steps if any(abs(step.at_ns - moment) < 2 * MS for moment in moments)]
    grants = {step.grant for step in near if step.grant is not None}
    bold = [
        [step for step in steps if step in near or (step.grant in grants and step.do == "acquire")],
        [step for step in steps if step in near or step.grant in grants],
        [step for step in steps if step.key in keys and (step.client, step.do) in about],
        [step for step in steps if step.key in keys],
    ]
    for some in (*bold, *_parts(steps)):
        if len(some) < len(steps):
            yield _with_steps(run.scenario, some)


def _finding_keys(run: Simulated) -> Iterator[str]:
    assert run.results is not None
    for claim in run.scenario.expect.invalid:
        for finding in run.results.claims[claim].findings[:1]:
            if finding.key is not None:
                yield finding.key


def cited(run: Simulated) -> Sequence[CitedOperation]:
    """The operations of the first finding."""
    assert run.results is not None
    return [
        operation
        for claim in run.scenario.expect.invalid
        for finding in run.results.claims[claim].findings[:1]
        for operation in finding.operations
    ]


def _with_steps(scenario: Scenario, steps: Sequence[Step]) -> Scenario:
    """With these of its steps; what is about a grant that nobody asks for any more goes too."""
    named = {step.grant for step in steps if step.do == "acquire"}
    left = tuple(step for step in steps if step.do == "acquire" or step.grant is None or step.grant in named)
    return replace(scenario, workload=replace(scenario.workload, steps=left))


def fewer_clients(run: Simulated) -> Iterator[Scenario]:
    """Clients without steps go, the others keep their nodes; then two clients become one."""
    scenario = run.scenario
    if scenario.workload.steps is None:
        return
    used = sorted({step.client for step in scenario.workload.steps})
    where = {client: client % scenario.nodes for client in used}
    yield _with_clients(scenario, where)
    yield _with_clients(scenario, dict.fromkeys(used, 0), spread=True)
    names = sorted({step.key for step in scenario.workload.steps})
    keys = {name: scenario.workload.key_name(number) for number, name in enumerate(names, 1)}
    steps = tuple(replace(step, key=keys[step.key]) for step in scenario.workload.steps)
    yield replace(scenario, workload=replace(scenario.workload, steps=steps, keys=max(1, len(keys))))


def _with_clients(scenario: Scenario, where: dict[int, int], *, spread: bool = False) -> Scenario:
    """Number the clients anew, as low as their nodes (by position) allow; `spread`: whatever node that is."""
    numbers: dict[int, int] = {}
    for client, node in sorted(where.items()):
        number = len(numbers) if spread else node
        while number in numbers.values():
            number += scenario.nodes
        numbers[client] = number
    steps = tuple(replace(step, client=numbers[step.client]) for step in scenario.workload.steps or ())
    clients = max(numbers.values(), default=0) + 1
    return replace(scenario, workload=replace(scenario.workload, steps=steps, clients=clients))


def smaller_workload(run: Simulated) -> Iterator[Scenario]:
    """While clients still draw what they do."""
    spec = run.scenario.workload
    if spec.steps is not None:
        return
    for changed in (
        *(replace(spec, clients=clients) for clients in _below(spec.clients)),
        *(replace(spec, keys=keys) for keys in _below(spec.keys)),
        replace(spec, rate=max(0.5, spec.rate / 2)),
        replace(spec, overrun=0.0),
        replace(spec, reads=0.0),
    ):
        if changed != spec:
            yield replace(run.scenario, workload=changed)


def plainer_steps(run: Simulated) -> Iterator[Scenario]:
    """Moments rounded to tenths of a second, acquires that don't wait, leases that are all alike."""
    steps = run.scenario.workload.steps
    if not steps:
        return
    for position, step in enumerate(steps):
        value = dict(step.value)
        if value.get("wait_ms"):
            plain = replace(step, value=tuple({**value, "wait_ms": 0}.items()))
            yield _with_steps(run.scenario, (*steps[:position], plain, *steps[position + 1 :]))
    for grain_ns in (100 * MS, 10 * MS):
        rounded = tuple(replace(step, at_ns=step.at_ns // grain_ns * grain_ns) for step in steps)
        if rounded != steps:
            yield _with_steps(run.scenario, rounded)
            break


def _below(number: int) -> Iterator[int]:
    """1, then from the half of `number` up to it."""
    tried = set()
    for smaller in (1, number // 4, number // 2, number * 3 // 4, number - 1):
        if 1 <= smaller < number and smaller not in tried:
            tried.add(smaller)
            yield smaller


def _parts(whole: Sequence[T]) -> Iterator[list[T]]:
    """The list without a part of it: without all, halves, quarters, down to single ones; of a long list, only parts of
    which there are few."""
    size = len(whole)
    while size >= 1 and len(whole) <= size * SINGLES_MAX:
        for start in range(len(whole) - size, -size, -size):
            yield [*whole[: max(0, start)], *whole[start + size :]]
        size //= 2


Candidates = Callable[[Simulated], Iterator[Scenario]]

PASSES: Sequence[tuple[str, Candidates]] = (
    ("ends sooner", sooner_over),
    ("steps made explicit", made_explicit),
    ("fewer steps", fewer_steps),
    ("fewer faults", fewer_faults),
    ("faults by role", named_faults),
    ("fewer nodes", fewer_nodes),
    ("fewer clients", fewer_clients),
    ("begins sooner", sooner_begun),
    ("smaller workload", smaller_workload),
    ("shorter faults", shorter_faults),
    ("plainer steps", plainer_steps),
)
