"""Decides from a history whether a lock service kept its promises, and says why. Usable alone.

    history = checker.read(path)                                      # History; raises HistoryError
    results = checker.check(history, ["linearizable", "fencing"], checker.Options(clock_error=0.01))
    results.verdict, results.exit_code, results.claims["fencing"].findings[0].message

`check(history: History | Iterable[Event], claims: Iterable[str], options: Options = Options()) -> Results` raises
OptionsError for a claim that it does not know, HistoryError for events that are no history.
"""

from checker.options import Options, OptionsError
from checker.verdict import CitedOperation, ClaimResult, Fault, Finding, Results, Verdict

__all__ = [
    "CitedOperation",
    "ClaimResult",
    "Fault",
    "Finding",
    "Options",
    "OptionsError",
    "Results",
    "Verdict",
]
