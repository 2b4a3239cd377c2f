"""What `secagg budget` prints: releases, their cost, and what is left under each cap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape

from secagg.cli.output import terminal
from secagg.cli.output.tables import Table
from secagg.contracts.noise import Adjacency
from secagg.evidence.numbers import epsilon_or_no_bound, probability, typeset
from secagg.privacy.accounting.composition import rounded_down
from secagg.runs import ledger_history


def show_budget(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the epsilon of each data set under both adjacencies; then what is left under each cap.

    Epsilon is that of all releases so far. A cap counts its own adjacency and period only.
    """
    out = terminal.standard_output()
    deltas = ", ".join(map(probability, sorted({row["delta"] for row in rows})))
    table = Table(title=f"releases, and their epsilon at delta {deltas}")
    for name in ("party", "data set"):
        table.add_column(name)
    for name in ("releases", "of them exact"):
        table.add_column(name, justify="right")
    for adjacency in Adjacency:  # a narrow terminal must not cut these names
        name = adjacency.value
        table.add_column(f"epsilon {name}", justify="right", min_width=len(name))
    caps = Table(title="caps, and the epsilon left under each")
    for name in ("party", "data set", "cap"):
        caps.add_column(name)
    for name in ("spent", "left"):
        caps.add_column(name, justify="right")
    for row in rows:
        names = escape(row["party"]), escape(row["dataset"])
        spent = [epsilon_or_no_bound(row[f"epsilon_{a.value}"]) for a in Adjacency]
        table.add_row(*names, str(row["releases"]), str(row["exact"]), *spent)
        for cap in row["caps"]:
            spent_of_cap = epsilon_or_no_bound(cap["spent"])
            caps.add_row(*names, typeset(cap["words"]), spent_of_cap, rounded_down(cap["left"]))
    out.print(table)
    if caps.row_count:
        out.print(caps)
    for row in rows:
        if len(row["units"]) > 1:
            out.print(
                f"! {escape(row['party'])}, {escape(row['dataset'])}: the jobs protect different "
                f"units ({', '.join(row['units'])}), and each counts in its own. For a person or "
                "an event, the epsilon of all of them together is larger than this number. A "
                "policy can allow one unit only (budget.unit).",
                style="yellow"
            )  # fmt: skip
    out.print(
        "Epsilons do not simply add up: the joint epsilon of several noisy releases grows like the "
        "root of the sum of their squares, so more is left than the cap minus what is spent."
    )


def show_history(
    rows: Sequence[Mapping[str, Any]], party: str | None, session: str | None, *, refused: bool
) -> None:
    """Print one line for each line of the ledgers; if there is none, print the search terms."""
    out = terminal.standard_output()
    if not rows:
        terms = ["a decision that refused something" if refused else "a line"]
        terms += [] if party is None else [f"of party {party!r}"]
        terms += [] if session is None else [f"of a session whose name begins with {session!r}"]
        out.print(f"nothing found: looked for {escape(' '.join(terms))}")
    for row in rows:
        where = "" if row["session"] is None else f" session {row['session'][:8]}"
        where += "" if row["round"] is None else f" round {row['round']}"
        line = f"{row['time']} {row['party']} ({row['dataset']}){where}: {row['text']}"
        out.print(escape(line))
    if session is not None:
        for line in ledger_history.session_totals(rows):
            out.print(escape(line))
