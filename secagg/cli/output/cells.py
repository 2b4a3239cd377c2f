"""The progress bar of `secagg experiment` and `python -m reproductions`, on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from secagg.cli.output.terminal import standard_error
from secagg.experiments.runner.cells import Cell, Outcome
from secagg.experiments.runner.experiment import Started


@contextmanager
def progress(*, quiet: bool) -> Iterator[tuple[Started, Callable[[Cell, Outcome], None]]]:
    """Yield the callbacks of `compute_experiment`, at the start and after each cell: a bar.

    The bar measures estimated processor time, since cells take from milliseconds to minutes.
    """
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[cells]} of {task.fields[all]} cells{task.fields[failed]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(elapsed_when_finished=False),
        console=standard_error(),
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
