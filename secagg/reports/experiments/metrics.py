"""The metrics of an experiment: their names, meanings and order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from secagg.evidence.numbers import NONE, by_error, declared, significant

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
        "directions count only if every edge of the true graph has one. A Markov network is "
        "compared with the pairs of edges and of causes of one column",
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
    "log_loss": (
        "log loss on other records",
        "over records that took no part, the mean of minus the log probability of the outcome's "
        "level, in nats; less is better",
    ),
    "epsilon": (
        "ε that Opacus states",
        "of each site alone, by Opacus' own accountant for the same δ",
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
DIFFERENCES = ("neg_log_pl",)
"""Metrics of which only differences have a meaning."""
SHARES = ("coverage", "auc", "tpr", "fdr")
NEAR_ONE = ("coverage", "auc")
"""Shares whose axis need not begin at 0."""
MORE_IS_BETTER = ("coverage", "auc", "tpr")
"""Shares of which more is better."""


def is_cost(metric: str) -> bool:
    """Return whether a metric says what a run takes, and not what its result is worth."""
    return metric in _COSTS or metric.startswith("bytes")


def is_constant(summary: Summary, metric: str) -> bool:
    """Return whether a metric is the same in every run of every curve."""
    means = [
        point["metrics"][metric]
        for curve in summary["curves"]
        for point in all_points(curve)
        if metric in point["metrics"]
    ]
    values = {mean[name] for mean in means for name in ("mean", "low", "high")} - {None}
    return len(values) == 1


def mean_in_words(mean: Mapping[str, Any] | None) -> str:
    """Return a mean with half the width of its interval, to the digits that this has."""
    if mean is None or mean["mean"] is None:
        return NONE
    value = float(mean["mean"])
    if mean["low"] is None or mean["high"] is None or mean["low"] == mean["high"]:
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e7 else significant(value, 3)
    half = (mean["high"] - mean["low"]) / 2
    return f"{by_error(value, half)} ± {significant(half, 2)}"


def label_of(metric: str) -> str:
    """Return a metric's name on an axis."""
    return METRICS[metric][0] if metric in METRICS else metric


def across_of(summary: Summary) -> str:
    """Return the name of the horizontal axis."""
    return "ε" if summary["across"] == "privacy.epsilon" else str(summary["across"])


def metrics_of(summary: Summary) -> list[str]:
    """Return the metrics of all curves, in the order of `METRICS`."""
    names = {m for c in summary["curves"] for point in c["points"] for m in point["metrics"]}
    order = list(METRICS)
    return sorted(names, key=lambda m: (order.index(m) if m in order else len(order), m))


def all_points(curve: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the points of a curve, and at the end that without noise if there is one."""
    return [*curve["points"], *([curve["no_noise"]] if curve["no_noise"] else [])]


def place_of(point: Mapping[str, Any]) -> str:
    """Return the place of a point on the horizontal axis."""
    return "no noise" if point["across"] is None else declared(point["across"])
