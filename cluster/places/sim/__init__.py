"""The place `sim`: the cluster and everything around it in one process, under virtual time.

loop       the event loop whose time is virtual
network    links between nodes, connections of clients
node       one node: a core between a disk, a clock and the network
disk       bytes that a crash may tear; clocks: readings that can be turned; draws: a random stream for everything
place      all of them as a place
"""

from cluster.places.sim.place import SimPlace

__all__ = ["SimPlace"]
