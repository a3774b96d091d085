"""What was found when a host was looked at."""

from __future__ import annotations

from dataclasses import dataclass

from cluster.image.content import Target, machine_name


@dataclass(frozen=True, slots=True)
class Look:
    """What a host has. `rights`: why its user can't do what root may; empty if it can. `filters`: the packet filters'
    tools. `memory`: why a process' memory can't be written; empty if it can. `free`: nobody uses the node's port.
    `harness`: the address that we come from, as the host sees it."""

    python: tuple[int, ...]
    machine: str
    release: str
    uid: int
    home: str
    harness: str
    sudo: bool
    rights: str
    filters: tuple[str, ...]
    memory: str
    free: bool

    @property
    def target(self) -> Target:
        return Target((self.python[0], self.python[1]), machine_name(self.machine))
