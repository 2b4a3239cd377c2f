"""The page of an experiment: one self-contained file, drawn from its summary.

The page makes no request and runs no script. Its pictures are also files of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup

from secagg.reports.numbers import counted, listing, significant
from secagg.reports.page import environment, style_of
from secagg.reports.svg.panels import At, Panel, panels_picture

Summary = Mapping[str, Any]

METRICS: Mapping[str, tuple[str, str]] = {
    "error": (
        "relative error of the slopes",
        "the distance of the slopes from the true ones, each slope "
        "times the standard deviation of its variable, divided by the length of the "
        "latter; 0 is exact, and 1 is no better than slopes of zero",
    ),
    "coverage": (
        "coverage of the intervals",
        "the share of slopes whose interval contains the true one",
    ),
    "width": (
        "width of the intervals",
        "the median width of the slopes' intervals, each for one standard deviation of "
        "its variable, in units of the outcome",
    ),
    "pip_error": (
        "error of inclusion probabilities",
        "the mean distance of the posterior inclusion probabilities from the true ones",
    ),
    "auc": (
        "AUC on other records",
        "the share of pairs of a case and another record in which the case has the larger "
        "prediction, over records that took no part; 0.5 is a guess",
    ),
    "unexplained": (
        "unexplained variance on other records",
        "the variance of outcome minus prediction, divided by that of the outcome, over "
        "records that took no part; 1 is no better than the mean",
    ),
    "shd": (
        "structural Hamming distance",
        "the number of edges to add, to remove or to turn until the graph is the true one; "
        "directions count only if every edge of the true graph has one",
    ),
    "tpr": (
        "true positive rate",
        "the share of the true edges that were found",
    ),
    "fdr": (
        "false discovery rate",
        "the share of the found edges that are wrong",
    ),
    "neg_log_pl": (
        "negative log pseudo-likelihood on other records",
        "over records that took no part, the mean of minus the log pseudo-likelihood, in nats: the "
        "sum over columns of the log probability, or density in own units, of the column given "
        "all others; less is better, and only differences have a meaning",
    ),
    "rounds": (
        "rounds",
        "the number of sums that were opened",
    ),
    "seconds": (
        "processor seconds",
        "of all parties together, on the computer of the experiment",
    ),
}
"""Metrics, in the order in which they are shown: name on an axis, and meaning."""
_COSTS = ("seconds", "rounds")
_SHARES = ("coverage", "auc", "tpr", "fdr")


def is_cost(metric: str) -> bool:
    """Return whether a metric says what a run takes, and not what its result is worth."""
    return metric in _COSTS or metric.startswith("bytes")


_BASELINES = {
    "no noise": "the same job without differential privacy, at all sites",
    "pooled": "the same job over all records in one place, without noise",
    "each site alone": "the same job at each site alone, without noise; the mean over the sites",
    "nothing learned": "slopes of zero, or a graph without edges; for networks, each column on its "
    "own, without noise",
}


def label_of(metric: str) -> str:
    """Return a metric's name on an axis."""
    return METRICS[metric][0] if metric in METRICS else metric


def _across(summary: Summary) -> str:
    return "ε" if summary["across"] == "privacy.epsilon" else str(summary["across"])


def pictures(summary: Summary) -> dict[str, tuple[str, Markup]]:
    """Return the pictures: name of the file -> caption and picture."""
    metrics = metrics_of(summary)
    costs = [m for m in metrics if is_cost(m)]
    utility = [m for m in metrics if not is_cost(m)]
    found = {
        "utility": ("What the result is worth", [_panel(summary, m) for m in utility]),
        "leakage": ("What attacks found", list(_attack_panels(summary))),
        "cost": ("What a run takes", [_panel(summary, m) for m in costs]),
    }
    return {
        name: (caption, panels_picture(f"{summary['title']}: {caption}", _across(summary), panels))
        for name, (caption, panels) in found.items()
        if panels
    }


def metrics_of(summary: Summary) -> list[str]:
    """Return the metrics of all curves, in the order of `METRICS`."""
    names = {m for c in summary["curves"] for point in c["points"] for m in point["metrics"]}
    order = list(METRICS)
    return sorted(names, key=lambda m: (order.index(m) if m in order else len(order), m))


def _panel(summary: Summary, metric: str) -> Panel:
    curves = [
        (
            curve["line"] or summary["title"],
            [
                _at(p["across"], p["metrics"][metric])
                for p in curve["points"]
                if metric in p["metrics"]
            ],
        )
        for curve in summary["curves"]
    ]
    references = [
        (name, means[metric]["mean"])
        for name, means in summary["baselines"].items()
        if metric in means and not is_cost(metric) and means[metric]["mean"] is not None
    ]
    top = 1.0 if metric in _SHARES else math.inf
    return Panel(label_of(metric), curves, references, top)


def _at(across: float, mean: Mapping[str, Any]) -> At:
    def number(name: str) -> float:
        return math.nan if mean[name] is None else float(mean[name])

    return At(across, number("mean"), number("low"), number("high"))


