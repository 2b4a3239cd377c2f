"""The table of a newcomer's own coefficients (`secagg.adapting`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from secagg.console.terminal import number, show_warnings, standard_output


def show_adapted(found: Mapping[str, Any]) -> None:
    """Print what `Adapted.summary` returned."""
    out = standard_output()
    table = Table(
        title=f"the new site's own coefficients for {escape(found['outcome'])}, "
        f"of {found['records_here']} records ({100 * found['level']:g}% intervals)"
    )
    table.add_column("term", no_wrap=True)
    for name in ("mean", "sd", "interval", "error of the mean"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found["coefficients"]:
        interval = f"({number(row['low'])}, {number(row['high'])})"
        cells = number(row["mean"]), number(row["sd"]), interval, number(row["mcse_mean"])
        table.add_row(escape(row["term"]), *cells)
    out.print(table)
    out.print(
        "In standard deviations of the outcome for one of the predictor. The run's common "
        "coefficients are not changed by these records."
    )
    show_warnings(out, [(remark, False) for remark in found["remarks"]])
    if not found["settled"]:
        show_warnings(out, [("the sampler has not settled: more --sweeps are needed", True)])
