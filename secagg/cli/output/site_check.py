"""What `secagg site check` prints: each site's columns, and what it would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from secagg.cli.output import terminal
from secagg.cli.output.job import show_approval, show_rules
from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import alike
from secagg.evidence.numbers import count, counted, listing, percent, significant
from secagg.jobs.column_check import ColumnCheck
from secagg.runs.checks.all_sites_check import AllSitesCheck
from secagg.runs.checks.home_check import HomeCheck
from secagg.runs.checks.site_check import SiteCheck


def show_site_checks(
    checks: Sequence[SiteCheck],
    together: AllSitesCheck | None,
    draft: Path | None,
    at_home: HomeCheck | None = None,
) -> None:
    """Print one table for each site and what it would refuse, then what all sites show.

    at_home: how the job stands at the home, if the check is of a home
    """
    out = terminal.standard_output()
    for check in checks:
        title = (
            f"{escape(check.site)}: {counted(check.rows, 'row')}, {count(check.complete)} complete"
        )
        if check.persons is not None:
            title += f", {counted(check.persons, 'person')}"
        table = Table(title=title)
        table.add_column("column")
        for name in ("missing", "unreadable", "out of bounds"):
            table.add_column(name, justify="right")
        table.add_column("quartiles, or levels")
        noted = any(column.note for column in check.columns)
        if noted:
            table.add_column("note")
        for column in check.columns:
            numbers = count(column.missing), count(column.unreadable), _outside(column)
            note = [column.note] if noted else []
            table.add_row(escape(column.name), *numbers, escape(_values(column)), *note)
        out.print(table)
        if check.surplus:
            out.print(
                f"{check.surplus} of the complete records are surplus: their person has more than "
                f"privacy.records_per_person. {check.complete - check.surplus} are used, the first "
                "ones of each person."
            )
        for remark in check.remarks:
            out.print(f"! {escape(remark)}", style="yellow")
        out.print()
    if at_home is not None:
        show_rules(out, at_home.own_rules)
        show_approval(out, at_home)
    if draft is not None:
        out.print(f"draft    {escape(str(draft))}")
    out.print("Nothing was sent, and nothing was written to a ledger.")
    out.print()
    if together is not None:
        for remark in together.remarks:
            out.print(f"! {escape(remark)}", style="yellow")
    _show_verdict(out, checks, together)


def _show_verdict(
    out: Console, checks: Sequence[SiteCheck], together: AllSitesCheck | None
) -> None:
    """Print why sites would refuse and a run would stop; last, which sites would take part."""
    reasons = [
        (check.site, reason)
        for check in checks
        for reason in (*([check.problem] if check.problem else []), *check.refusals)
    ]
    for sites, reason in alike(reasons):
        out.print(f"{escape(sites)} would refuse: {escape(reason)}", style="bold red")
    mistakes = [(check.site, mistake) for check in checks for mistake in check.mistakes]
    if together is not None:
        mistakes += [("the files", mistake) for mistake in together.mistakes]
    for sites, mistake in alike(mistakes):
        out.print(f"wrong records, {escape(sites)}: {escape(mistake)}", style="bold red")
    if mistakes:
        out.print(
            "Under noise, a run would go on: it leaves out cells that cannot be read, and sets "
            "values outside the bounds to the nearer bound. By stopping, it would reveal something "
            "about records. Correct the file or the job first.",
            style="bold red",
        )
    if together is not None and together.problem:
        out.print(f"a run would stop: {escape(together.problem)}", style="bold red")
    for reason in () if together is None else together.refusals:
        out.print(f"a run would end after its first sum: {escape(reason)}", style="bold red")
    taking_part = [check.site for check in checks if check.passes]
    with_mistakes = " with records in order" if mistakes else ""
    if not taking_part:
        out.print(f"no site would take part{with_mistakes}", style="bold red")
    elif len(taking_part) < len(checks):
        number = f"{len(taking_part)} of {counted(len(checks), 'site')}"
        out.print(
            f"{number} would take part{with_mistakes}: {escape(listing(taking_part))}",
            style="bold yellow",
        )
    elif together is not None and (together.problem or together.refusals or together.mistakes):
        out.print("each site would take part, but no run would end well", style="bold red")
    else:
        out.print(f"would take part: {escape(listing(taking_part))}", style="bold green")


def _values(column: ColumnCheck) -> str:
    """Return the quartiles of a column of numbers, or how many cells have each level."""
    if column.levels:
        return ", ".join(f"{level}={count(number)}" for level, number in column.levels.items())
    return ", ".join(significant(x, 3) for x in column.quartiles)


def _outside(column: ColumnCheck) -> str:
    if not column.values_outside:
        return "0"
    return f"{count(column.values_outside)} ({percent(column.outside)})"
