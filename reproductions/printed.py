"""What `python -m reproductions` shows: tables on standard output."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reproductions.harness.figures import Figure, read_entries
from reproductions.harness.findings import (
    NUMBERS_HEAD,
    REMARKS_HEAD,
    remark_rows,
    stated_rows,
    verdicts,
)
from reproductions.harness.pages import reasons, rows, run_rows
from reproductions.harness.tables import Study, study_tables
from secagg.cli.output.terminal import standard_output
from secagg.experiments.runner.experiment import Done


def show_figure(figure: Figure, done: Done) -> None:
    """Print the figure's tables, and the paper's statements next to them.

    Only the page shows costs, and the runs of methods without problems.
    """
    out, entries = standard_output(), read_entries(figure, done.outcomes)
    out.print()
    out.print(f"[bold]{escape(figure.title)}[/]")
    for panel in figure.panels:
        head = [panel.across, *(f"{column:g}" for column in panel.columns)]
        for metric in figure.metrics:
            title = f"{metric.label}, {panel.name}"
            _print(out, title, head, rows(figure, entries, panel, metric))
        _print(out, f"runs, {panel.name}", head, run_rows(figure, entries, panel, troubled=True))
    if figure.stated:
        _print(out, "numbers in the paper's text", NUMBERS_HEAD, stated_rows(figure, entries))
    for words, came_out in verdicts(figure, entries):
        out.print(f"[bold]The paper:[/] {escape(words)}", soft_wrap=True)
        out.print(f"  {escape(came_out)}", soft_wrap=True)
    _print(out, "not judged", REMARKS_HEAD, remark_rows(figure, entries))
    for line in reasons(figure, entries):
        out.print(f"[yellow]failed: {escape(line)}[/]", soft_wrap=True)


def show_study(study: Study, done: Done) -> None:
    """Print the study's tables; only the page explains them."""
    out = standard_output()
    out.print()
    out.print(f"[bold]{escape(study.title)}[/]")
    results, missing = study_tables(study, done.outcomes)
    for line in missing:
        out.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)
    for table in () if results is None else results.tables:
        _print(out, table.title, table.head, table.rows)


def _print(out: Console, title: str, head: Sequence[str], body: Sequence[Sequence[str]]) -> None:
    if not body:
        return
    table = Table(title=title or None)
    table.add_column(head[0])
    for name in head[1:]:
        table.add_column(name, justify="right")
    for row in body:
        table.add_row(*map(escape, row))
    out.print(table)
