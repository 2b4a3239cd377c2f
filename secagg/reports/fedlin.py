"""The tables of a FedLin result: what sites share, how they differ, how well they predict.

Every number here comes from sums over sites; a site's own coefficients are in its own result. If
noise was drawn at the sites, a sentence beside each table says what its numbers mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secagg.evidence import numbers as written
from secagg.models.fedlin.design import INTERCEPT
from secagg.reports.regression import unit_of
from secagg.reports.results import Block, Summary
from secagg.reports.svg.forest_plot import Interval, axis_picture, interval_picture, scale_for


def errors_table(block: Block) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the errors of predictions, in the outcome's unit."""
    rows: Sequence[Summary] = block.summary["errors"]
    labels = block.table.labels
    held = "held_rmse" in rows[0]
    head = ["model", "records learned from"]
    head += ["records held out", "held out, mean over sites"] if held else []
    keys = ["training_rmse", *(["held_rmse", "mean_site_rmse"] if held else [])]
    return head, [
        [labels.get(row["model"], (row["model"], ""))[0], *(_short(row[key]) for key in keys)]
        for row in rows
    ]


def sites_table(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the coefficients over sites; an intercept is never selected."""
    rows: Sequence[Summary] = summary["across_sites"]
    own = any("own_units" in row for row in rows)
    included = any("included" in row for row in rows)
    head = ["term", "mean of estimates", "sd of estimates"]
    head += ["mean, own units", "sd, own units"] if own else []
    head += ["sites whose interval excludes 0"] if included else []
    cells_of_rows = []
    for row in rows:
        cells = [row["term"], _short(row["mean"]), _short(row["sd"])]
        if own:
            units = row.get("own_units", {})
            cells += [_short(units.get("mean")), _short(units.get("sd"))]
        if included:
            sites = f"{row.get('included')} of {summary['sites_with_records']}"
            cells.append(written.NONE if row["term"] == INTERCEPT else sites)
        cells_of_rows.append(cells)
    return head, cells_of_rows


def shared_table(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the posterior of what sites share; no rows if there is none."""
    rows: Sequence[Summary] = summary.get("shared", ())
    head = ["parameter", "estimate", f"{written.share(summary.get('level'))} interval"]
    return head, [
        [row["name"], _short(row["estimate"]), f"{_short(row['low'])} to {_short(row['high'])}"]
        for row in rows
    ]


def hypotheses_table(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of hypothesis tests; no rows if there are none."""
    head = ["hypothesis", "F", "degrees of freedom", "p"]
    rows = []
    for row in summary.get("tests", ()):
        freedom = written.NONE
        if row["df"] is not None:
            error = "known variance" if row["df_error"] is None else f"{row['df_error']:.0f}"
            freedom = f"{row['df']:.0f}, {error}"
        rows.append([row["name"], _short(row["F"]), freedom, _short(row["p"])])
    return head, rows


def shared_in_words(summary: Summary) -> str:
    """Return how the posterior of what sites share was computed."""
    if "shared_how" in summary:
        return str(summary["shared_how"])
    points = summary.get("points")
    if points is None:
        return "approximated by a normal density"
    return (
        f"computed by importance sampling at {written.count(points['many'])} points "
        f"(effective sample size {written.fixed(points['effective'], 0)})"
    )


def coefficients_in_words(summary: Summary) -> str:
    """Return the unit of coefficients, and how many sites' records determine their own."""
    unit = f"in {_unit_in_words(summary)}"
    if "sites_telling_noise" not in summary:
        return unit
    sites, determined = summary["sites_with_records"], summary["sites_telling_noise"]
    text = f"{unit}; {determined} of {sites} sites have more records than coefficients"
    if determined < sites:
        text += ": the estimates of the others depend on the prior or on what sites share"
    return text


def opposite_in_words(summary: Summary) -> str:
    """Return in which terms sites differ by more than their mean; "" if in none, or if a test of
    each term says whether sites agree.

    Cochran's Q would need each site's standard errors, which other methods do not sum.
    """
    if summary.get("tests"):
        return ""
    terms = [
        row["term"]
        for row in summary["across_sites"]
        if row["term"] != INTERCEPT and (row["sd"] or 0.0) > abs(row["mean"])
    ]
    if not terms:
        return ""
    return (
        f"Sites may contradict each other in {written.listing(terms)}: the standard deviation of "
        "their estimates is larger than the mean."
    )


def noise_in_words(summary: Summary) -> tuple[str, str]:
    """Return what estimates and errors mean if noise was drawn at the sites; "" if it was not."""
    noise = summary.get("noise", {})
    return noise.get("across_sites", ""), noise.get("errors", "")


def _unit_in_words(summary: Summary) -> str:
    link = summary.get("coefficient_unit")
    if summary["units"] == "own":
        return f"{link} for one unit of the predictor" if link else "the columns' own units"
    centre = {
        "site": "around the sites' own means, pooled over sites",
        "modelled": "of all records around their mean",
    }[summary["intercept"]]
    if link:
        return f"{link} for one standard deviation of the predictor, {centre}"
    return f"standard deviations of the outcome for one of the predictor, {centre}"


def of_sites(block: Block, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a FedLin result."""
    summary = block.summary
    of_estimates, of_errors = noise_in_words(summary)
    return {
        "noise_in_coefficients": of_estimates,
        "noise_in_errors": of_errors,
        "coefficients": sites_table(summary),
        "spread": _spread(summary),
        "opposite": opposite_in_words(summary),
        "outcome": summary["outcome"],
        "shared": shared_table(summary),
        "shared_how": shared_in_words(summary),
        "tests": hypotheses_table(summary),
        "errors": errors_table(block),
        "caption": coefficients_in_words(summary),
        "outcome_unit": unit_of(summary["outcome"], columns),
    }


def _spread(summary: Summary) -> dict[str, Any]:
    """Return a plot of coefficients over sites: mean, and one sd on both sides, on one scale."""
    rows: Sequence[Summary] = summary["across_sites"]
    bars = [
        Interval(row["mean"], row["mean"] - (row["sd"] or 0.0), row["mean"] + (row["sd"] or 0.0))
        for row in rows
    ]
    scale = scale_for(bars, log=False)
    return {
        "axis": axis_picture(scale),
        "terms": [
            {
                "term": row["term"],
                "picture": interval_picture(bar, scale, pooled=True),
                "text": f"{_short(row['mean'])} ± {_short(row['sd'])}",
            }
            for row, bar in zip(rows, bars, strict=True)
        ],
    }


def _short(value: float | None) -> str:
    return written.significant(value, 3)
