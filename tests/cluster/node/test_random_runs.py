"""Random runs of the pure core: faults of every kind, the invariants after every step, and the checker's verdict."""

from __future__ import annotations

import random

import pytest

import checker
from cluster.node.core import Core
from tests.cluster.node.simulated import SimulatedClient, SimulatedCluster, check_log_matching

SAFETY = ("linearizable", "mutual-exclusion", "fencing")


class Locker:
    """Acquires, holds (sometimes past the lease), releases (sometimes twice, over a second connection), looks around;
    now and then it vanishes in the middle and comes back as another process."""

    def __init__(self, net: SimulatedCluster, process: int) -> None:
        self.net, self.process = net, process
        self.random = random.Random(f"locker/{process}/{net.random.random()}")
        self.connect()

    def connect(self) -> None:
        self.client = SimulatedClient(self.net, self.process, self.random.choice(list(self.net.nodes)))
        self.process += 100
        self.later(self.go)

    def later(self, action: object, ms: int = 200) -> None:
        client = self.client
        self.net.after(self.random.randrange(1, ms) * 1_000_000, lambda: client is self.client and action())  # type: ignore[operator]

    def go(self) -> None:
        key = self.random.choice("ab")
        if self.random.random() < 0.25:
            self.client.inspect(key, lambda type, _: self.again(type))
            return
        self.client.acquire(
            key, self.random.choice((150, 400, 1500)), self.random.choice((0, 0, 300, 2000)),
            lambda type, token: self.acquired(key, type, token),
        )  # fmt: skip
        if self.random.random() < 0.05:
            self.later(self.vanish, 10)

    def acquired(self, key: str, type: str, token: int | None) -> None:
        if type != "ok" or token is None:
            self.again(type)
            return
        if self.random.random() < 0.3:
            twin = SimulatedClient(self.net, self.process + 50, self.random.choice(list(self.net.nodes)))
            self.process += 100
            self.later(lambda: twin.release(key, token, lambda *_: None), 300)
        self.later(lambda: self.client.release(key, token, lambda type, _: self.again(type)), 300)

    def again(self, type: str) -> None:
        if type == "info":
            self.vanish()
        else:
            self.later(self.go)

    def vanish(self) -> None:
        client, self.client = self.client, None  # type: ignore[assignment]
        if client is not None:
            client.close()
            self.connect()


class Chaos:
    """One disturbance after another, each healed before long."""

    def __init__(self, net: SimulatedCluster, seed: int) -> None:
        self.net = net
        self.random = random.Random(f"chaos/{seed}")
        net.after(500_000_000, self.strike)

    def strike(self) -> None:
        net, nodes = self.net, list(self.net.nodes.values())
        leader = net.leader()
        victim = leader if leader is not None and self.random.random() < 0.5 else self.random.choice(nodes)
        duration = self.random.randrange(200, 2500) * 1_000_000
        match self.random.randrange(5):
            case 0 if victim.core is not None:
                victim.crash()
                net.after(duration, victim.start)
            case 1 if victim.core is not None:
                victim.pause()
                net.after(duration, victim.resume)
            case 2:
                net.isolate(victim.id)
                net.after(duration, net.cuts.clear)
            case 3:
                others = [(node, victim.id) for node in net.nodes if node != victim.id]
                net.cuts |= set(self.random.sample(others, 2))
                net.after(duration, net.cuts.clear)
            case _:
                net.loss, net.copies = 0.2, 0.2
                net.after(duration, self._calm)
        net.after(duration + self.random.randrange(10, 800) * 1_000_000, self.strike)

    def _calm(self) -> None:
        self.net.loss = self.net.copies = 0.0


def run(
    seed: int, core_type: type[Core] = Core, *, size: int = 5, seconds: int = 20, watch: bool = True
) -> SimulatedCluster:
    net = SimulatedCluster(size, seed, core_type, watch=watch)
    for process in range(6):
        Locker(net, process)
    Chaos(net, seed)
    net.run_for(seconds * 1000)
    return net


@pytest.mark.parametrize("seed", range(25))
def test_the_true_node_keeps_every_promise(seed: int) -> None:
    net = run(seed, size=3 + 2 * (seed % 2))
    check_log_matching(net)
    results = checker.check(net.history, SAFETY, checker.Options(tokens_span_keys=True))
    assert results.verdict == "valid", results.to_dict()
    assert len(net.leaders) >= 2
    assert net.last_token >= 30
    assert net.expired


def test_a_seed_gives_the_same_run_again() -> None:
    assert run(3, seconds=5).history == run(3, seconds=5).history
