"""What the command line prints: progress on standard error, tables on standard output."""

from secagg.console.adapted import show_adapted, show_doubts
from secagg.console.ledgers import show_budget, show_history
from secagg.console.plans import show_plan
from secagg.console.rounds import progress
from secagg.console.runs import show_run, warnings
from secagg.console.terminal import number

__all__ = [
    "number",
    "progress",
    "show_adapted",
    "show_budget",
    "show_doubts",
    "show_history",
    "show_plan",
    "show_run",
    "warnings",
]
