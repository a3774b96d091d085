"""Every state of a small cluster, within bounds: what no number of random runs can say.

Problem. Simulation tries what its dice give. A sequence of ten particular steps among thousands it may never meet; and
when it meets one, a fault lies at the end of a long story. The core of a node is pure, so for a cluster of two or three
nodes, two clients and one key *all* orders of a bounded number of things that may happen can be walked through.

How. Breadth first (`search`), so that all shorter ones are done when a depth is reached, and the first violation has
the shortest trace. The nodes are the very cores of `lockd`, or of a mutant; what is nondeterministic around them is
explicit (`space`): deliveries, losses, crashes, restarts, time-outs, ends of leases, disks, clients. After each step
the invariants of Raft and of the lock are checked (`promises`).

Why so few states are enough, and none is missed by that:

1. *States are hashed.* Two ways to the same state are continued once. A state is compared in full, never by a digest,
   and `frozen` compares all attributes of a core, so different states are never taken for the same.
2. *Time is relative.* A core compares deadlines with now and nothing else, so only their order matters. Which deadline
   is over is an event; a node's own time stands at 0 (`nodes`). States that differ only in when they happen are one.
3. *A node's step depends on nothing but that node.* Steps of single nodes are computed once and put together.
4. *Silence waits for a question.* That a follower has heard nothing of its leader for long is looked at only when a
   vote is asked of it, and hearing of the leader undoes it. So it is tried only where the next message is such a
   question: any other order of the same events leads to the same states.
5. *Answers reach clients at once,* and clients act when they like: one that hears late acts late.

What it does not cover: more than the bounds; clocks that are so wrong that they break what leases rest on; torn writes
(the log's format is the simulation's matter); the liveness of anything. `Bounds` and the depth that was completed are
what a result says, and it says nothing beyond them.
"""

from cluster.explore.promises import Violation
from cluster.explore.search import BeginningOutOfBounds, Explored, elect, explore
from cluster.explore.space import Bounds, Event, Space
from cluster.explore.story import Line, lines, mermaid

__all__ = [
    "BeginningOutOfBounds",
    "Bounds",
    "Event",
    "Explored",
    "Line",
    "Space",
    "Violation",
    "elect",
    "explore",
    "lines",
    "mermaid",
]
