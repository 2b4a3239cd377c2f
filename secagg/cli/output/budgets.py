"""What `secagg budget` prints: what was released, what that cost, what is left under caps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from secagg.cli.output import terminal
from secagg.contracts.noise import Adjacency
from secagg.privacy.accounting.budget import rounded_down
from secagg.runs import ledger_history


def show_budget(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print, for each data set, what was spent; then what is left under each cap, if there is one.

    The first is told under both adjacencies and for ever, a cap under its own and for its period.
    """
    out = terminal.standard_output()
    told = ", ".join(sorted({f"{row['delta']:g}" for row in rows}))
    table = Table(title=f"what was released, and its epsilon at delta {told}")
    for name in ("party", "data set"):
        table.add_column(name, overflow="fold")
    for name in ("releases", "of them exact"):
        table.add_column(name, justify="right")
    for adjacency in Adjacency:  # whose names must be whole in a narrow terminal, too
        name = adjacency.value
        table.add_column(f"epsilon {name}", justify="right", min_width=len(name))
    caps = Table(title="caps, and the epsilon left under each")
    for name in ("party", "data set", "cap"):
        caps.add_column(name, overflow="fold")
    for name in ("spent", "left"):
        caps.add_column(name, justify="right")
    for row in rows:
        whose = escape(row["party"]), escape(row["dataset"])
        spent = [_epsilon(row[f"epsilon_{a.value}"]) for a in Adjacency]
        table.add_row(*whose, str(row["releases"]), str(row["exact"]), *spent)
        for cap in row["caps"]:
            caps.add_row(*whose, cap["words"], _epsilon(cap["spent"]), rounded_down(cap["left"]))
    out.print(table)
    if caps.row_count:
        out.print(caps)
    out.print(
        "Epsilons do not add up: what several noisy releases give away together grows like the "
        "root of the sum of their squares, so more is left than cap less spent."
    )


def _epsilon(spent: float) -> str:
    return "no bound" if spent == float("inf") else f"{spent:.3g}"


def show_history(
    rows: Sequence[Mapping[str, Any]], party: str | None, session: str | None, *, refused: bool
) -> None:
    """Print one line for each line of the ledgers; if there is none, what was looked for."""
    out = terminal.standard_output()
    if not rows:
        looked = ["a decision that refused something" if refused else "a line"]
        looked += [] if party is None else [f"of party {party!r}"]
        looked += [] if session is None else [f"of a session whose name begins with {session!r}"]
        out.print(f"nothing found: looked for {escape(' '.join(looked))}", soft_wrap=True)
    for row in rows:
        where = "" if row["session"] is None else f" session {row['session'][:8]}"
        where += "" if row["round"] is None else f" round {row['round']}"
        line = f"{row['time']} {row['party']} ({row['dataset']}){where}: {row['text']}"
        out.print(escape(line), soft_wrap=True)
    if session is not None:
        for line in ledger_history.in_all(rows):
            out.print(escape(line), soft_wrap=True)
