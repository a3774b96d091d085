"""What a check takes for granted about the system and demands of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from checker.committed import Evidence


class OptionsError(ValueError):
    """A claim, a demand or a bound that the checker does not know: the caller's mistake."""


@dataclass(frozen=True, slots=True)
class Options:
    """Assumptions and demands.

    `clock_error`: the declared error of the clocks that measure leases, a fraction in [0, 1): a lease of 2 s may end
    `2 s * clock_error` early. `tokens_span_keys`: the system promises tokens that increase over all keys, not only
    within each. `tokens_dense`: it also promises that they leave no gaps, and the history holds all acquires.
    `coverage`: the least that the run must have exercised, by the names in `checker.COVERAGE_KEYS`.
    `recovery_s_max`: how long after healing the cluster may take to serve again, in seconds. `late_s_max`: how long a
    lock may live past its lease, in seconds, and `leader_changes_max` how often the leader may change (None: nothing is
    demanded). `evidence`: what the nodes say from inside.
    `settle`: operations of unknown outcome are settled from it, where it says what became of them (`checker.settle`).
    """

    clock_error: float = 0.0
    tokens_span_keys: bool = False
    tokens_dense: bool = False
    coverage: Mapping[str, int] = field(default_factory=dict)
    recovery_s_max: float = 30.0
    late_s_max: float | None = None
    leader_changes_max: int | None = None
    evidence: Evidence | None = None
    settle: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.clock_error < 1:
            raise OptionsError(
                f"clock_error is {self.clock_error}: a fraction from 0 up to, not including, 1 is needed"
            )
        if not self.recovery_s_max > 0:
            raise OptionsError(f"recovery_s_max is {self.recovery_s_max}: a positive number of seconds is needed")
