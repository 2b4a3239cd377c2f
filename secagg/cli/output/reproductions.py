"""What `secagg reproduce` shows: a progress bar on standard error, tables on standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from secagg.cli.output.terminal import standard_output
from secagg.experiments.runner.cells import Cell, Outcome
from secagg.experiments.runner.experiment import Done, Started
from secagg.reproductions.harness.figures import Figure, read_entries
from secagg.reproductions.harness.findings import (
    NUMBERS_HEAD,
    REMARKS_HEAD,
    remark_rows,
    stated_rows,
    verdicts,
)
from secagg.reproductions.harness.pages import reasons, rows, run_rows
from secagg.reproductions.harness.tables import Study, study_tables


@contextmanager
def progress(*, quiet: bool) -> Iterator[tuple[Started, Callable[[Cell, Outcome], None]]]:
    """Yield the two callbacks of `reproduce`: at the start, and after each cell. They show a bar.

    The bar measures estimated processor time, since cells take from milliseconds to minutes.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[cells]} of {task.fields[all]} cells{task.fields[failed]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=Console(stderr=True, highlight=False),
        disable=quiet,
    )
    failed = 0

    def started(cells: int, stored: int, seconds: float, seconds_stored: float) -> None:
        if stored:
            bar.console.print(f"[dim]{stored} of {cells} cells are stored already[/]")
        task = bar.add_task("computing", total=seconds, cells=stored, all=cells, failed="")
        bar.update(task, advance=seconds_stored)

    def finished(cell: Cell, outcome: Outcome) -> None:
        nonlocal failed
        failed += outcome.failed is not None
        task = bar.tasks[0]
        text = f", [yellow]{failed} failed[/]" if failed else ""
        bar.update(task.id, advance=cell.seconds, cells=task.fields["cells"] + 1, failed=text)

    def ignore(*_: object) -> None:
        """Show nothing."""

    if quiet:
        yield ignore, ignore
        return
    with bar:
        yield started, finished


def show_figure(figure: Figure, done: Done) -> None:
    """Print the figure's tables, and the paper's statements next to them.

    Only the page shows costs, and the runs of methods without problems.
    """
    out, entries = standard_output(), read_entries(figure, done.outcomes)
    out.print(f"\n[bold]{escape(figure.title)}[/]")
    for panel in figure.panels:
        head = [panel.across, *(f"{column:g}" for column in panel.columns)]
        for metric in figure.metrics:
            title = f"{metric.label}, {panel.name}"
            _print(out, title, head, rows(figure, entries, panel, metric))
        _print(out, f"runs, {panel.name}", head, run_rows(figure, entries, panel, troubled=True))
    if figure.stated:
        _print(out, "numbers in the paper's text", NUMBERS_HEAD, stated_rows(figure, entries))
    for words, came_out in verdicts(figure, entries):
        out.print(f"[bold]The paper:[/] {escape(words)}\n  {escape(came_out)}", soft_wrap=True)
    _print(out, "not judged", REMARKS_HEAD, remark_rows(figure, entries))
    for line in reasons(figure, entries):
        out.print(f"[yellow]failed: {escape(line)}[/]", soft_wrap=True)


def show_study(study: Study, done: Done) -> None:
    """Print the study's tables; only the page explains them."""
    out = standard_output()
    out.print(f"\n[bold]{escape(study.title)}[/]")
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
