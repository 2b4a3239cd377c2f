"""What `secagg experiment` shows on standard output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape

from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import standard_output
from secagg.evidence.numbers import counted
from secagg.reports.experiments.metrics import all_points, place_of
from secagg.reports.experiments.page import number_rows, recommendation_lines, refused_by_reason


def show(summary: Mapping[str, Any]) -> None:
    """Print the numbers, what was refused or failed, and the recommendation."""
    out = standard_output()
    out.print()
    out.print(f"[bold]{escape(summary['title'])}[/]")
    head, rows = number_rows(summary, costs=False)
    table = Table()
    for i, name in enumerate(head):
        table.add_column(escape(name), justify="left" if i == 0 else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)
    _show_refused(summary)
    for curve in summary["curves"]:
        for point in all_points(curve):
            for line in point["failed"]:
                text = f"failed: {curve['line']}, {place_of(point)}: {line}"
                out.print(f"[yellow]{escape(text)}[/]")
    for line in recommendation_lines(summary):
        out.print(f"[bold]{escape(line)}[/]")
    if not summary["public"]:
        out.print("[yellow]A choice made from these numbers is not private: see the page.[/]")


def _show_refused(found: Mapping[str, Any]) -> None:
    for (line, why), places in refused_by_reason(found).items():
        text = f"refused: {line}, {places}: {why}"
        standard_output().print(f"[yellow]{escape(text)}[/]")


def show_plan(estimate: Mapping[str, Any], processes: int) -> None:
    """Print how many cells there are, and about how long they take."""
    out = standard_output()
    table = Table("curve", "points", "runs", "seconds a run")
    for row in estimate["curves"]:
        seconds = "failed" if row["seconds"] is None else f"{row['seconds']:.2f}"
        table.add_row(escape(row["line"]), str(row["points"]), str(row["runs"]), seconds)
    out.print(table)
    _show_refused(estimate)
    for row in estimate["curves"]:
        if row["failed"]:
            text = f"failed: {row['line']}: {row['failed']}"
            out.print(f"[yellow]{escape(text)}[/]")
    minutes = estimate["seconds"] / 60 / processes
    out.print(
        f"{counted(estimate['cells'], 'cell')}, about {minutes:.1f} minutes with "
        f"{counted(processes, 'process', 'processes')}"
    )
