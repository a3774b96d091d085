"""The nemesis: runs the schedule, and sees to it that everything it did is undone.

Rules.

1. A fault is in the ledger before it is applied, and in the history as active from `inject` until `healed`.
2. Steps (one injection with its evidence, one healing with its evidence) come one at a time, so that evidence for one
   fault is not spoilt by the beginning or the end of another. Faults overlap; their steps don't.
3. A step that changes the cluster is never interrupted half-way: whoever cancels waits until it is over (each is
   bounded), so what is known to be active is what is active.
4. However `run` ends - by itself, cancelled, by an error - it heals everything that is active, at once for all faults.
   Healing asks nobody but the place: clients may hang, the nemesis doesn't care.
5. A fault that can't be shown to have taken effect is undone at once and doesn't count: `skipped`, with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from checker.history import NEMESIS
from cluster.places.base import Place, PlaceError
from nemesis.clocks import EXACT, ClockBound
from nemesis.families import built_in
from nemesis.family import Family, Fault, Foresees, Skipped
from nemesis.ledger import Entry, Ledger
from nemesis.moments import moment
from nemesis.schedule import Planned
from nemesis.spec import FOR_NS_MIN, FaultSpec, Moment

#: Undoing all faults takes milliseconds, starting nodes again included; a place that takes longer is stuck.
HEAL_BUDGET_S = 10.0
#: What needs the service to be healed, such as bringing members back, waits for the rest: it is tried again and again.
HEAL_ALL_BUDGET_S = 25.0
HEAL_AGAIN_S = 1.0
#: Evidence after healing waits for restarted nodes to answer; it must not hold up the end of a run for long.
CONFIRM_BUDGET_S = 5.0
#: The longest injection: three processes' worth of signals that don't act, and the probes.
STEP_BUDGET_S = 20.0

Action = Literal["inject", "injected", "skipped", "heal", "healed"]


class Recorder(Protocol):
    """Appends an event to the run's history, as `checker.history.HistoryWriter.append` does."""

    def __call__(
        self, process: int | str, type: Literal["info"], f: str, /, *, value: dict[str, Any] | None = None
    ) -> object: ...


@dataclass(slots=True)
class Active:
    """A fault that may be in effect, since `since_ns` of the recorder's clock."""

    fault: Fault
    since_ns: int


@dataclass(frozen=True, slots=True)
class _Done:
    spec: FaultSpec
    start_ns: int
    end_ns: int


