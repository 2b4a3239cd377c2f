"""The table of a newcomer's own coefficients (`secagg.runs.adapt.sparse_bayes`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from secagg.cli.output.analyses import show_mistrust, show_notes
from secagg.cli.output.posterior import DIGITS, SAMPLED, estimated, sampled
from secagg.cli.output.terminal import number, show_warnings, standard_output

_RUN, _HERE = "the run", "this site's own coefficients"
_COUNTED_TWICE_NOTE = "If these records were part of the run, they count twice here."


def show_adapted(found: Mapping[str, Any]) -> None:
    """Print what `Adapted.summary` returned."""
    out = standard_output()
    _warn(out, found)
    if "converged" not in found:  # of HM2, whose draws are independent
        out.print(_posterior(found))
        if found["records_here"]:
            out.print(_COUNTED_TWICE_NOTE, markup=False)
        return
    out.print(_coefficients(found))
    whose = "pooled within the run's sites" if found["scale"] == "pooled" else "this site's own"
    logs = ", ".join(f"ln({name})" for name in found["logarithms"])
    own = f"; own units: of {logs} where the job takes the logarithm" if logs else ""
    out.print(
        f"In standard deviations of the outcome for one of the predictor, {whose}"
        f"{own if found['scale'] == 'pooled' else ''}; {DIGITS}. "
        f"The run's common coefficients are not changed by these records. {_COUNTED_TWICE_NOTE}",
        markup=False,
    )
    for name, told in ((_RUN, found["run"]), (_HERE, found)):
        if told["converged"] and told["notes"]:
            show_notes(out, name, told["notes"])


def show_doubts(found: Mapping[str, Any]) -> None:
    """Print to standard error what speaks against predictions that go to standard output."""
    _warn(Console(stderr=True, highlight=False), found)


def _warn(out: Console, found: Mapping[str, Any]) -> None:
    for name, told in ((_RUN, found["run"]), (_HERE, found)):
        if not told.get("converged", True):
            show_mistrust(out, name, told["notes"])
    if not found.get("enough_sweeps", True):
        show_warnings(out, [("the sampler has not settled: more --sweeps are needed", True)])
    show_warnings(out, [(remark, False) for remark in found["remarks"]])


def _coefficients(found: Mapping[str, Any]) -> Table:
    """Return the table; where a coefficient has no mean, it is of medians."""
    rows = found["coefficients"]
    own = all("own_units" in row for row in rows)
    middle = "median" if any(row["mean"] is None for row in rows) else "mean"
    table = Table(title=_title(found))
    table.add_column("term", no_wrap=True)
    interval = f"{100 * found['level']:g}% interval"
    for name in (middle, *(["sd"] if middle == "mean" else []), interval, *SAMPLED):
        table.add_column(name, justify="right", no_wrap=True)
    if own:
        table.add_column("in own units", justify="right")
    for row in rows:
        estimate, ends = estimated(row, middle=middle)
        sd = [number(row["sd"])] if middle == "mean" else []
        units = [" ".join(estimated(row, in_own_units=True, middle=middle))] if own else []
        table.add_row(escape(row["term"]), estimate, *sd, ends, *sampled([row]), *units)
    return table


def _posterior(found: Mapping[str, Any]) -> Table:
    table = Table(
        title=_title(found),
        caption="in the columns' own units; what the run's sites share is not changed by them",
    )
    table.add_column("term", no_wrap=True)
    for name in ("mean", "sd", f"{100 * found['level']:g}% interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found["coefficients"]:
        mean, sd, low, high = (number(row[key]) for key in ("mean", "sd", "low", "high"))
        ends = "-" if row["low"] is None else f"{low} to {high}"
        table.add_row(escape(row["term"]), mean, sd, ends)
    return table


def _title(found: Mapping[str, Any]) -> str:
    name, records = f"coefficients for {escape(found['outcome'])}", found["records_here"]
    if not records:
        return f"no records: {name} of a site drawn from what the run's sites share"
    return f"the new site's own {name}, of {records} record{'' if records == 1 else 's'}"
