"""Linearizability of any object that a model describes, by search, under hard budgets.

    verdict = search.check(calls, "reentrant-mutex", Budget(seconds=60, megabytes=2000))

The exact lock checker needs tokens; this doesn't, but the problem is NP-complete: a search may have to give up, and
then says `unknown`, why, and how far it came.
"""

from checker.search.budget import Budget, check
from checker.search.calls import Call
from checker.search.models import MODELS, Model, ModelError, create

__all__ = ["MODELS", "Budget", "Call", "Model", "ModelError", "check", "create"]
