"""Mutants that break what leadership rests on."""

from __future__ import annotations

from typing import Any

from cluster.node.core import Core
from cluster.node.messages import HardState, VoteRequest
from cluster.node.progress import Progress
from cluster.node.raft import Raft, Role


class VoteNotPersisted(Core):
    class raft_type(Raft):  # noqa: N801
        def _state_to_save(self) -> HardState:
            return HardState(self.term, None)


class TermNotPersisted(Core):
    """What is written is the term that the node started with, so that is where it starts again."""

    class raft_type(Raft):  # noqa: N801
        def __init__(self, *parts: Any, **named: Any) -> None:
            super().__init__(*parts, **named)
            self._found_term = self.term

        def _state_to_save(self) -> HardState:
            return HardState(self._found_term, self.hard_state.vote)


class VotesTwice(Core):
    class raft_type(Raft):  # noqa: N801
        def _may_vote_for(self, sender: str, request: VoteRequest) -> bool:
            recent = (request.last_term, request.last_index) >= (self.log.last_term, self.log.last_index)
            return recent and request.term >= self.term


class CountsVotesTwice(Core):
    """A copy of a vote counts like another node's."""

    class raft_type(Raft):  # noqa: N801
        def _campaign(self, *, pre: bool, transfer: bool = False) -> None:
            self._counted = 0
            super()._campaign(pre=pre, transfer=transfer)

        def _count_vote(self, voter: str) -> None:
            self._counted += 1
            if self._counted >= self.members.quorum:
                self._votes |= set(self.members.voters)
            super()._count_vote(voter)


class CommitWithMinority(Core):
    class raft_type(Raft):  # noqa: N801
        def _majority(self, reached: dict[str, int]) -> int:
            return max(reached.values())


class NeverStepsDown(Core):
    """A leader that hears of a later term, or from no majority, goes on; any answer counts as one to it."""

    class raft_type(Raft):  # noqa: N801
        def _quorum_heard(self) -> bool:
            return True

        def _heard_from(self, sender: str, term: int, round: int) -> Progress | None:
            leads = self.role is Role.LEADER
            return super()._heard_from(sender, self.term if leads else term, round)


class NoPreVote(Core):
    """A node raises its term without asking first whether it could win."""

    class raft_type(Raft):  # noqa: N801
        def _campaign(self, *, pre: bool, transfer: bool = False) -> None:
            super()._campaign(pre=False, transfer=transfer)


class NoNoop(Core):
    """A leader begins its term with no entry of its own, and believes that it knows what is committed."""

    class raft_type(Raft):  # noqa: N801
        def _open_term(self) -> None:
            self.term_start = self.commit


class OlderTermCommit(Core):
    class raft_type(Raft):  # noqa: N801
        def _may_commit(self, index: int) -> bool:
            return True
