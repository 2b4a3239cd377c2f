"""The page of an experiment: one self-contained file, drawn from its summary.

The page makes no request and runs no script. Its pictures are also files of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from secagg.evidence.numbers import counted, declared, listing, significant
from secagg.reports.experiments.attacks import attack_rows, round_rows
from secagg.reports.experiments.conclusion import conclusion, constant_costs
from secagg.reports.experiments.metrics import (
    METRICS,
    Summary,
    across_of,
    all_points,
    is_cost,
    label_of,
    mean_in_words,
    metrics_of,
    place_of,
)
from secagg.reports.experiments.pictures import pictures
from secagg.reports.page import environment, style_of

_BASELINES = {
    "no noise": "the same job without differential privacy, at all sites",
    "pooled": "the same job over all records in one place, without noise",
    "each site alone": "the same job at each site alone, without noise; the mean over the sites. "
    "If records are drawn anew, a site's own sample counts as its population: chance differences "
    "between sites count as real ones",
    "nothing learned": "slopes of zero, or a graph without edges; for networks, each column on its "
    "own, without noise",
}


def recommendation_lines(summary: Summary) -> list[str]:
    """Return a sentence for each curve: the smallest epsilon that reaches the goal, or none."""
    goal = summary["goal"]
    if goal is None:
        return []
    reached = f"below {goal['below']:g}" if goal["above"] is None else f"above {goal['above']:g}"
    what = f"{label_of(goal['metric'])} {reached} in {100 * goal['share']:g} % of runs"
    measured = {m for c in summary["curves"] for p in c["points"] for m in p["metrics"]}
    if goal["metric"] not in measured:
        return [f"No run has the goal's metric, {label_of(goal['metric'])}."]
    lines = []
    for each in summary["recommendations"]:
        name = each["line"] or summary["title"]
        smallest, points = each["smallest"], each["points"]
        if smallest is None and points and 0 < points[-1]["runs"] == points[-1]["reached"]:
            place = declared(points[-1]["across"])
            why = f"all {points[-1]['runs']} runs at {place} reached the goal"
            needed = f"too few to say at which {across_of(summary)} further ones do"
            if points[-1]["limit"] is None:
                needed += f": values that are zero or equal need {goal['fewest_runs']}"
            lines.append(f"{name}: {why} ({what}), but they are {needed}.")
            continue
        if smallest is None:
            largest = declared(points[-1]["across"]) if points else "none"
            lines.append(f"{name}: no {across_of(summary)} up to {largest} gives {what}.")
            continue
        at_most = "at most " if smallest == points[0]["across"] else ""
        words = f"the smallest {across_of(summary)} with {what} is {at_most}{declared(smallest)}"
        lines.append(f"{name}: {words}.")
    return lines


def experiment_page(summary: Summary) -> str:
    """Return the page."""
    style, digest = style_of("experiment.css", "")
    metrics = metrics_of(summary)
    points = [(curve["line"], p) for curve in summary["curves"] for p in curve["points"]]
    shown = [m for m in metrics if not is_cost(m)]
    page = (
        environment()
        .get_template("experiment.html")
        .render(
            summary=summary,
            across=across_of(summary),
            recommendations=recommendation_lines(summary),
            conclusion=conclusion(summary),
            constant=constant_costs(summary),
            pictures=list(pictures(summary).values()),
            metrics=[(label_of(m), METRICS[m][1]) for m in metrics if m in METRICS],
            head=number_rows(summary)[0][2:],
            rows=number_rows(summary)[1],
            differences=list(_differences(summary, shown)),
            difference_head=[label_of(m) for m in shown],
            goal_rows=list(_goal_rows(summary)),
            attacks=attack_rows(summary),
            by_rounds=round_rows(summary),
            attack_words=summary["attack_words"],
            baselines=_BASELINES,
            runs=counted(sum(p["runs"] for _, p in points), "run"),
            failures=[
                (c["line"], place_of(p), p)
                for c in summary["curves"]
                for p in all_points(c)
                if p["failures"]
            ],
            refused=refused_by_reason(summary),
            waiting=sum(p["waiting"] for c in summary["curves"] for p in all_points(c)),
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
    head = ["curve", across_of(summary), *map(label_of, metrics)]
    return head, list(_rows(summary, metrics))


def _rows(summary: Summary, metrics: list[str]) -> Iterator[list[str]]:
    for name, means in summary["baselines"].items():
        costless = {m: v for m, v in means.items() if not is_cost(m)}
        yield [name, "–", *(mean_in_words(costless.get(m)) for m in metrics)]
    for curve in (*summary["baseline_curves"], *summary["curves"]):
        for point in all_points(curve):
            cells = [mean_in_words(point["metrics"].get(m)) for m in metrics]
            yield [curve["line"] or summary["title"], place_of(point), *cells]


def _differences(summary: Summary, metrics: list[str]) -> Iterator[list[str]]:
    for curve in summary["curves"]:
        for point in curve["points"]:
            more = point["more_than_no_noise"]
            cells = [mean_in_words(more.get(m)) for m in metrics]
            yield [curve["line"] or summary["title"], declared(point["across"]), *cells]


def _goal_rows(summary: Summary) -> Iterator[list[str]]:
    for each in summary["recommendations"]:
        for point in each["points"]:
            limit = "none" if point["limit"] is None else significant(point["limit"], 3)
            reached = f"{point['reached']} of {point['runs']}"
            yield [each["line"] or summary["title"], declared(point["across"]), reached, limit]
