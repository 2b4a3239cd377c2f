"""What an experiment found, in sentences: the best setting, and how the job's own compares.

The metric is that of the goal, or else the first on the page. Settings are called different only if
the intervals of their means do not overlap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secagg.evidence.numbers import counted, listing, size
from secagg.reports.experiments.metrics import (
    MORE_IS_BETTER,
    Summary,
    across_of,
    is_constant,
    is_cost,
    label_of,
    mean_in_words,
    metrics_of,
)


@dataclass(frozen=True)
class _Setting:
    """A point of a curve, with its mean."""

    line: str
    across: float
    mean: Mapping[str, Any]

    def apart_from(self, other: _Setting) -> bool:
        """Return whether the intervals of the two means exist and do not overlap."""
        ends = [self.mean["low"], self.mean["high"], other.mean["low"], other.mean["high"]]
        return None not in ends and (ends[1] < ends[2] or ends[3] < ends[0])


def conclusion(summary: Summary) -> list[str]:
    """Return the conclusion; empty if no run has a result yet."""
    metric = metric_of(summary)
    if metric is None:
        return []
    settings = [
        _Setting(curve["line"] or summary["title"], point["across"], point["metrics"][metric])
        for curve in summary["curves"]
        for point in curve["points"]
        if (point["metrics"].get(metric) or {}).get("mean") is not None
    ]
    if not settings:
        return []
    more, across = metric in MORE_IS_BETTER, across_of(summary)

    def loss(setting: _Setting) -> float:
        return float(setting.mean["mean"]) * (-1 if more else 1)

    def words(setting: _Setting) -> str:
        at = f"{across} {setting.across:g}: {mean_in_words(setting.mean)}"
        return f"“{setting.line}” at {at}" if len(summary["curves"]) > 1 else f"at {at}"

    best = min(settings, key=loss)
    better = "more" if more else "less"
    lines = [f"Best by {label_of(metric)} ({better} is better): {words(best)}."]
    own = summary["job"].get("own")
    if own is not None and own != best.across:
        if at_own := [s for s in settings if math.isclose(s.across, own)]:
            kept = min(at_own, key=loss)
            verdict = (
                "the difference is larger than chance"
                if kept.apart_from(best)
                else "their intervals overlap, so these runs do not tell which is better"
            )
            lines.append(f"The job's own setting: {words(kept)}; {verdict}.")
        else:
            lines.append(f"The job's own setting, {across} {own:g}, was not run.")
    elif own is not None:
        lines.append("This is the job's own setting.")
    if overlapping := [s for s in settings if s is not best and not s.apart_from(best)]:
        others = f"{counted(len(overlapping), 'other setting')} of {len(settings) - 1}"
        lines.append(f"{others} cannot be told from the best: the intervals overlap.")
    exact = (summary["baselines"].get("no noise") or {}).get(metric)
    if exact is not None and exact["mean"] is not None:
        lines.append(f"Without noise: {mean_in_words(exact)}.")
    return lines


def metric_of(summary: Summary) -> str | None:
    """Return the metric of the conclusion."""
    found = [metric for metric in metrics_of(summary) if not is_cost(metric)]
    goal = summary["goal"]
    return goal["metric"] if goal and goal["metric"] in found else next(iter(found), None)


def constant_costs(summary: Summary) -> str:
    """Return what every run took, of the costs that are the same in all; "" if none is."""
    texts = []
    for metric in metrics_of(summary):
        if is_cost(metric) and is_constant(summary, metric):
            value = next(
                point["metrics"][metric]["mean"]
                for curve in summary["curves"]
                for point in curve["points"]
                if metric in point["metrics"]
            )
            is_bytes = metric.startswith("bytes")
            texts.append(
                f"{metric}: {size(round(value))}" if is_bytes else f"{label_of(metric)}: {value:g}"
            )
    return f"The same in every run: {listing(texts)}." if texts else ""
