"""What `secagg adapt` prints: a site's own coefficients or columns, and warnings about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from secagg.cli.output.analyses import show_notes
from secagg.cli.output.posterior import DIGITS, add_sampler_columns, in_parentheses, sampler_cells
from secagg.cli.output.tables import Table
from secagg.cli.output.terminal import (
    show_mistrust,
    show_warnings,
    standard_error,
    standard_output,
)
from secagg.evidence.numbers import counted, interval, percent, share, significant
from secagg.reports.names import shown_result
from secagg.reports.posterior import mean_and_interval

_COUNTED_TWICE_NOTE = "If these records were part of the run, they count twice in this result."


def show_adapted(adapted: Mapping[str, Any]) -> None:
    """Print what `summary` returned."""
    out = standard_output()
    _warn(out, adapted)
    if "new_columns" in adapted:
        _show_stitched(out, adapted)
        return
    if "personalised" in adapted:
        _show_personalised(out, adapted)
        return
    adapted = shown_result(adapted, {name: f"log({name})" for name in adapted["logarithms"]})
    if "converged" not in adapted:  # HM2's draws are independent
        out.print(_posterior(adapted))
        if adapted["records_here"]:
            out.print(_COUNTED_TWICE_NOTE, markup=False)
        return
    out.print(_coefficients(adapted))
    pooled = adapted["scale"] == "pooled"
    scale = "pooled within the run's sites" if pooled else "this site's own"
    logs = ", ".join(f"log({name})" for name in adapted["logarithms"])
    log_units = f"; own units: of {logs} where the job takes the logarithm" if logs else ""
    out.print(
        f"In standard deviations of the outcome for one of the predictor, {scale}"
        f"{log_units if pooled else ''}; {DIGITS}. "
        f"These records do not change the run's common coefficients. {_COUNTED_TWICE_NOTE}",
        markup=False,
    )
    for name, result in _results(adapted):
        if result["converged"] is not False and result["notes"]:
            show_notes(out, name, result["notes"])


def _show_stitched(out: Console, adapted: Mapping[str, Any]) -> None:
    table = Table(title=f"own columns, of {counted(adapted['records_here'], 'record')}")
    table.add_column("column")
    table.add_column("depends on")
    table.add_column("explained", justify="right")
    for row in adapted["new_columns"]:
        explained = "–"
        if row["explained"] is not None:
            explained = percent(row["explained"])
        table.add_row(escape(row["column"]), escape(", ".join(row["reads"])), explained)
    out.print(table)
    shared = (
        "Own columns now help to predict the run's columns at this site."
        if adapted["into_shared"]
        else "Predictions of the run's columns are exactly those of the run."
    )
    out.print(
        "Explained: the share of variance (for levels, McFadden's pseudo-R²) in these records, so "
        f"it is optimistic. {shared}",
        markup=False,
    )


def _show_personalised(out: Console, adapted: Mapping[str, Any]) -> None:
    fit = adapted["personalised"]
    table = Table(title=f"the run at this site, of {counted(adapted['records_here'], 'record')}")
    table.add_column("networks")
    table.add_column("loss per record", justify="right")
    table.add_row("of the run", significant(fit["loss_of_run"], 4))
    table.add_row("personalised", significant(fit["loss"], 4))
    out.print(table)
    if fit["strength"] is None:
        text = "No fit to these records was better, so the networks are exactly those of the run."
    else:
        gain, error = significant(fit["gain"], 2), significant(fit["gain_error"], 2)
        text = (
            f"The fit lowers the loss by {gain} (standard error {error}). The run counts as "
            f"{counted(round(fit['strength']), 'record')} in it."
        )
    out.print(
        f"{text} Loss: minus the log-likelihood of each column given the others, of records left "
        "out in five parts. The weight of the run was chosen by the same records, so the loss "
        f"is slightly optimistic. {_COUNTED_TWICE_NOTE}",
        markup=False,
    )


def show_doubts(adapted: Mapping[str, Any]) -> None:
    """Print warnings about predictions to standard error; the predictions go to standard output."""
    _warn(standard_error(), adapted)


def _results(adapted: Mapping[str, Any]) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    found = ("this site's own coefficients", adapted)
    return (("the run", adapted["run"]), found) if "run" in adapted else (found,)


def _warn(out: Console, adapted: Mapping[str, Any]) -> None:
    for name, result in _results(adapted):
        if result.get("converged") is False:
            show_mistrust(out, name, result["notes"])
    if not adapted.get("enough_sweeps", True):
        show_warnings(out, [("the sampler has not converged: more --sweeps are needed", True)])
    show_warnings(out, [(remark, False) for remark in adapted["remarks"]])


def _coefficients(adapted: Mapping[str, Any]) -> Table:
    """Return the table of means; of medians if a coefficient has no mean."""
    rows = adapted["coefficients"]
    own = all("own_units" in row for row in rows)
    centre = "median" if any(row["mean"] is None for row in rows) else "mean"
    table = Table(title=_title(adapted))
    table.add_column("term")
    level = f"{share(adapted['level'])} interval"
    for name in (centre, *(["sd"] if centre == "mean" else []), level):
        table.add_column(name, justify="right")
    add_sampler_columns(table)
    if own:
        table.add_column("in own units", justify="right")
    for row in rows:
        estimate, ends = mean_and_interval(row, centre=centre)
        sd = [significant(row["sd"], 3)] if centre == "mean" else []
        cells = [*sd, ends, *sampler_cells([row])]
        if own:
            in_own_units = mean_and_interval(row, in_own_units=True, centre=centre)
            cells.append(in_parentheses(*in_own_units))
        table.add_row(escape(row["term"]), estimate, *cells)
    return table


def _posterior(adapted: Mapping[str, Any]) -> Table:
    table = Table(
        title=_title(adapted),
        caption="in the columns' own units; these coefficients do not change what the sites share",
    )
    table.add_column("term")
    for name in ("mean", "sd", f"{share(adapted['level'])} interval"):
        table.add_column(name, justify="right")
    for row in adapted["coefficients"]:
        mean, sd, low, high = (significant(row[key], 3) for key in ("mean", "sd", "low", "high"))
        table.add_row(escape(row["term"]), mean, sd, interval(low, high) or "–")
    return table


def _title(adapted: Mapping[str, Any]) -> str:
    name, records = f"coefficients for {escape(adapted['outcome'])}", adapted["records_here"]
    if not records:
        return f"no records: {name} of a site drawn from what the run's sites share"
    return f"the new site's own {name}, of {counted(records, 'record')}"
