"""Who belongs to the cluster, and what a majority of them is.

Membership changes one server at a time (Ongaro 2014, section 4.1), so that any majority before a change and any
majority after it have a node in common. A new server is first a learner: it gets the log but doesn't count.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from cluster.node.message import Message


class Member(Message, frozen=True):
    """`address` is "HOST:PORT" where other nodes find it, unless they were told otherwise; empty: they were told."""

    id: str
    address: str
    voter: bool


class Members(Message, frozen=True, dict=True, gc=True):
    """A configuration, in order of the nodes' names. It holds from the moment a node has it in its log."""

    all: tuple[Member, ...]

    @classmethod
    def of_voters(cls, addresses: Mapping[str, str]) -> Members:
        return cls(tuple(Member(id, addresses[id], True) for id in sorted(addresses)))

    def __contains__(self, id: str) -> bool:
        return any(member.id == id for member in self.all)

    def get(self, id: str) -> Member | None:
        return next((member for member in self.all if member.id == id), None)

    def votes(self, id: str) -> bool:
        return any(member.id == id and member.voter for member in self.all)

    @cached_property
    def voters(self) -> tuple[str, ...]:
        return tuple(member.id for member in self.all if member.voter)

    @property
    def quorum(self) -> int:
        return len(self.voters) // 2 + 1

    def majority(self, reached: Mapping[str, int]) -> int:
        """The largest number that a majority of the voters has reached; who isn't named has reached 0. With no voters
        at all (a node that was not told its cluster yet) nothing is reached."""
        numbers = sorted((reached.get(voter, 0) for voter in self.voters), reverse=True)
        return numbers[self.quorum - 1] if numbers else 0

    def with_member(self, member: Member) -> Members:
        """With `member` added, or changed."""
        rest = (other for other in self.all if other.id != member.id)
        return Members(tuple(sorted((*rest, member), key=lambda one: one.id)))

    def with_learner(self, member: Member) -> Members:
        """With `member` as one that learns; one that already votes goes on voting, under the address that is given."""
        return self.with_member(Member(member.id, member.address, self.votes(member.id)))

    def without(self, id: str) -> Members:
        return Members(tuple(member for member in self.all if member.id != id))
