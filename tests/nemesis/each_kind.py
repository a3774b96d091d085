"""Each kind of fault as a line of a scenario, without `at` and `for`: for tests that try all of them at every place.

Whoever adds a kind adds it to `ALONE`, and to one group of `TOGETHER`;
`tests/fencepost/test_every_fault.py` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

#: One after the other, each for a moment, on three nodes that serve before and after.
ALONE: Sequence[str] = (
    "fault: partition, shape: one",
    "fault: flapping, shape: one",
    "fault: delay, target: leader, delay: 300ms..400ms",
    "fault: throttle, target: leader, rate: 2KB/s",
    "fault: stall, target: leader",
    "fault: reset, target: leader",
    "fault: large-packets, target: leader, largest: 64",
    "fault: duplicate, target: leader",
    "fault: reorder, target: leader",
    "fault: corrupt, target: leader, share: 50%",
    "fault: kill, target: one",
    "fault: stop, target: one",
    "fault: crash-loop, target: one",
    "fault: pause, target: one",
    "fault: client-partition, target: one",
    "fault: client-pause, target: one",
    "fault: clock, target: one, jump: +500ms",
    "fault: clock, target: one, clock: wall, jump: +60s",
    "fault: disk-stall, target: leader",
    "fault: disk-slow, target: leader",
    "fault: disk-full, target: leader",
    "fault: disk-error, target: leader",
    "fault: disk-lose-unsynced, target: all",
    "fault: disk-flip, target: follower",
    "fault: disk-truncate, target: follower",
    "fault: disk-restore, target: follower, age: 1s",
    "fault: transfer, target: follower",
    "fault: membership, target: follower",
    "fault: starve, target: one, cpu: 20%",
    "fault: starve, target: one, memory: 256MiB",
)


@dataclass(frozen=True, slots=True)
class Group:
    """Faults that begin in this order and then last all together, on so many nodes. Those that need a cluster that
    serves to be shown come before those that leave none, and cuts before frames are copied or mixed up: sealed links
    let no probe through then."""

    nodes: int
    faults: Sequence[str]


TOGETHER: Mapping[str, Group] = MappingProxyType(
    {
        "links, clocks, clients": Group(
            3,
            (
                "fault: transfer, target: follower",
                "fault: clock, target: [n1], rate: 1.5",
                "fault: clock, target: [n2], clock: wall, jump: +60s",
                "fault: client-pause, target: one",
                "fault: client-partition, target: [n3]",
                "fault: partition, cuts: [[n1, n2]]",
                "fault: flapping, cuts: [[n2, n1]]",
                "fault: duplicate, target: all",
                "fault: reorder, target: all",
                "fault: delay, target: all, delay: 5ms..10ms",
                "fault: reset, target: all",
                "fault: throttle, target: all, rate: 2KB/s",
                "fault: large-packets, target: all, largest: 64",
                "fault: stall, target: all",
            ),
        ),
        "members, data": Group(
            5,
            (
                "fault: starve, target: [n1], cpu: 50%",
                "fault: starve, target: [n1], memory: 256MiB",
                "fault: corrupt, target: leader, share: 5%",
                "fault: membership, target: [n5]",
                "fault: disk-slow, target: [n1]",
                "fault: disk-restore, target: [n2], age: 1s",
                "fault: disk-flip, target: [n3]",
                "fault: disk-truncate, target: [n4]",
            ),
        ),
        "disks, processes": Group(
            8,
            (
                "fault: disk-full, target: [n1]",
                "fault: disk-error, target: [n2]",
                "fault: disk-stall, target: [n3]",
                "fault: disk-lose-unsynced, target: [n4, n5]",
                "fault: kill, target: [n6]",
                "fault: stop, target: [n7]",
                "fault: pause, target: [n8]",
                "fault: crash-loop, target: [n3]",
            ),
        ),
    }
)


def kind(line: str) -> str:
    return line.split(",")[0].removeprefix("fault: ")
