"""What the command line prints: progress on standard error, tables on standard output.

Each name is imported when it is first used: a command loads what it prints, and nothing else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from secagg.cli.output.progress import progress  # not later: its module has the same name

if TYPE_CHECKING:
    from secagg.cli.output.budgets import show_budget, show_history
    from secagg.cli.output.job import show_home_check, show_job
    from secagg.cli.output.new_site import show_adapted, show_doubts
    from secagg.cli.output.plan import show_plan
    from secagg.cli.output.query import show_query
    from secagg.cli.output.run import show_run, warnings
    from secagg.cli.output.site_check import show_site_checks

__all__ = [
    "progress",
    "show_adapted",
    "show_budget",
    "show_doubts",
    "show_history",
    "show_home_check",
    "show_job",
    "show_plan",
    "show_query",
    "show_run",
    "show_site_checks",
    "warnings",
]

_HOMES = {
    "show_budget": "budgets",
    "show_history": "budgets",
    "show_home_check": "job",
    "show_job": "job",
    "show_adapted": "new_site",
    "show_doubts": "new_site",
    "show_plan": "plan",
    "show_query": "query",
    "show_run": "run",
    "warnings": "run",
    "show_site_checks": "site_check",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
