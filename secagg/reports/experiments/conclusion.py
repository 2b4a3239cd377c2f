"""What an experiment found, in sentences: the best setting, and how others compare with it.

It names the mechanism (method and placement of the noise), the curves without intervals, and from
which place on a site gains by joining: a site alone needs no noise. The metric is that of the goal,
or else the first on the page. Settings are called different only if the intervals of their means do
not overlap.
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
    mechanism: Mapping[str, str] | None = None

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
        _Setting(
            curve["line"] or summary["title"],
            point["across"],
            point["metrics"][metric],
            curve.get("mechanism"),
        )
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
    lines = [f"Best by {label_of(metric)} ({better} is better): {words(best)}{_by(best)}."]
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
    return [*lines, *_alone(summary, metric, settings, more=more), *_without_intervals(summary)]


def _by(best: _Setting) -> str:
    """Return the mechanism of a setting."""
    found = best.mechanism
    if found is None or found["placement"] == "none":
        return ""
    return f", by method {found['method']} with placement {found['placement']}"


def _alone(summary: Summary, metric: str, settings: list[_Setting], *, more: bool) -> list[str]:
    """Say where joining is better than each site alone without noise; nothing if not measured."""
    mean = (summary["baselines"].get("each site alone") or {}).get(metric)
    if mean is None or mean["mean"] is None:
        return []
    alone = _Setting("", 0.0, mean)

    def better(setting: _Setting) -> bool:
        gain = float(setting.mean["mean"]) - float(mean["mean"])
        return setting.apart_from(alone) and (gain > 0) == more

    across = across_of(summary)
    text = f"Each site alone, without noise and without joining: {mean_in_words(mean)}."
    places = sorted({s.across for s in settings})
    gains = [any(better(s) for s in settings if s.across == x) for x in places]
    if not any(gains):
        return [f"{text} No setting is better than that beyond chance: joining does not pay."]
    if all(gains):
        return [f"{text} Joining is better at every {across} that was run."]
    named = listing([f"{x:g}" for x, gain in zip(places, gains, strict=True) if gain])
    return [f"{text} Joining is better beyond chance at {across} {named} only."]


def _without_intervals(summary: Summary) -> list[str]:
    """Name the curves whose results have no intervals, where others have some."""
    has = {
        curve["line"] or summary["title"]: {m for p in curve["points"] for m in p["metrics"]}
        for curve in summary["curves"]
        if any(point["metrics"] for point in curve["points"])
    }
    exact = summary["baselines"].get("no noise") or {}
    lacking = [f"“{line}”" for line, metrics in has.items() if "coverage" not in metrics]
    if not lacking or (len(lacking) == len(has) and "coverage" not in exact):
        return []
    return [f"Without intervals: {listing(lacking)}."]


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
