"""One scenario, again and again: how often does it show what it shows?"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from cluster.words import counted
from fencepost.exits import Exit, worst
from fencepost.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Repetition:
    """The outcomes of all runs that were made; fewer than `times` when the user interrupted."""

    times: int
    outcomes: tuple[Outcome, ...]

    @property
    def exit(self) -> Exit:
        """The worst of all runs: one violation is enough."""
        return worst(outcome.exit for outcome in self.outcomes)

    @property
    def violated(self) -> int:
        return sum(outcome.exit is Exit.VIOLATED for outcome in self.outcomes)

    @property
    def claims(self) -> Counter[str]:
        """In how many runs each claim was violated."""
        return Counter(
            claim for outcome in self.outcomes if outcome.results is not None for claim in outcome.results.violated
        )

    def words(self) -> str:
        if not self.outcomes:
            return "no run was made"
        share = self.violated / len(self.outcomes)
        rate = f"{self.violated} of {counted(len(self.outcomes), 'run')} violated a claim ({share:.0%})"
        claims = ", ".join(f"{claim} {count}" for claim, count in self.claims.most_common())
        failed = sum(outcome.exit is Exit.HARNESS for outcome in self.outcomes)
        return rate + (f": {claims}" if claims else "") + (f"; the harness failed in {failed}" if failed else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "times": self.times,
            "runs": len(self.outcomes),
            "violated": self.violated,
            "claims": dict(self.claims),
            "exit_code": int(self.exit),
            "results": [outcome.to_dict() for outcome in self.outcomes],
        }
