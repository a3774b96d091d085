"""The interpreter in real time, against clients in memory."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import checker
from cluster.systems.base import Outcome
from tests.workloads.fake_clients import FakeClient, FakeCluster, at_once, inspect
from tests.workloads.virtual import MS, S, invokes, well_formed
from workloads import kinds
from workloads.combinators import delay, limit, stagger, time_limit
from workloads.generator import PENDING, Answer, Context, Generator, Op, Repeat
from workloads.interpreter import ABANDONED, CLOSE_S_MAX, NOT_CONNECTED, HarnessError
from workloads.seeds import Seed
from workloads.spec import WorkloadSpec


def endless() -> Generator:
    return Repeat(inspect)


def jitter(milliseconds: int, info_share: float = 0.0) -> object:
    async def behave(client: FakeClient, f: str) -> Outcome:
        seed = Seed(client.number).split(client.calls)
        await asyncio.sleep(seed.split("latency").between(0, milliseconds) / 1000)
        if seed.split("info").chance(info_share):
            return Outcome("info", error="timeout")
        return await at_once(client, f)

    return behave


async def forever(_client: FakeClient, _f: str) -> Outcome:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


async def test_a_whole_workload_makes_a_history_that_the_checker_reads(tmp_path: Path) -> None:
    tokens = iter(range(1, 10**9))

    async def behave(client: FakeClient, f: str) -> Outcome:
        await asyncio.sleep(0.002 * Seed(client.number).split(client.calls).fraction())
        return Outcome("ok", {"token": next(tokens)}) if f == "acquire" else await at_once(client, f)

    cluster = FakeCluster(tmp_path, behave, ("n1", "n2", "n3"))
    spec = WorkloadSpec("guarded-resource", 5, 3, 400.0, 200, (1, 5))
    workload = kinds.build(spec, 7, S)
    interpreter = cluster.interpreter(5, calls=workload.calls)
    await interpreter.run(workload.main)
    await interpreter.run(workload.final)
    await interpreter.close()
    well_formed(cluster.events)
    history = checker.read(cluster.path)
    assert list(history.events) == cluster.events
    assert {event.f for event in cluster.events} == {"acquire", "release", "inspect", "read", "write"}
    assert len(invokes(cluster.events)) > 200
    assert all(client.closed.is_set() for client in cluster.clients)


async def test_an_invocation_is_in_the_file_before_its_call_begins_and_its_end_is_not(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    await cluster.interpreter(3).run(limit(50, Repeat(lambda thread, count: Op(thread, "inspect", f"k{count}"))))
    assert cluster.in_file == [["invoke"]] * 50


async def test_completions_come_first(tmp_path: Path) -> None:
    """Three calls end at the same moment: all three are recorded before any thread is given work again."""
    waiting: list[asyncio.Future[None]] = []

    async def behave(_client: FakeClient, _f: str) -> Outcome:
        waiting.append(asyncio.get_running_loop().create_future())
        if len(waiting) == 3:
            asyncio.get_running_loop().call_later(0.01, release)
        await waiting[-1]
        return Outcome("ok", {"token": None})

    def release() -> None:
        for future in waiting:
            future.set_result(None)
        waiting.clear()

    cluster = FakeCluster(tmp_path, behave)
    await cluster.interpreter(3).run(limit(30, endless()))
    types = [event.type for event in cluster.events]
    assert types == (["invoke"] * 3 + ["ok"] * 3) * 10


async def test_threads_are_pinned_to_nodes_and_keep_their_connection(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, nodes=("n1", "n2", "n3"))
    await cluster.interpreter(5).run(limit(100, endless()))
    assert sorted(client.node for client in cluster.clients) == ["n1", "n1", "n2", "n2", "n3"]
    for event in cluster.events:
        assert isinstance(event.process, int)
        assert event.node == ("n1", "n2", "n3", "n1", "n2")[event.process]


async def test_an_info_retires_the_process_and_its_connection(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, jitter(3, info_share=0.3))  # type: ignore[arg-type]
    interpreter = cluster.interpreter(2)
    await interpreter.run(limit(60, endless()))
    well_formed(cluster.events)
    infos = [event for event in cluster.events if event.type == "info"]
    assert len(infos) > 5
    processes = {event.process for event in cluster.events}
    assert len(processes) >= len(infos)
    # One connection for each process, closed when the process was retired.
    assert len(cluster.clients) == len(processes)
    await interpreter.close()
    assert all(client.closed.is_set() for client in cluster.clients)


async def test_a_retired_connection_that_hangs_in_close_holds_nobody_up(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, lambda *_: _unknown())
    connect = cluster.connect

    async def connect_to_one_that_hangs(node: str) -> FakeClient:
        client = await connect(node)
        assert isinstance(client, FakeClient)
        client.close = forever_closing  # type: ignore[method-assign]
        return client

    cluster.connect = connect_to_one_that_hangs  # type: ignore[method-assign]
    interpreter = cluster.interpreter(1)
    began = time.monotonic()
    await interpreter.run(limit(10, endless()))
    assert time.monotonic() - began < CLOSE_S_MAX / 2
    await interpreter.close()
    assert time.monotonic() - began < CLOSE_S_MAX * 2


async def _unknown() -> Outcome:
    return Outcome("info", error="timeout")


async def forever_closing() -> None:
    await asyncio.Event().wait()


async def test_no_connection_is_a_definite_failure_and_tried_less_and_less_often(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    cluster.down = {"n1"}
    await cluster.interpreter(2).run(time_limit(800 * MS, stagger(Seed(1), 1000.0, endless())))
    well_formed(cluster.events)
    outcomes = Counter((event.node, event.type, event.error) for event in cluster.events if event.type != "invoke")
    assert set(outcomes) == {("n1", "fail", NOT_CONNECTED), ("n2", "ok", None)}
    assert outcomes["n2", "ok", None] > 10
    attempts = [when for when, node in cluster.attempts if node == "n1"]
    pauses = [later - earlier for earlier, later in pairwise(attempts)]
    assert 3 <= len(attempts) <= 6
    assert pauses[-1] > 2 * pauses[0]


async def test_a_node_that_comes_back_is_used_again(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, nodes=("n1",))
    cluster.down = {"n1"}
    asyncio.get_running_loop().call_later(0.2, cluster.down.clear)
    await cluster.interpreter(1).run(time_limit(1500 * MS, delay(MS, endless())))
    assert cluster.events[-1].type == "ok"
    assert {(event.process, event.error) for event in cluster.events if event.type == "fail"} == {(0, NOT_CONNECTED)}


async def test_a_client_that_lost_its_connection_is_replaced(tmp_path: Path) -> None:
    async def behave(client: FakeClient, f: str) -> Outcome:
        if client.number == 0 and client.calls > 3:
            return Outcome("fail", error=NOT_CONNECTED)
        return await at_once(client, f)

    cluster = FakeCluster(tmp_path, behave)
    await cluster.interpreter(1).run(limit(10, endless()))
    assert [event.type for event in cluster.events if event.type != "invoke"] == ["ok"] * 3 + ["fail"] + ["ok"] * 6
    assert [client.calls for client in cluster.clients] == [4, 6]
    assert {event.process for event in cluster.events} == {0}


async def test_what_is_open_at_the_end_has_a_bounded_time_and_is_then_unknown(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, forever)
    interpreter = cluster.interpreter(3, drain_s=0.2)
    began = time.monotonic()
    await interpreter.run(limit(3, endless()))
    assert 0.15 < time.monotonic() - began < 3
    assert [(event.type, event.error) for event in cluster.events] == [("invoke", None)] * 3 + [("info", ABANDONED)] * 3
    cluster.behave = at_once
    await interpreter.run(limit(3, endless()))
    assert {event.process for event in cluster.events[6:]} == {3, 4, 5}
    well_formed(cluster.events)


async def test_what_comes_back_within_that_time_keeps_its_outcome(tmp_path: Path) -> None:
    async def behave(_client: FakeClient, _f: str) -> Outcome:
        await asyncio.sleep(0.1)
        return Outcome("fail", error="no-leader")

    cluster = FakeCluster(tmp_path, behave)
    await cluster.interpreter(3).run(limit(3, endless()))
    assert [event.error for event in cluster.events[3:]] == ["no-leader"] * 3


async def test_stop_ends_the_run_and_every_later_one(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, jitter(5))  # type: ignore[arg-type]
    interpreter = cluster.interpreter(3)
    asyncio.get_running_loop().call_later(0.1, interpreter.stop)
    began = time.monotonic()
    await interpreter.run(endless())
    assert time.monotonic() - began < 3
    well_formed(cluster.events)
    count = len(cluster.events)
    await interpreter.run(endless())
    assert len(cluster.events) == count > 0


async def test_stop_wakes_a_loop_that_waits_for_a_far_moment(tmp_path: Path) -> None:
    interpreter = FakeCluster(tmp_path).interpreter(1)
    asyncio.get_running_loop().call_later(0.05, interpreter.stop)
    async with asyncio.timeout(1):
        await interpreter.run(delay(3600 * S, endless()))


async def test_a_cancelled_run_leaves_no_operation_open(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, forever)
    running = asyncio.create_task(cluster.interpreter(4).run(endless()))
    await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    well_formed(cluster.events)
    assert Counter(event.type for event in cluster.events) == {"invoke": 4, "info": 4}


async def test_a_client_that_raises_is_the_harness_fault_and_the_history_stays_whole(tmp_path: Path) -> None:
    async def behave(client: FakeClient, f: str) -> Outcome:
        await asyncio.sleep(0.005)
        if client.node == "n2" and client.calls == 3:
            raise RuntimeError("a bug in the client")
        return await at_once(client, f)

    cluster = FakeCluster(tmp_path, behave)
    interpreter = cluster.interpreter(4)
    with pytest.raises(HarnessError, match="a bug in the client") as caught:
        await interpreter.run(endless())
    assert isinstance(caught.value.__cause__, RuntimeError)
    well_formed(cluster.events)
    assert {event.error for event in cluster.events if event.type == "info"} == {
        "harness: RuntimeError('a bug in the client')"
    }
    checker.read(cluster.path)


async def test_an_unexpected_error_while_connecting_is_the_harness_fault(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)

    async def connect(_node: str) -> FakeClient:
        raise ValueError("no such port")

    cluster.connect = connect  # type: ignore[method-assign, assignment]
    with pytest.raises(HarnessError, match="no such port"):
        await cluster.interpreter(1).run(endless())
    well_formed(cluster.events)


async def test_a_function_that_no_client_has_is_the_harness_fault(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    with pytest.raises(HarnessError, match="no client can do 'dance'"):
        await cluster.interpreter(1).run(Repeat(lambda thread, _: Op(thread, "dance")))


class Stuck:
    def op(self, ctx: Context) -> Answer:
        return PENDING, self

    def update(self, ctx: Context, event: object) -> Generator:
        return self


async def test_a_workload_that_waits_for_nothing_is_reported_instead_of_hanging(tmp_path: Path) -> None:
    async with asyncio.timeout(1):
        with pytest.raises(HarnessError, match="no operation is open"):
            await FakeCluster(tmp_path).interpreter(1).run(Stuck())


class Confused:
    """Fails at the fifth event that it hears of."""

    def __init__(self) -> None:
        self.heard = 0

    def op(self, ctx: Context) -> Answer:
        return (inspect(ctx.free[0]) if ctx.free else PENDING), self

    def update(self, ctx: Context, event: object) -> Generator:
        self.heard += 1
        if self.heard >= 5:
            raise KeyError("token")
        return self


async def test_a_generator_that_fails_leaves_a_whole_history(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path, forever)
    with pytest.raises(KeyError):
        await cluster.interpreter(8).run(Confused())
    well_formed(cluster.events)
    assert Counter(event.type for event in cluster.events) == {"invoke": 5, "info": 5}


async def test_calls_to_the_resource_need_no_connection(tmp_path: Path) -> None:
    async def write(op: Op) -> Outcome:
        return Outcome("fail", error=f"{op.key} is stale")

    cluster = FakeCluster(tmp_path)
    cluster.down = {"n1", "n2"}
    interpreter = cluster.interpreter(2, calls={"write": write})
    await interpreter.run(limit(4, Repeat(lambda thread, _: Op(thread, "write", "a"))))
    assert cluster.attempts == []
    assert [event.error for event in cluster.events if event.type == "fail"] == ["a is stale"] * 4


async def test_the_loop_sleeps_while_there_is_nothing_to_do(tmp_path: Path) -> None:
    """One op every 100 ms for a second: a loop that polled would use the processor all the time."""
    cluster = FakeCluster(tmp_path)
    began = time.process_time()
    await cluster.interpreter(10).run(time_limit(S, delay(100 * MS, endless())))
    assert len(invokes(cluster.events)) == 10
    assert time.process_time() - began < 0.3


async def test_a_frozen_client_begins_nothing_and_learns_nothing_until_it_is_thawed(tmp_path: Path) -> None:
    async def behave(client: FakeClient, f: str) -> Outcome:
        await asyncio.sleep(0.02)
        return await at_once(client, f)

    cluster = FakeCluster(tmp_path, behave)
    interpreter = cluster.interpreter(2)
    running = asyncio.create_task(interpreter.run(time_limit(2 * S, endless())))
    await asyncio.sleep(0.1)
    interpreter.freeze([0])
    await asyncio.sleep(0.05)
    before = [event for event in cluster.events if event.process == 0]
    assert before[-1].type == "invoke", "its call has come back, and it does not know"
    await asyncio.sleep(0.3)
    assert [event for event in cluster.events if event.process == 0] == before
    assert len([event for event in cluster.events if event.process == 1]) > len(before), "the other one goes on"
    interpreter.thaw([0])
    await asyncio.sleep(0.1)
    after = [event for event in cluster.events if event.process == 0]
    assert after[len(before)].type == "ok"
    assert after[len(before)].time - before[-1].time > 300 * MS
    assert len(after) > len(before) + 2
    interpreter.stop()
    await running
    well_formed(cluster.events)


async def test_all_frozen_clients_wake_up_again(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    interpreter = cluster.interpreter(2)
    interpreter.freeze([0, 1])
    running = asyncio.create_task(interpreter.run(limit(10, endless())))
    await asyncio.sleep(0.1)
    assert cluster.events == []
    interpreter.thaw([0, 1])
    await asyncio.wait_for(running, 2)
    assert len(invokes(cluster.events)) == 10


async def test_a_run_that_ends_while_a_client_is_frozen_gives_its_call_up(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    interpreter = cluster.interpreter(2, drain_s=0.2)
    running = asyncio.create_task(interpreter.run(endless()))
    await asyncio.sleep(0.05)
    interpreter.freeze([1])
    await asyncio.sleep(0.05)
    interpreter.stop()
    await running
    interpreter.thaw([0, 1])
    await interpreter.close()
    well_formed(cluster.events)


async def test_who_holds_a_lock_is_known_from_grant_to_release(tmp_path: Path) -> None:
    cluster = FakeCluster(tmp_path)
    interpreter = cluster.interpreter(2)
    acquire = {"lease_ms": 1000, "wait_ms": 0}
    await interpreter.run(limit(1, Repeat(lambda _thread, _: Op(0, "acquire", "k", acquire))))
    assert set(interpreter.holding()) == {0}
    await interpreter.run(limit(1, Repeat(lambda _thread, _: Op(0, "release", "k", {"token": 1}))))
    assert not interpreter.holding()
