"""The tables of a FedLin result: what sites share, how they differ, how well they predict.

Every number here comes from sums over sites; a site's own coefficients are in its own result. If
noise was drawn at the sites, a sentence beside each table says what its numbers mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from secagg.evidence import numbers as written
from secagg.models.common.coefficient_table import effect_of, ratios_of
from secagg.models.fedlin.design import INTERCEPT
from secagg.reports.regression import unit_of
from secagg.reports.results import Block, Summary
from secagg.reports.svg.forest_plot import Interval, axis_picture, interval_picture, scale_for

_AGREE = "sites agree on "
_LEVEL = 0.05


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
    rows = [row for row in summary.get("shared", ()) if row.get("told", True)]
    effect = effect_of(rows)
    interval = f"{written.share(summary.get('level'))} interval"
    head = ["parameter", "estimate", interval]
    head += [f"{effect} ratio for one unit", interval] if effect else []
    cells_of_rows = []
    for row in rows:
        error = (row["high"] - row["low"]) / 4  # a rounded standard error, for the digits
        ends = [written.by_error(row[key], error) for key in ("low", "high")]
        cells = [row["name"], written.by_error(row["estimate"], error), written.interval(*ends)]
        if effect:
            ratios = [written.significant(x, 3) for x in _ratios(row, effect)]
            cells += [ratios[0], written.interval(*ratios[1:]) or written.NONE]
        cells_of_rows.append(cells)
    return head, cells_of_rows


def _ratios(row: Summary, effect: str) -> list[float | None]:
    return ratios_of(row, effect) if f"{effect}_ratio" in row else [None, None, None]


def hypotheses_table(summary: Summary) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of hypothesis tests; no rows if there are none."""
    head = ["hypothesis", "F", "degrees of freedom", "p"]
    rows = []
    for row in summary.get("tests", ()):
        freedom = written.NONE
        if row["df"] is not None:
            error = "known variance" if row["df_error"] is None else f"{row['df_error']:.0f}"
            freedom = f"{row['df']:.0f}, {error}"
        rows.append([row["name"], _short(row["F"]), freedom, written.p_value(row["p"])])
    return head, rows


def shared_in_words(summary: Summary) -> str:
    """Return how the posterior of what sites share was computed, and its prior."""
    if "shared_how" in summary:
        prior = summary.get("prior", {}).get("text", "")
        return f"{summary['shared_how']}{f'. {prior}' if prior else ''}"
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


def differ_in_words(summary: Summary) -> str:
    """Return in which terms sites differ, by the tests that they agree; without such tests, in
    which terms they may contradict each other.

    A term is named if its p times the number of terms is below 0.05 (Bonferroni). Without tests,
    Cochran's Q would need each site's standard errors, which other methods do not sum.
    """
    tests = {row["name"]: row["p"] for row in summary.get("tests", ())}
    tested = {
        row["term"]: tests[f"{_AGREE}{row['term']}"]
        for row in summary["across_sites"]
        if row["term"] != INTERCEPT and tests.get(f"{_AGREE}{row['term']}") is not None
    }
    if tested:
        found = [term for term, p in tested.items() if p * len(tested) < _LEVEL]
        if not found:
            return ""
        largest = written.p_value(max(tested[term] for term in found))
        p = f"p {largest if '<' in largest else f'up to {largest}'}"
        return (
            f"Sites differ in {written.listing(found)} by more than chance ({p}): the mean is not "
            "the effect at each site."
        )
    terms = [
        row["term"]
        for row in summary["across_sites"]
        if row["term"] != INTERCEPT
        and (row["sd"] or 0.0) > abs(row["mean"])
        and row.get("included", 1)  # a site's own interval excludes 0, where these are counted
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
        "differ": differ_in_words(summary),
        "tested": bool(summary.get("tests")),
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
