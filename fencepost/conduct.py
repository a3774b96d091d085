"""One run's phases, from an empty place to a recorded history.

    starting   the place is laid out, every node starts and is probed until it serves a client
    main       clients, nemesis and monitor, at the same time, until the time limit
    recovery   every fault is healed, whatever clients are doing; every node is probed until it serves again
    final      each key is acquired, released and looked at once more
    stopping   the counters are read, nodes end, logs are collected

Rules: every phase has a budget, and one that is spent ends the phase, never the run without healing. Nothing is slept
for that can be probed. The place is closed on every way out, and so is the history. What the service does is an
outcome and goes into the history; what the testbed cannot do is a `Failure`: it ends the load, the run still heals and
leaves its history, but nothing is said about the service.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from checker.history import NEMESIS, Event, EventType, HistoryWriter, Recorder
from cluster import places, systems
from cluster.places.base import CutsClients, Equippable, Place, PlaceError, TellsOfItself
from cluster.readiness import Readiness, await_ready
from cluster.systems.base import LockClient
from fencepost import evidence, hosts_file, losses, quorum
from fencepost.interrupts import Interrupts
from fencepost.quantities import NS_PER_MS
from fencepost.scenario import Scenario, chaos
from fencepost.scenario.model import RECOVER_QUORUM
from fencepost.store import RunFolder
from nemesis.clients import ClientPauses
from nemesis.clocks import ClockBound
from nemesis.conductor import Nemesis
from nemesis.ledger import Ledger
from nemesis.monitor import Monitor
from nemesis.spec import FaultSpec
from workloads import kinds
from workloads.interpreter import HarnessError, Interpreter

START_BUDGET_S = 30.0
READY_BUDGET_S = 30.0
#: The nemesis has budgets of its own for each fault; this one is for all of it.
HEAL_BUDGET_S = 60.0
#: Probing after healing; longer than the claim `recovery` allows, so that a breach of it is seen as one.
RECOVERY_BUDGET_S = 40.0
COUNTERS_BUDGET_S = 5.0
STOP_BUDGET_S = 30.0
#: How long open calls may take to come back once no more are made.
DRAIN_S = 5.0
#: What a phase may take beyond what its work needs, before it counts as hung.
SLACK_S = 15.0

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Failure(Exception):
    """The testbed could not do its part; the message is for the user."""


def start_budget_s(scenario: Scenario) -> float:
    """What the place takes for its own, if it says so."""
    return float(getattr(places.load(scenario.place), "start_budget_s", START_BUDGET_S))


def stop_budget_s(scenario: Scenario) -> float:
    return float(getattr(places.load(scenario.place), "stop_budget_s", STOP_BUDGET_S))


def main_budget_s(scenario: Scenario) -> float:
    return scenario.time_limit_ns / 1e9 + DRAIN_S + SLACK_S


def final_budget_s(scenario: Scenario) -> float:
    """Each thread takes its keys one after the other, and each may have to outlast a lease."""
    workload = scenario.workload
    turns = -(-workload.keys // workload.clients)
    patience_s = (kinds.longest_lease_ms(workload) + workload.timeout_ms) / 1000 + SLACK_S
    return 2 * turns * patience_s


def budget_s(scenario: Scenario) -> float:
    """All phases together: what no run can take unless something hangs."""
    place = start_budget_s(scenario) + stop_budget_s(scenario)
    phases = READY_BUDGET_S + HEAL_BUDGET_S + RECOVERY_BUDGET_S + COUNTERS_BUDGET_S
    if scenario.recovery == RECOVER_QUORUM:
        phases += RECOVERY_BUDGET_S + SLACK_S
    return place + phases + main_budget_s(scenario) + final_budget_s(scenario) + 2 * (DRAIN_S + SLACK_S)


class Conductor:
    """Drives one run. `observe` sees every event, `enter` hears of phases that have none. Unless it `keeps` the
    history, what was observed is all that is left of it.

    After `run`, whichever way it ended, `resolved` are the faults as they really took place.
    """

    def __init__(
        self,
        scenario: Scenario,
        folder: RunFolder,
        interrupts: Interrupts,
        observe: Callable[[Event], None],
        enter: Callable[[str], None],
        *,
        keeps: bool = True,
    ) -> None:
        self._scenario = scenario
        self._folder = folder
        self._interrupts = interrupts
        self._observe = observe
        self._enter = enter
        self._keeps = keeps
        self._system = systems.create(scenario.system, scenario.mutant)
        nodes = scenario.node_names()
        self.place: Place = places.create(
            scenario.place, self._system, nodes, folder.path, scenario.seed, hosts_file.of(scenario)
        )
        if isinstance(self.place, Equippable):
            self.place.equip(chaos.needs(scenario))
        self.resolved: tuple[FaultSpec, ...] = ()
        self.tokens_span_keys = self._system.tokens_span_keys
        #: When the history began, in ns of the event loop's clock.
        self.origin_ns = 0

    def system_version(self) -> str:
        return self._system.version()

    async def run(self) -> None:
        """Raises Failure, also when the user interrupted before there was anything to analyse."""
        problems: list[str] = []
        try:
            await self._unless_stopped(self._start())
            if self._interrupts.stop.is_set():
                raise Failure(f"{self._interrupts.first} came before the cluster was ready; nothing was recorded")
            await self._record()
        except (PlaceError, Failure) as problem:
            problems.append(str(problem))
        finally:
            self._enter("stopping")
            try:
                await _bounded(self.place.close(), stop_budget_s(self._scenario), "the nodes did not stop")
            except (PlaceError, Failure) as problem:
                problems.append(str(problem))
        if problems:
            raise Failure("; ".join(problems))

    async def _start(self) -> None:
        self._enter("starting")
        await _bounded(self.place.start(), start_budget_s(self._scenario), "the place did not start")
        logger.info("nodes: %s", ", ".join(f"{node} at {self.place.address(node)}" for node in self.place.nodes))
        readiness = await _readiness(self.place, self.place.nodes, READY_BUDGET_S)
        logger.info("%s", readiness.describe())
        if not readiness.complete:
            raise Failure(f"the cluster did not get ready: {readiness.describe()}")

    async def _record(self) -> None:
        """Everything that is in the history."""
        time = asyncio.get_running_loop().time
        started_s = time()

        def clock() -> int:
            return round((time() - started_s) * 1e9)

        self.origin_ns = round(started_s * 1e9)
        evidence.begin(self._folder.path, self.place, self.origin_ns)
        writer = HistoryWriter(self._folder.history, clock) if self._keeps else Recorder(clock)
        ledger = Ledger(self._folder.ledger)
        try:
            record = self._recorder(writer)
            await _Recording(self._scenario, self.place, self._interrupts, record, clock, ledger, self).run()
        finally:
            ledger.close()
            writer.close()

    def _recorder(self, writer: Recorder) -> Record:
        def record(process: int | str, type: EventType, f: str, **fields: Any) -> Event:
            event = writer.append(process, type, f, **fields)
            self._observe(event)
            return event

        return record

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, or give it up when the user wants to stop."""
        task, stop = asyncio.create_task(work), asyncio.create_task(self._interrupts.stop.wait())
        try:
            await asyncio.wait({task, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            task.cancel()
            await asyncio.wait({task})
        if not task.cancelled():
            task.result()


Record = Callable[..., Event]


class _Recording:
    """The phases that the history shows."""

    def __init__(
        self,
        scenario: Scenario,
        place: Place,
        interrupts: Interrupts,
        record: Record,
        clock: Callable[[], int],
        ledger: Ledger,
        conductor: Conductor,
    ) -> None:
        self._scenario = scenario
        self._place = place
        self._interrupts = interrupts
        self._record = record
        self._conductor = conductor
        self._workload = kinds.build(scenario.workload, scenario.seed, scenario.time_limit_ns)
        self._clients = Interpreter(
            connect=self._connect,
            nodes=place.nodes,
            threads=scenario.workload.clients,
            record=record,
            clock=clock,
            calls=self._workload.calls,
            drain_s=DRAIN_S,
        )
        self._nemesis = Nemesis(
            place,
            chaos.plan(scenario),
            record=record,
            ledger=ledger,
            clock=clock,
            time_limit_ns=scenario.time_limit_ns,
            families=[ClientPauses(self._clients)],
            clock_bound=ClockBound(scenario.clock_error, scenario.workload.lease_ms * NS_PER_MS),
        )
        self._monitor = Monitor(place, record=record)
        self._problems: list[str] = []
        self._lost = asyncio.Event()

    async def _connect(self, node: str) -> LockClient:
        place = self._place
        address = place.client_address(node) if isinstance(place, CutsClients) else place.address(node)
        return await place.system.connect(address, self._scenario.workload.timeout_ms / 1000)

    async def run(self) -> None:
        place = self._place
        if isinstance(place, TellsOfItself):
            place.tell_to(lambda words: self._record(NEMESIS, "info", "place", value={"says": words}))
        watch = asyncio.create_task(self._watch(), name="monitor")
        loss = asyncio.create_task(losses.awaited(self._place), name="loss")
        loss.add_done_callback(self._lose)
        try:
            await self._main()
            if self._calm:
                await self._recovery()
            if self._calm:
                await self._final()
            if self._calm and (lost := await losses.found(self._place)) is not None:
                self._problems.append(lost)
        finally:
            loss.remove_done_callback(self._lose)
            loss.cancel()
            watch.cancel()
            await asyncio.wait({watch, loss})
            await self._last_words()
            if isinstance(place, TellsOfItself):
                place.tell_to(logger.info)
        if self._problems:
            raise Failure("; ".join(self._problems))

    def _lose(self, loss: asyncio.Task[str]) -> None:
        """Nothing that comes now is the service's doing: the run ends."""
        if not loss.cancelled():
            problem = loss.exception()
            self._problems += [loss.result()] if problem is None else _words(problem)
            self._lost.set()

    @property
    def _calm(self) -> bool:
        """Neither the user nor a failure wants to be done soon."""
        return not self._problems and not self._interrupts.stop.is_set()

    async def _over(self) -> None:
        """Waits until the user wants to stop, or there is no sense in going on."""
        waits = {asyncio.create_task(event.wait()) for event in (self._interrupts.stop, self._lost)}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _phase(self, name: str) -> None:
        logger.info("phase %s", name)
        self._record(NEMESIS, "info", "phase", value={"name": name})

    async def _main(self) -> None:
        """The load until its end, the user's or a failure; then everything is healed while clients still drain."""
        self._phase("main")
        load = asyncio.create_task(self._clients.run(self._workload.main), name="clients")
        chaos = asyncio.create_task(self._nemesis.run(), name="nemesis")
        stop = asyncio.create_task(self._over())
        ran_out = False
        try:
            ran_out = await self._until_over(load, chaos, stop)
            self._phase("recovery")
        finally:
            stop.cancel()
            # A load that ran out needs no stop, which would keep its clients from the final operations too.
            if not ran_out and not load.done():
                self._clients.stop()
            # Ends by healing everything that is active, whatever clients are doing.
            chaos.cancel()
            try:
                await self._end_of(chaos, HEAL_BUDGET_S, "the nemesis could not heal")
            finally:
                self._conductor.resolved = self._nemesis.resolved()
                await self._end_of(load, DRAIN_S + SLACK_S, "the clients did not end")

    async def _until_over(self, load: asyncio.Task[None], chaos: asyncio.Task[None], stop: asyncio.Task[Any]) -> bool:
        """Whether load and nemesis came to the end that the time limit sets them; the load may still drain."""
        time = asyncio.get_running_loop().time
        deadline = time() + main_budget_s(self._scenario)
        limit = asyncio.create_task(asyncio.sleep(self._scenario.time_limit_ns / 1e9))
        waiting: set[asyncio.Task[Any]] = {load, chaos, stop, limit}
        try:
            while waiting:
                left = deadline - time()
                done, waiting = await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if not done or stop in done or load in done or (chaos in done and chaos.exception() is not None):
                    return False
                if limit.done() and chaos.done():
                    return True
            return False
        finally:
            limit.cancel()

    async def _end_of(self, task: asyncio.Task[None], budget_s: float, complaint: str) -> None:
        """Wait for the task's end, at once if the user is in a hurry; note what it failed at."""
        if self._interrupts.hurried:
            task.cancel()
        try:
            done, _ = await asyncio.wait({task}, timeout=budget_s)
        except asyncio.CancelledError:
            # Whatever still runs would record into a history that is about to be closed.
            task.cancel()
            await asyncio.wait({task}, timeout=budget_s)
            raise
        if not done:
            task.cancel()
            await asyncio.wait({task}, timeout=SLACK_S)
            self._problems.append(f"{complaint} within {budget_s:g} s")
        elif not task.cancelled() and (problem := task.exception()) is not None:
            logger.error("%s failed", task.get_name(), exc_info=problem)
            self._problems += _words(problem)

    async def _recovery(self) -> None:
        if self._scenario.recovery == RECOVER_QUORUM:
            nodes = quorum.drawn(self._place.nodes, self._scenario.seed)
            async with quorum.alone(self._place, nodes):
                await self._served_by(nodes)
        await self._served_by(self._place.nodes)

    async def _served_by(self, nodes: Sequence[str]) -> None:
        readiness = await _readiness(self._place, nodes, RECOVERY_BUDGET_S)
        logger.info("%s", readiness.describe())
        value: dict[str, Any] = {"seconds": round(readiness.seconds, 3)}
        if len(nodes) < len(self._place.nodes):
            value["nodes"] = list(nodes)
        if not readiness.complete:
            value["error"] = readiness.describe()
        self._record(NEMESIS, "info", "ready", value=value)

    async def _final(self) -> None:
        self._phase("final")
        final = asyncio.create_task(self._clients.run(self._workload.final), name="clients")
        stop = asyncio.create_task(self._over())
        try:
            await asyncio.wait(
                {final, stop}, timeout=final_budget_s(self._scenario), return_when=asyncio.FIRST_COMPLETED
            )
            if not final.done():
                # What a service cannot finish is its outcome: open calls become `info`, and claims judge them.
                logger.warning("the final operations were ended before they were done")
        finally:
            stop.cancel()
            if not final.done():
                self._clients.stop()
            await self._end_of(final, DRAIN_S + SLACK_S, "the clients did not end")

    async def _watch(self) -> None:
        """The monitor; without it a run still has a verdict, only not on what it would have counted."""
        try:
            await self._monitor.run()
        except Exception:
            logger.exception("the monitor failed")

    async def _last_words(self) -> None:
        try:
            async with asyncio.timeout(COUNTERS_BUDGET_S):
                await self._monitor.ask_once()
        except Exception:
            logger.exception("the counters could not be read")
        self._monitor.record_counters()
        self._phase("end")
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._clients.close()
        except TimeoutError:
            logger.warning("some connections did not close within %g s", DRAIN_S)


def _words(problem: BaseException) -> list[str]:
    """Each thing that went wrong in words; groups taken apart."""
    if isinstance(problem, BaseExceptionGroup):
        return [words for part in problem.exceptions for words in _words(part)]
    known = isinstance(problem, PlaceError | HarnessError)
    return [str(problem) if known else f"{type(problem).__name__}: {problem}"]


async def _bounded(work: Awaitable[T], budget_s: float, complaint: str) -> T:
    """Raises Failure when it takes longer."""
    try:
        async with asyncio.timeout(budget_s):
            return await work
    except TimeoutError as problem:
        raise Failure(f"{complaint} within {budget_s:g} s") from problem


async def _readiness(place: Place, nodes: Sequence[str], budget_s: float) -> Readiness:
    """Asking a node is bounded; asking a place what a node does is bounded here. Raises Failure."""
    work = await_ready(place, nodes, budget_s)
    return await _bounded(work, budget_s + SLACK_S, f"the place {place.name} did not say what its nodes do")
