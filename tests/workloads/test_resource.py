from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from cluster.systems.base import Outcome
from workloads.generator import Op
from workloads.resource import STALE_TOKEN, Register, Resource
from workloads.seeds import Seed

writes = st.lists(st.tuples(st.integers(1, 9), st.integers()), max_size=30)


@given(writes)
def test_a_guarded_register_never_accepts_a_token_lower_than_one_it_accepted(writes: list[tuple[int, int]]) -> None:
    register = Register(guarded=True)
    accepted = [(token, data) for token, data in writes if register.write(token, data)]
    tokens = [token for token, _ in accepted]
    assert tokens == sorted(tokens)
    assert (register.token, register.data) == (accepted[-1] if accepted else (None, None))


@given(writes)
def test_a_guarded_register_refuses_nothing_else(writes: list[tuple[int, int]]) -> None:
    register = Register(guarded=True)
    for position, (token, data) in enumerate(writes):
        seen = [earlier for earlier, _ in writes[:position]]
        assert register.write(token, data) == (token >= max(seen, default=0))


@given(writes)
def test_the_twin_accepts_everything(writes: list[tuple[int, int]]) -> None:
    register = Register(guarded=False)
    assert all(register.write(token, data) for token, data in writes)
    assert (register.token, register.data) == (writes[-1] if writes else (None, None))


def write(key: str, token: int, data: int, *, guarded: bool = True) -> Op:
    value = {"token": token, "data": data}
    return Op(0, "write", key, value if guarded else value | {"guarded": False})


class Arrivals:
    """Stands in for sleeping: a write arrives when the test says so."""

    def __init__(self) -> None:
        self.delays: list[float] = []
        self.events: list[asyncio.Event] = []

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self.delays.append(seconds)
        self.events.append(event)
        await event.wait()


async def test_a_write_that_arrives_late_is_judged_when_it_arrives() -> None:
    arrivals = Arrivals()
    resource = Resource(Seed(1), (0, 50), arrivals.sleep)
    outcomes: dict[tuple[int, bool], Outcome] = {}

    async def send(token: int, guarded: bool) -> None:
        outcomes[token, guarded] = await resource.write(write("a", token, token * 10, guarded=guarded))

    sent = [asyncio.create_task(send(token, guarded)) for token in (1, 2) for guarded in (True, False)]
    await asyncio.sleep(0)
    for position in (2, 3, 0, 1):  # the holder of token 2 comes first, token 1 late
        arrivals.events[position].set()
        await sent[position]
    assert outcomes[2, True] == outcomes[2, False] == outcomes[1, False] == Outcome("ok")
    assert outcomes[1, True] == Outcome("fail", error=STALE_TOKEN)
    assert await resource.read(Op(0, "read", "a")) == Outcome("ok", {"data": 20, "token": 2})
    assert await resource.read(Op(0, "read", "a", {"guarded": False})) == Outcome("ok", {"data": 10, "token": 1})


async def test_keys_do_not_share_registers() -> None:
    resource = Resource(Seed(1), (0, 0))
    assert await resource.write(write("a", 5, 1)) == Outcome("ok")
    assert await resource.write(write("b", 1, 2)) == Outcome("ok")
    assert await resource.read(Op(0, "read", "b")) == Outcome("ok", {"data": 2, "token": 1})
    assert await resource.read(Op(0, "read", "c")) == Outcome("ok", {"data": None, "token": None})


async def test_delays_come_from_the_seed_and_differ() -> None:
    async def delays(seed: int) -> list[float]:
        drawn: list[float] = []

        async def sleep(seconds: float) -> None:
            drawn.append(seconds)

        resource = Resource(Seed(seed), (5, 50), sleep)
        for data in range(40):
            await resource.write(write("a", 1, data))
        return drawn

    first = await delays(7)
    assert first == await delays(7) != await delays(8)
    assert all(0.005 <= seconds <= 0.050 for seconds in first)
    assert len(set(first)) > 10
