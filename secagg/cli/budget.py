"""The commands 'secagg budget': what was released of each site's records, and what may still be."""

from __future__ import annotations

from typing import Annotated

import typer

from secagg.cli.options import (
    AdjacencyOption,
    AsJson,
    Ledgers,
    Party,
    print_json,
)

budget = typer.Typer(help="What was released of each site's records, and what may still be.")


@budget.command(name="show")
def budget_show(
    where: Ledgers,
    delta: Annotated[
        float | None, typer.Option(help="Tell the epsilon of everything at this delta.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what was released, what it cost, and what is left under each cap.

    With --json also epsilon at other deltas, and by looser accountants.
    """
    from secagg.cli import output  # noqa: PLC0415
    from secagg.runs import budgets  # noqa: PLC0415

    rows = budgets.show(where, budgets.DELTA if delta is None else delta, in_full=as_json)
    if as_json:
        print_json(rows)
    else:
        output.show_budget(rows)


@budget.command(name="set")
def budget_set(
    where: Ledgers,
    epsilon: Annotated[float, typer.Option(help="Most that may be spent.")],
    delta: Annotated[float, typer.Option(help="At this delta.")],
    party: Party = None,
    dataset: Annotated[
        str | None, typer.Option(help="Which data set, where neither job nor ledger tells.")
    ] = None,
    days: Annotated[float | None, typer.Option(help="In so many days (default: ever).")] = None,
    adjacency: Annotated[
        AdjacencyOption, typer.Option(help="Of data sets.")
    ] = AdjacencyOption.ADD_REMOVE,
    as_json: AsJson = False,
) -> None:
    """Set the cap of a data set, before its first run or later; earlier caps stay on record."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.contracts.noise import Adjacency  # noqa: PLC0415
    from secagg.privacy.accounting.budget import Cap  # noqa: PLC0415
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
        str | None, typer.Option(help="Only of sessions whose names begin so.")
    ] = None,
    refused: Annotated[bool, typer.Option("--refused", help="Only what rules refused.")] = False,
    as_json: AsJson = False,
) -> None:
    """List entries and what each cost, re-uses, cohorts, caps and decisions, oldest first."""
    from secagg.cli import output  # noqa: PLC0415
    from secagg.runs import ledger_history  # noqa: PLC0415

    rows = ledger_history.history(where, party, session, refused=refused)
    if as_json:
        print_json(rows)
    else:
        output.show_history(rows, party, session, refused=refused)
