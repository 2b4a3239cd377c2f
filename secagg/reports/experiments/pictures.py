"""The pictures of an experiment, drawn from its summary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from secagg.reports.experiments.metrics import (
    SHARES,
    Summary,
    across_of,
    is_cost,
    label_of,
    metrics_of,
)
from secagg.reports.svg.panels import Panel, panels_picture
from secagg.reports.svg.plot import At
from secagg.reports.svg.side_by_side import side_by_side_picture

_Picture = tuple[str, Markup]


def pictures(summary: Summary) -> dict[str, tuple[str, Markup]]:
    """Return the pictures: name of the file -> caption and picture."""
    metrics = metrics_of(summary)
    costs = [m for m in metrics if is_cost(m)]
    utility = [m for m in metrics if not is_cost(m)]
    found = {
        "utility": (
            f"What the result is worth. {_means(summary)} as bands.",
            [_panel(summary, m) for m in utility],
        ),
        "leakage": ("What attacks found", list(_attack_panels(summary))),
        "cost": (
            f"What a run takes. {_means(summary)} as bands.",
            [_panel(summary, m) for m in costs],
        ),
    }
    drawn = {
        name: (caption, panels_picture(_title(summary, caption), across_of(summary), panels))
        for name, (caption, panels) in found.items()
        if panels
    }
    return drawn if (placement := _placement(summary)) is None else _second(drawn, placement)


def _means(summary: Summary) -> str:
    return f"Means over the runs, with {100 * summary['level']:.0f} % intervals of the mean"


def _title(summary: Summary, caption: str) -> str:
    return f"{summary['title']}: {caption.partition('.')[0]}"


def _second(drawn: dict[str, _Picture], placement: _Picture) -> dict[str, _Picture]:
    """Return the pictures with one more, after that of utility."""
    names = ["utility", "placement", "leakage", "cost"]
    every = {**drawn, "placement": placement}
    return {name: every[name] for name in names if name in every}


def _placement(summary: Summary) -> _Picture | None:
    """Return the curves side by side, by the goal's metric; None if there is only one curve."""
    utility = [m for m in metrics_of(summary) if not is_cost(m)]
    goal = summary["goal"]
    wanted = goal["metric"] if goal and goal["metric"] in utility else next(iter(utility), None)
    if wanted is None:
        return None
    panel = _panel(summary, wanted)
    curves = [(name, curve) for name, curve in panel.curves if curve]
    if len(curves) < 2:
        return None
    caption = f"The curves side by side: {label_of(wanted)}. {_means(summary)} as bars."
    picture = side_by_side_picture(
        _title(summary, caption), across_of(summary), replace(panel, curves=curves)
    )
    return caption, picture


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
    top = 1.0 if metric in SHARES else math.inf
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
