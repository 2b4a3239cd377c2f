"""What `secagg site check` prints: each site's columns, and what it would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from secagg.cli.output import terminal
from secagg.cli.output.job import show_approval, show_rules
from secagg.cli.output.tables import Table
from secagg.jobs.column_check import ColumnCheck
from secagg.runs.checks.folder_check import FolderCheck
from secagg.runs.checks.home_check import HomeCheck
from secagg.runs.checks.site_check import SiteCheck


def show_site_checks(
    checks: Sequence[SiteCheck],
    together: FolderCheck | None,
    draft: Path | None,
    at_home: HomeCheck | None = None,
) -> None:
    """Print one table for each site and what it would refuse, then what all sites show.

    at_home: how the job stands at the home, if the check is of a home
    """
    out = terminal.standard_output()
    for check in checks:
        title = f"{escape(check.site)}: {check.rows} rows, {check.complete} complete"
        if check.persons is not None:
            title += f", {check.persons} persons"
        table = Table(title=title)
        table.add_column("column")
        for name in ("missing", "unreadable", "out of bounds", "quartiles", "note"):
            table.add_column(name, justify="left" if name == "note" else "right")
        for column in check.columns:
            table.add_row(
                escape(column.name), str(column.missing), str(column.unreadable),
                _outside(column), ", ".join(f"{x:.3g}" for x in column.quartiles), column.note,
            )  # fmt: skip
        out.print(table)
        if check.surplus:
            out.print(
                f"{check.surplus} of the complete records are surplus: their person has more than "
                f"privacy.records_per_person. {check.complete - check.surplus} are used, the first "
                "ones of each person."
            )
        for remark in check.remarks:
            out.print(f"! {escape(remark)}", style="yellow")
        for reason in (*([check.problem] if check.problem else []), *check.refusals):
            out.print(f"would refuse: {escape(reason)}", style="bold red")
        if check.passes:
            out.print("would take part")
    if together is not None:
        _show_together(out, together)
    if at_home is not None:
        show_rules(out, at_home.own_rules)
        show_approval(out, at_home)
    out.print("Nothing was sent, and nothing was written to a ledger.")
    if draft is not None:
        out.print(f"draft    {escape(str(draft))}")


def _show_together(out: Console, together: FolderCheck) -> None:
    for remark in together.remarks:
        out.print(f"! {escape(remark)}", style="yellow")
    if together.problem:
        out.print(f"a run would stop: {escape(together.problem)}", style="bold red")
    for reason in together.refusals:
        text = f"a run would end after its first sum: {reason}"
        out.print(escape(text), style="bold red")


def _outside(column: ColumnCheck) -> str:
    return f"{column.values_outside} ({column.outside:.1%})" if column.values_outside else "0"
