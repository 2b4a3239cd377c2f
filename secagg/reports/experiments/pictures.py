"""The pictures of an experiment, drawn from its summary."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from secagg.reports.experiments.attacks import CONTROL, Numbers, number_of
from secagg.reports.experiments.metrics import (
    DIFFERENCES,
    NEAR_ONE,
    SHARES,
    Summary,
    across_of,
    all_points,
    is_constant,
    is_cost,
    label_of,
    metrics_of,
)
from secagg.reports.svg.panels import Panel, panels_picture
from secagg.reports.svg.plot import At

_CONTROL = "control"
_SAME = 1e-3  # relative difference of two lines that lie on each other
_ORDER = ("utility", "leakage", "rounds", "cost")


def pictures(summary: Summary) -> dict[str, tuple[str, Markup]]:
    """Return the pictures: name of the file -> caption and picture."""
    metrics = metrics_of(summary)
    costs = [m for m in metrics if is_cost(m) and not is_constant(summary, m)]
    utility = [m for m in metrics if not is_cost(m)]
    found = {
        "utility": (
            f"What the result is worth. {_means(summary)} as bands.",
            [_panel(summary, m) for m in utility],
        ),
        "leakage": (
            "What attacks found, on one run at each point. The control is the same attack where "
            "the leak is certain. A limit is the largest number, or the smallest error, without "
            "a leak.",
            list(_attack_panels(summary)),
        ),
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
    if by_rounds := list(_round_panels(summary)):
        caption = (
            "What attacks found after the first sums of the run. The control is the same attack "
            "after as many sums where the leak is certain. Without a mark, an attack found no "
            "number at all."
        )
        drawn["rounds"] = (
            caption,
            panels_picture(_title(summary, caption), "sums that the attacker saw", by_rounds),
        )
    return {name: drawn[name] for name in _ORDER if name in drawn}


def _means(summary: Summary) -> str:
    return f"Means over the runs, with {100 * summary['level']:.0f} % intervals of the mean"


def _title(summary: Summary, caption: str) -> str:
    return f"{summary['title']}: {caption.partition('.')[0]}"


def _panel(summary: Summary, metric: str) -> Panel:
    curves = [
        (
            curve["line"] or summary["title"],
            [
                _at(math.inf if p["across"] is None else p["across"], p["metrics"][metric])
                for p in all_points(curve)
                if metric in p["metrics"]
            ],
        )
        for curve in summary["curves"]
    ]
    same = _same(summary)
    references = [
        (same.get(name, name), means[metric]["mean"])
        for name, means in summary["baselines"].items()
        if metric in means
        and not is_cost(metric)
        and means[metric]["mean"] is not None
        and same.get(name) != ""
    ]
    if metric == "coverage" and (level := summary["job"].get("level")) is not None:
        references.append(("level of the intervals", level))
    goal = summary["goal"]
    if goal is not None and goal["metric"] == metric:
        references.append(("goal", goal["below"] if goal["above"] is None else goal["above"]))
    top = 1.0 if metric in SHARES else math.inf
    from_zero = metric not in (*DIFFERENCES, *NEAR_ONE)
    return Panel(label_of(metric), curves, references, top, from_zero=from_zero)


def _same(summary: Summary) -> dict[str, str]:
    """Return the name of one line for all records, if results are the same in one place.

    "pooled" then has the name "", since it would hide "no noise".
    """
    exact, pooled = (summary["baselines"].get(name, {}) for name in ("no noise", "pooled"))
    shared = [m for m in exact if m in pooled and not is_cost(m)]
    equal = all(
        math.isclose(exact[m]["mean"] or 0.0, pooled[m]["mean"] or 0.0, rel_tol=_SAME)
        for m in shared
    )
    return {"no noise": "no noise, and pooled", "pooled": ""} if shared and equal else {}


def _at(across: float, mean: Mapping[str, Any]) -> At:
    def number(name: str) -> float:
        return math.nan if mean[name] is None else float(mean[name])

    return At(across, number("mean"), number("low"), number("high"))


def _attack_panels(summary: Summary) -> Iterator[Panel]:
    """Yield a panel for each attack: its number, and as dashed lines its control and its limit."""
    rows = [(row["line"], row["across"], row["found"]) for row in summary["attacks"]]
    for name in dict.fromkeys(name for _, _, found in rows for name in found):
        found = [(line, x, each[name]) for line, x, each in rows if each.get(name)]
        if found:
            yield _attack_panel(summary, name, found)


def _round_panels(summary: Summary) -> Iterator[Panel]:
    """Yield a panel for each attack: its number by the sums that the attacker saw."""
    several = len({row["across"] for row in summary["attacks"]}) > 1
    rows = [
        (f"{line}, {across_of(summary)} {row['across']:g}" if several else line, row["by_rounds"])
        for row in summary["attacks"]
        for line in [row["line"] or summary["title"]]
    ]
    for name in dict.fromkeys(name for _, found in rows for name in found):
        found = [(line, each["rounds"], each) for line, of in rows for each in of.get(name, ())]
        yield _attack_panel(summary, name, found)


def _attack_panel(
    summary: Summary, name: str, found: Sequence[tuple[str, float, Numbers]]
) -> Panel:
    """Return the panel of an attack; found: curve, place and numbers

    A lower bound on epsilon is divided by the claimed epsilon, which is a dashed line at 1.
    """
    curves, dashed = dict[str, list[At]](), dict[str, dict[str, list[At]]]()
    claims = any("claim" in numbers for _, _, numbers in found)
    for line, x, numbers in found:
        at = At(x, *(_or_nan(numbers, key) for key in ("value", "low", "high")))
        curves.setdefault(line or summary["title"], []).append(at)
        for key in (_CONTROL, "limit"):
            shown = key
            value = _or_nan(numbers, f"{CONTROL}value" if key == _CONTROL else key)
            if claims and value == 1.0:  # of a ratio of epsilons
                shown = "claimed ε"
            dashed.setdefault(shown, {}).setdefault(line, []).append(At(x, value))
    what = summary["attack_words"].get(name.partition(" ")[0].rstrip(":"), "")
    note = "lower bound on ε that the attack finds, divided by the claimed ε" if claims else what
    errors = any(numbers.get("errors") for _, _, numbers in found)
    lines = list(_dashed(dashed, errors=errors))
    return Panel(name, list(curves.items()), lines, note=note)


def _dashed(
    found: Mapping[str, Mapping[str, Sequence[At]]], *, errors: bool
) -> Iterator[tuple[str, Sequence[At]]]:
    """Yield one dashed line for all curves if they agree.

    Otherwise the weakest control of all curves, and the limit of each curve. errors: whether a
    smaller number is a larger leak
    """
    for name, by_line in found.items():
        drawn = {line: [at for at in of if math.isfinite(at.y)] for line, of in by_line.items()}
        every = dict[float, list[At]]()
        for at in (at for of in drawn.values() for at in of):
            every.setdefault(at.x, []).append(at)
        weakest = [(max if errors else min)(every[x], key=lambda at: at.y) for x in sorted(every)]
        if all(len({f"{at.y:.3g}" for at in of}) == 1 for of in every.values()):
            drawn = {"": weakest}
        elif name == _CONTROL:
            drawn, name = {"": weakest}, f"{name} (weakest)"  # noqa: PLW2901
        for line, of in drawn.items():
            if of:
                yield (f"{name}: {line}" if line else name), of


def _or_nan(numbers: Numbers, key: str) -> float:
    value = number_of(numbers, key)
    return value if math.isfinite(value) else math.nan
