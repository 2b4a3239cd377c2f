"""A FedLin result, arranged for reading: what sites share, how they differ, how well they predict.

Every number here is of sums over sites; a site's own coefficients are in its own result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from secagg.models.fedlin.design import INTERCEPT
from secagg.reports import numbers as written
from secagg.reports.regression import unit_of
from secagg.reports.results import Block, Summary
from secagg.reports.svg.forest_plot import Interval, axis_picture, interval_picture, reach_of


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
    """Return head and rows of the coefficients over sites.

    An intercept is not selected: that an outcome is not 0 where predictors are is no finding.
    """
    rows: Sequence[Summary] = summary["across_sites"]
    own = any("own_units" in row for row in rows)
    included = any("included" in row for row in rows)
    head = ["term", "mean of estimates", "sd of estimates"]
    head += ["mean, own units", "sd, own units"] if own else []
    head += ["sites that include it"] if included else []
    told = []
    for row in rows:
        cells = [row["term"], _short(row["mean"]), _short(row["sd"])]
        if own:
            units = row.get("own_units", {})
            cells += [_short(units.get("mean")), _short(units.get("sd"))]
        if included:
            many = f"{row.get('included')} of {summary['sites_with_records']}"
            cells.append("-" if row["term"] == INTERCEPT else many)
        told.append(cells)
    return head, told


def shared_table(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the posterior of what sites share; no rows where there is none."""
    rows: Sequence[Summary] = summary.get("shared", ())
    level = f"{100 * summary.get('level', 0):g}% interval"
    head = ["parameter", "estimate", level]
    return head, [
        [row["name"], _short(row["estimate"]), f"{_short(row['low'])} to {_short(row['high'])}"]
        for row in rows
    ]


def shared_in_words(summary: Summary) -> str:
    """Return how the posterior of what sites share was had."""
    points = summary.get("points")
    if points is None:
        return "by a normal density"
    return f"weighed at {points['many']} points, of which {points['effective']:.0f} count"


def units_in_words(summary: Summary) -> str:
    """Return what coefficients are in."""
    if summary["units"] == "own":
        return "the columns' own units"
    about = {
        "site": "about the sites' own means, pooled over sites",
        "modelled": "of all records about their mean",
    }[summary["intercept"]]
    return f"standard deviations of the outcome for one of the predictor, {about}"


def telling_in_words(summary: Summary) -> str:
    """Return how many sites tell their coefficients by themselves; empty where it was not asked."""
    if "sites_telling_noise" not in summary:
        return ""
    here, telling = summary["sites_with_records"], summary["sites_telling_noise"]
    rest = "" if telling >= here else ": the others' estimates rest on what is assumed or shared"
    return f"{telling} of {here} sites have more records than coefficients{rest}"


def of_sites(block: Block, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows."""
    summary = block.summary
    return {
        "coefficients": sites_table(summary),
        "spread": _spread(summary),
        "shared": shared_table(summary),
        "shared_how": shared_in_words(summary),
        "errors": errors_table(block),
        "unit": units_in_words(summary),
        "telling": telling_in_words(summary),
        "outcome_unit": unit_of(summary["outcome"], columns),
    }


def _spread(summary: Summary) -> dict[str, Any]:
    """Return how coefficients lie over sites: mean, and one sd to both sides, on one scale."""
    rows: Sequence[Summary] = summary["across_sites"]
    reach = max(*(abs(row["mean"]) + (row["sd"] or 0.0) for row in rows), 1e-12)
    scale = reach_of(Interval(0.0, -reach, reach), [], log=False)

    def drawn(row: Summary) -> Markup:
        mean, sd = row["mean"], row["sd"] or 0.0
        return interval_picture(Interval(mean, mean - sd, mean + sd), scale, pooled=True)

    return {
        "axis": axis_picture(scale),
        "terms": [
            {
                "term": row["term"],
                "picture": drawn(row),
                "told": f"{_short(row['mean'])} ± {_short(row['sd'])}",
            }
            for row in rows
        ],
    }


def _short(value: float | None) -> str:
    return "-" if value is None else written.significant(value, 3)
