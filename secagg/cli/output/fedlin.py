"""The tables of a FedLin result: what sites share, their coefficients, errors of predictions."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from secagg.reports.fedlin import (
    errors_table,
    shared_in_words,
    shared_table,
    sites_table,
    telling_in_words,
    units_in_words,
)
from secagg.reports.results import Block


def show_sites(out: Console, block: Block) -> None:
    """Print what sums over sites tell; a site's own coefficients are in its own result."""
    analysis, name, outcome = block.summary, block.title, block.summary["outcome"]
    head, rows = shared_table(analysis)
    if rows:
        how = shared_in_words(analysis)
        out.print(_table(f"{name}, of {outcome}: what sites share", head, rows, how))
    told = [f"in {units_in_words(analysis)}", telling_in_words(analysis)]
    caption = "; ".join(filter(None, told))
    title = "sites' own estimates" if rows else f"{name}, of {outcome}"
    out.print(_table(title, *sites_table(analysis), caption))
    out.print(_table("root mean squared errors of predictions", *errors_table(block)))


def _table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None
) -> Table:
    table = Table(title=escape(title), caption=caption)
    for i, name in enumerate(head):
        table.add_column(name, justify="right" if i else "left", no_wrap=not i)
    for row in rows:
        table.add_row(*map(escape, row))
    return table
