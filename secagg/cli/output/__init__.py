"""What the command line prints: progress on standard error, tables on standard output."""

from secagg.cli.output.budgets import show_budget, show_history
from secagg.cli.output.job import show_home_check, show_job
from secagg.cli.output.new_site import show_adapted, show_doubts
from secagg.cli.output.plan import show_plan
from secagg.cli.output.progress import progress
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
