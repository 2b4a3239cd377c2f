"""What `secagg reproduce` shows: a progress bar on standard error, tables on standard output."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from secagg.reproductions.harness.cells import Cell, Outcome
from secagg.reproductions.harness.experiment import Done, Started
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

WIDTH = 120  # of tables where standard output is a file


@contextmanager
def progress(*, quiet: bool) -> Iterator[tuple[Started, Callable[[Cell, Outcome], None]]]:
    """Yield what `reproduce` calls as it starts and as cells are done; they show a bar.

    The bar moves by estimated processor time, since cells take from milliseconds to minutes.
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

    def started(cells: int, there: int, seconds: float, seconds_there: float) -> None:
        if there:
            bar.console.print(f"[dim]{there} of {cells} cells are there already[/]")
        task = bar.add_task("computing", total=seconds, cells=there, all=cells, failed="")
        bar.update(task, advance=seconds_there)

    def finished(cell: Cell, outcome: Outcome) -> None:
        nonlocal failed
        failed += outcome.failed is not None
        task = bar.tasks[0]
        told = f", [yellow]{failed} failed[/]" if failed else ""
        bar.update(task.id, advance=cell.seconds, cells=task.fields["cells"] + 1, failed=told)

    def unseen(*_: object) -> None:
        """Show nothing."""

    if quiet:
        yield unseen, unseen
        return
    with bar:
        yield started, finished


def show_figure(figure: Figure, done: Done) -> None:
    """Print the figure's tables, and what the paper states beside them.

    Costs, and the runs of methods without trouble, are in the page only.
    """
    out, entries = _console(), read_entries(figure, done.outcomes)
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
    """Print the study's tables; what they are about is in the page only."""
    out = _console()
    out.print(f"\n[bold]{escape(study.title)}[/]")
    came, missing = study_tables(study, done.outcomes)
    for line in missing:
        out.print(f"[yellow]{escape(line)}[/]", soft_wrap=True)
    for each in () if came is None else came.tables:
        _print(out, each.title, each.head, each.rows)


def _console() -> Console:
    out = Console(highlight=False)
    return out if out.is_terminal else Console(highlight=False, width=WIDTH)


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
