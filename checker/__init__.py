"""Decides from a history whether a lock service kept its promises, and says why. Usable alone.

    history = checker.read("history.jsonl")
    results = checker.check(history, ["linearizable", "fencing"], checker.Options(clock_error=0.01))
    print(results.verdict, results.exit_code)
    for finding in results.claims["fencing"].findings:
        print(finding.message)

A file that is no history raises HistoryError, a claim that is not known OptionsError; both say what would do.
"""

from checker.check import CLAIMS, DEFAULT_CLAIMS, EXCUSABLE, NEVER_INVALID, Engine, check, check_file
from checker.committed import Applied, Evidence, Proposal
from checker.coverage import COVERAGE_KEYS
from checker.history import Event, History, HistoryError, HistoryWriter, Operation, read
from checker.options import Options, OptionsError
from checker.timeline import Timeline
from checker.verdict import COVERAGE, CitedOperation, ClaimResult, Fault, Finding, Results, Verdict

__all__ = [
    "CLAIMS",
    "COVERAGE",
    "COVERAGE_KEYS",
    "DEFAULT_CLAIMS",
    "EXCUSABLE",
    "NEVER_INVALID",
    "Applied",
    "CitedOperation",
    "ClaimResult",
    "Engine",
    "Event",
    "Evidence",
    "Fault",
    "Finding",
    "History",
    "HistoryError",
    "HistoryWriter",
    "Operation",
    "Options",
    "OptionsError",
    "Proposal",
    "Results",
    "Timeline",
    "Verdict",
    "check",
    "check_file",
    "read",
]
