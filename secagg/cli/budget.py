"""The commands `secagg budget`: show, set and audit the privacy budgets in ledgers."""

from __future__ import annotations

from typing import Annotated

import typer

from secagg.cli.options import AdjacencyOption, AsJson, Ledgers, Party
from secagg.cli.printing import print_json

budget = typer.Typer(help="Show or set privacy budgets: what is spent and what is left.")


@budget.command(name="show")
def budget_show(
    where: Ledgers,
    delta: Annotated[
        float | None, typer.Option(help="Show the epsilon of all releases at this delta.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the releases, their cost, and what is left under each cap.

    --json adds epsilon at other deltas and by less exact accountants.
    """
    from secagg.cli import output  # noqa: PLC0415
    from secagg.runs import budgets  # noqa: PLC0415

    rows = budgets.show(where, delta, in_full=as_json)
    if as_json:
        print_json(rows)
    else:
        output.show_budget(rows)


@budget.command(name="set")
def budget_set(
    where: Ledgers,
    epsilon: Annotated[float, typer.Option(help="Largest epsilon that may be spent.")],
    delta: Annotated[float, typer.Option(help="At this delta.")],
    party: Party = None,
    dataset: Annotated[
        str | None, typer.Option(help="Data set, if neither the job nor the ledger names it.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="Period in days (default: for ever).")] = None,
    adjacency: Annotated[
        AdjacencyOption, typer.Option(help="Adjacency of data sets.")
    ] = AdjacencyOption.ADD_REMOVE,
    as_json: AsJson = False,
) -> None:
    """Set the cap of a data set, before its first run or later; earlier caps stay on record."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.contracts.noise import Adjacency  # noqa: PLC0415
    from secagg.privacy.accounting.composition import Cap  # noqa: PLC0415
    from secagg.runs import budgets  # noqa: PLC0415

    cap = Cap(epsilon, delta, days, Adjacency(adjacency))
    row = budgets.set_cap(where, party, dataset, cap)
    if as_json:
        print_json(row)
    else:
        output.show_budget([row])


@budget.command(name="history")
def budget_history(
    where: Ledgers,
    party: Party = None,
    session: Annotated[
        str | None, typer.Option(help="Only sessions whose names begin with this.")
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only refusals by rules.")] = False,
    as_json: AsJson = False,
) -> None:
    """List entries and their cost, re-uses, cohorts, caps and decisions, oldest first."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.runs import ledger_history  # noqa: PLC0415

    rows = ledger_history.history(where, party, session, refused=refused)
    if as_json:
        print_json(rows)
    else:
        output.show_history(rows, party, session, refused=refused)
