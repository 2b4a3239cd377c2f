"""The tables of a FedLin result: what sites share, their coefficients, errors of predictions."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from secagg.cli.output.tables import Table
from secagg.reports.fedlin import (
    coefficients_in_words,
    differ_in_words,
    errors_table,
    hypotheses_table,
    noise_in_words,
    shared_in_words,
    shared_table,
    sites_table,
)
from secagg.reports.results import Block


def show_sites(out: Console, block: Block) -> None:
    """Print the tables of sums over sites; each site's own result has its coefficients."""
    analysis, name, outcome = block.summary, block.title, block.summary["outcome"]
    head, rows = shared_table(analysis)
    if rows:
        caption = shared_in_words(analysis)
        out.print(_table(f"{name}, of {outcome}: what sites share", head, rows, caption))
    head, rows_of_tests = hypotheses_table(analysis)
    if rows_of_tests:
        out.print(_table("tests", head, rows_of_tests))
    title = "sites' own estimates" if rows else f"{name}, of {outcome}"
    of_estimates, of_errors = noise_in_words(analysis)
    out.print(_table(title, *sites_table(analysis), coefficients_in_words(analysis)))
    if of_estimates:
        out.print(escape(of_estimates))
    if differ := differ_in_words(analysis):
        out.print(escape(differ), style="yellow")
    errors = f"root mean squared errors of predictions, in the unit of {outcome}"
    out.print(_table(errors, *errors_table(block)))
    if of_errors:
        out.print(escape(of_errors))


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None
) -> Table:
    table = Table(title=escape(title), caption=caption)
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if i else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table