class Nemesis:
    """Give it a place that runs and the plan; then `await run()`.

    `clock` gives nanoseconds and never goes back; the plan's times count from the moment that `run` is called.
    `families` are for faults beside the built-in ones; `clock_bound` is how wrong clocks may be without breaking what
    the scenario takes for granted.
    """

    def __init__(
        self,
        place: Place,
        plan: Iterable[Planned],
        *,
        record: Recorder,
        ledger: Ledger,
        clock: Callable[[], int],
        time_limit_ns: int,
        families: Iterable[Family] = (),
        clock_bound: ClockBound = EXACT,
    ) -> None:
        self._families = {family.kind: family for family in [*built_in(place, clock_bound), *families]}
        self._place = place
        self._plan = tuple(plan)
        self._record = record
        self._ledger = ledger
        self._clock = clock
        self._time_limit_ns = time_limit_ns
        self._started_ns = 0
        self._active: dict[str, Active] = {}
        self._done: dict[str, _Done] = {}
        self._step = asyncio.Lock()
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._healing: asyncio.Task[None] | None = None
        self._moments: dict[str, str] = {}

    @property
    def active(self) -> Sequence[Active]:
        """The faults that are in effect now, oldest first."""
        return tuple(self._active.values())

    def resolved(self) -> tuple[FaultSpec, ...]:
        """What was really done, as specs with explicit targets or cuts and the real times, for doing it again."""
        return tuple(self._resolve(done) for done in sorted(self._done.values(), key=lambda done: done.start_ns))

    async def run(self) -> None:
        """Run the whole plan; ends when the last fault is healed. Raises PlaceError when something can't be healed."""
        self._started_ns = self._clock()
        try:
            async with asyncio.TaskGroup() as group:
                for planned in self._plan:
                    group.create_task(self._perform(planned))
        finally:
            await self.heal_all()

    async def heal_all(self) -> None:
        """Undo everything that is active. Completes even when it is cancelled meanwhile, within its budgets.
        Raises PlaceError, after everything else was undone, when something can't be."""
        if self._healing is None or self._healing.done():
            self._healing = asyncio.create_task(self._heal_all())
        await _to_the_end(self._healing)

    # ---- one fault after the other

    async def _perform(self, planned: Planned) -> None:
        family = self._families[planned.spec.fault]
        if isinstance(family, Foresees):
            await self._sleep_until(planned.start_ns - family.notice_ns(planned))
            async with self._step:
                await self._change(family.foresee(planned))
        await self._sleep_until(planned.start_ns)
        if planned.spec.when is not None and not await self._moment(planned, planned.spec.when):
            return
        late_ns = self._clock() - self._started_ns - planned.start_ns if planned.spec.when is not None else 0
        async with self._step:
            fault = await self._inject(planned)
        if fault is not None:
            # What waited for its moment still lasts as long as it was to last.
            await self._sleep_until(planned.end_ns + late_ns)
        elif planned.id in self._active:
            fault = self._active[planned.id].fault  # skipped, and not undone
        else:
            return
        # One that can't be healed stays active; at the end of the run `heal_all` tries once more, and complains.
        while not await self._heal_one(fault) and self._left_ns() > HEAL_AGAIN_S * 1e9:
            await asyncio.sleep(HEAL_AGAIN_S)

    async def _heal_one(self, fault: Fault) -> bool:
        async with self._step:
            try:
                await self._change(self._heal([fault]))
            except PlaceError:
                return False
        return True

    def _left_ns(self) -> int:
        return self._started_ns + self._time_limit_ns - self._clock()

    async def _moment(self, planned: Planned, wanted: Moment) -> bool:
        try:
            seen = await moment(self._place, self._place.nodes, wanted)
        except (Skipped, PlaceError) as reason:
            self._tell(planned.id, planned.spec.fault, "skipped", reason=str(reason))
            return False
        self._moments[planned.id] = seen
        await asyncio.sleep(wanted.after_ns / 1e9)
        return True

    async def _sleep_until(self, moment_ns: int) -> None:
        await asyncio.sleep(max(0, self._started_ns + moment_ns - self._clock()) / 1e9)

    async def _inject(self, planned: Planned) -> Fault | None:
        family = self._families[planned.spec.fault]
        try:
            fault = await family.prepare(planned)
        except (Skipped, PlaceError) as reason:
            self._tell(planned.id, planned.spec.fault, "skipped", reason=str(reason))
            return None
        return fault if await self._change(self._apply(family, fault)) else None

    async def _apply(self, family: Family, fault: Fault) -> bool:
        self._ledger.write(Entry(fault.id, fault.kind, "inject", fault.targets, fault.detail))
        self._active[fault.id] = Active(fault, self._clock())
        self._tell_of(fault, "inject")
        try:
            async with asyncio.timeout(STEP_BUDGET_S):
                evidence = await family.apply(fault)
        except (Skipped, PlaceError, TimeoutError) as problem:
            reason = str(problem) or f"not applied within {STEP_BUDGET_S:g} s"
            self._tell_of(fault, "skipped", reason=reason)
            with contextlib.suppress(PlaceError):  # as in `_perform`
                await self._heal([fault])
            return False
        self._tell_of(fault, "injected", evidence=evidence)
        since_ns = self._active[fault.id].since_ns
        self._done[fault.id] = _Done(fault.explicit, since_ns, self._clock())
        return True

    async def _change(self, step: Coroutine[Any, Any, Any]) -> Any:
        """Run a step that changes the cluster, to its end even when the caller is cancelled."""
        task = asyncio.create_task(step)
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard)
        return await asyncio.shield(task)

    # ---- healing

    async def _heal_all(self) -> None:
        if self._unfinished:
            await asyncio.wait(self._unfinished)
        clock = asyncio.get_running_loop().time
        deadline = clock() + HEAL_ALL_BUDGET_S
        while True:
            try:
                await self._heal([active.fault for active in self._active.values()])
            except PlaceError:
                if clock() + HEAL_AGAIN_S > deadline:
                    raise
                await asyncio.sleep(HEAL_AGAIN_S)
            else:
                return

    async def _heal(self, faults: Sequence[Fault]) -> None:
        for fault in faults:
            self._tell_of(fault, "heal")
        problems = await asyncio.gather(*map(self._undo, faults))
        undone = [fault for fault, problem in zip(faults, problems, strict=True) if problem is None]
        evidence = await asyncio.gather(*map(self._confirm, undone))
        for fault, sentence in zip(undone, evidence, strict=True):
            self._tell_of(fault, "healed", evidence=sentence)
        if stuck := [problem for problem in problems if problem is not None]:
            raise PlaceError("; ".join(stuck))

    async def _undo(self, fault: Fault) -> str | None:
        """Returns what went wrong; the fault then stays active and in the ledger."""
        try:
            async with asyncio.timeout(HEAL_BUDGET_S):
                await self._families[fault.kind].undo(fault)
        except (PlaceError, TimeoutError) as problem:
            return f"{fault.summary} could not be healed: {str(problem) or f'not within {HEAL_BUDGET_S:g} s'}"
        self._ledger.write(Entry(fault.id, fault.kind, "healed"))
        self._active.pop(fault.id, None)
        if fault.id in self._done:
            self._done[fault.id] = replace(self._done[fault.id], end_ns=self._clock())
        return None

    async def _confirm(self, fault: Fault) -> str:
        try:
            async with asyncio.timeout(CONFIRM_BUDGET_S):
                return await self._families[fault.kind].confirm(fault)
        except (PlaceError, TimeoutError) as problem:
            return f"undone, but not shown to be: {str(problem) or f'no evidence within {CONFIRM_BUDGET_S:g} s'}"

    # ---- telling

    def _tell_of(self, fault: Fault, action: Action, **more: str) -> None:
        extra: dict[str, Any] = {"breaks": list(fault.breaks)} if fault.breaks else {}
        detail = dict(fault.detail)
        if fault.id in self._moments:
            detail["when"] = self._moments[fault.id]
        self._tell(fault.id, fault.kind, action, targets=list(fault.targets), detail=detail, **extra, **more)

    def _tell(self, id: str, kind: str, action: Action, **more: Any) -> None:
        self._record(NEMESIS, "info", kind, value={"fault": id, "action": action, **more})

    def _resolve(self, done: _Done) -> FaultSpec:
        """Whole milliseconds, and inside the time limit like every valid spec, although steps run late."""
        lasted_ns = max(_whole_ms(done.end_ns - done.start_ns), FOR_NS_MIN)
        at_ns = min(_whole_ms(done.start_ns - self._started_ns), self._time_limit_ns - FOR_NS_MIN)
        lasted_ns = min(lasted_ns, self._time_limit_ns - at_ns)
        return replace(done.spec, at_ns=at_ns, every_ns=None, for_ns=lasted_ns, when=None)


def _whole_ms(ns: int) -> int:
    return ns // 1_000_000 * 1_000_000


async def _to_the_end(task: asyncio.Task[None]) -> None:
    """Wait for `task`; a cancellation takes effect only when it is done."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as request:
            cancelled = request
    failure = task.exception()
    if cancelled is not None:
        raise cancelled
    if failure is not None:
        raise failure
