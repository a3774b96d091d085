"""Simulated seconds per second of one core, checks included. The goal: 100 with 5 nodes and 10 clients.

python -m bench.sim
"""

from __future__ import annotations

import time

from fencepost import simulation
from fencepost.scenario import Scenario
from nemesis.spec import FaultSpec
from workloads.spec import WorkloadSpec

GOAL = 100.0

CHECKS = ("linearizable", "mutual-exclusion", "fencing", "agreement", "recovery", "beliefs")
NS = 1_000_000_000

FAULTS = (
    FaultSpec("kill", "leader", every_ns=15 * NS, for_ns=3 * NS),
    FaultSpec("pause", "one", every_ns=20 * NS, for_ns=2 * NS),
)

#: (operations a second, faults)
LOADS: list[tuple[float, tuple[FaultSpec, ...]]] = [
    (5.0, ()),
    (20.0, ()),
    (20.0, FAULTS),
    (100.0, ()),
]


def main() -> None:
    print(f"sim: simulated seconds per CPU second, 5 nodes, 10 clients, checks included; goal: {GOAL:g}")
    print(f"{'ops/s':>6} {'faults':>6} {'operations':>10} {'simulated s':>11} {'CPU s':>6} {'sim s/s':>8}")
    for rate, faults in LOADS:
        workload = WorkloadSpec("mutex", 10, 3, rate, 1_000, (5, 40), wait_ms=200, overrun=0.02, timeout_ms=1_000)
        scenario = Scenario("bench", workload, 120 * NS, place="sim", nodes=5, seed=1, nemesis=faults, checks=CHECKS)
        started = time.process_time()
        run = simulation.simulate(scenario)
        took = time.process_time() - started
        simulated_s = run.events[-1].time / NS
        done = sum(run.results.operations.values())
        print(f"{rate:>6g} {len(faults):>6} {done:>10} {simulated_s:>11.1f} {took:>6.2f} {simulated_s / took:>8.0f}")


if __name__ == "__main__":
    main()