def _attack_panels(summary: Summary) -> Iterator[Panel]:
    names = dict.fromkeys(name for row in summary["attacks"] for name in row["found"])
    for name in names:
        curves = dict[str, list[At]]()
        references = dict[str, float]()
        for row in summary["attacks"]:
            if name in row["found"]:
                found = row["found"][name]
                curves.setdefault(row["line"], []).append(At(row["across"], found["value"]))
                references |= {k: found[k] for k in ("limit", "control") if k in found}
        yield Panel(name, list(curves.items()), list(references.items()))


def recommendation_lines(summary: Summary) -> list[str]:
    """Return a sentence for each curve: the smallest epsilon that reaches the goal, or none."""
    goal = summary["goal"]
    if goal is None:
        return []
    what = (
        f"{label_of(goal['metric'])} below {goal['below']:g} in {100 * goal['share']:g} % of runs"
    )
    measured = {m for c in summary["curves"] for p in c["points"] for m in p["metrics"]}
    if goal["metric"] not in measured:
        return [f"No run has the goal's metric, {label_of(goal['metric'])}."]
    lines = []
    for each in summary["recommendations"]:
        name = each["line"] or summary["title"]
        smallest, places = each["smallest"], [x for x, _ in each["limits"]]
        if smallest is None:
            largest = f"{max(places):g}" if places else "none"
            lines.append(f"{name}: no {_across(summary)} up to {largest} gives {what}.")
            continue
        at_most = "at most " if smallest == min(places) else ""
        words = f"the smallest {_across(summary)} with {what} is {at_most}{smallest:g}"
        lines.append(f"{name}: {words}.")
    return lines


def experiment_page(summary: Summary) -> str:
    """Return the page."""
    style, digest = style_of("audit.css", "")
    metrics = metrics_of(summary)
    points = [(curve["line"], p) for curve in summary["curves"] for p in curve["points"]]
    shown = [m for m in metrics if not is_cost(m)]
    page = (
        environment()
        .get_template("experiment.html")
        .render(
            summary=summary,
            across=_across(summary),
            recommendations=recommendation_lines(summary),
            pictures=list(pictures(summary).values()),
            metrics=[(label_of(m), METRICS[m][1]) for m in metrics if m in METRICS],
            head=number_rows(summary)[0][2:],
            rows=number_rows(summary)[1],
            differences=list(_differences(summary, shown)),
            difference_head=[label_of(m) for m in shown],
            baselines=_BASELINES,
            runs=counted(sum(p["runs"] for _, p in points), "run"),
            failures=[
                (c["line"], p) for c in summary["curves"] for p in c["points"] if p["failures"]
            ],
            refused=refused_by_reason(summary),
            waiting=sum(p["waiting"] for c in summary["curves"] for p in c["points"]),
            style=Markup(style),  # noqa: S704  # from this package; must not be escaped
            style_hash=digest,
        )
    )
    return page + "\n"


def refused_by_reason(found: Summary) -> dict[tuple[str, str], str]:
    """Return the places that are refused, by curve and reason."""
    places = dict[tuple[str, str], list[str]]()
    for each in found["refused"]:
        places.setdefault((each["line"], each["why"]), []).append(f"{each['across']:g}")
    return {where: listing(at) for where, at in places.items()}


def number_rows(summary: Summary, *, costs: bool = True) -> tuple[list[str], list[list[str]]]:
    """Return the heads and the rows of the table of means; costs: also what a run takes."""
    metrics = [m for m in metrics_of(summary) if costs or not is_cost(m)]
    head = ["curve", _across(summary), *map(label_of, metrics)]
    return head, list(_rows(summary, metrics))


def _rows(summary: Summary, metrics: list[str]) -> Iterator[list[str]]:
    for name, means in summary["baselines"].items():
        costless = {m: v for m, v in means.items() if not is_cost(m)}
        yield [name, "–", *(_cell(costless.get(m)) for m in metrics)]
    for curve in (*summary["baseline_curves"], *summary["curves"]):
        for point in curve["points"]:
            cells = [_cell(point["metrics"].get(m)) for m in metrics]
            yield [curve["line"] or summary["title"], f"{point['across']:g}", *cells]


def _differences(summary: Summary, metrics: list[str]) -> Iterator[list[str]]:
    for curve in summary["curves"]:
        for point in curve["points"]:
            more = point["more_than_no_noise"]
            cells = [_cell(more.get(m)) for m in metrics]
            yield [curve["line"] or summary["title"], f"{point['across']:g}", *cells]


def _cell(mean: Mapping[str, Any] | None) -> str:
    """Return a mean with half the width of its interval."""
    if mean is None or mean["mean"] is None:
        return "–"
    if mean["low"] is None or mean["high"] is None or mean["low"] == mean["high"]:
        return significant(mean["mean"], 3)
    half = (mean["high"] - mean["low"]) / 2
    return f"{significant(mean['mean'], 3)} ± {significant(half, 2)}"
