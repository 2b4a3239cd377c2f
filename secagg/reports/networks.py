"""What the report and the terminal show of a trained network: graph, losses, calibration.

A neural graphical model has an undirected graph, with the number of sites that voted for each edge
(`fedngm`) or its path norm (`fedngr`). With noise there are no losses and no calibration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from secagg.evidence import numbers as written
from secagg.reports.results import Block, Summary
from secagg.reports.svg import graph
from secagg.reports.svg.xy_chart import calibration_picture, loss_picture

MAX_LOSSES = 10
"""Rounds in the table of losses; result.json has all of them."""
MAX_PLOTS = 12
"""Levels with a plot; the table has all of them."""


@dataclass(frozen=True)
class Tenth:
    """The records whose predicted probability of a level is in one tenth of [0, 1]."""

    variable: str
    probability: float
    records: int
    share: float

    @property
    def error(self) -> float:
        """The binomial standard error of the observed share, sqrt(s (1 - s) / n)."""
        return math.sqrt(self.share * (1 - self.share) / self.records)


def edges_table(summary: Summary, min_sites: int) -> tuple[str, list[tuple[str, str, str]]]:
    """Return the heading of the numbers of edges, "" if there are none, and the edges' rows.

    The strongest edges come first. min_sites: a smaller number of votes is not in the result
    """
    edges: Sequence[Summary] = summary["edges"]
    key = next((key for key in ("votes", "path_norm") if any(key in e for e in edges)), "")
    if key:
        edges = sorted(edges, key=lambda edge: -(edge[key] or 0))

    def number(edge: Summary) -> str:
        if key == "votes":
            return f"fewer than {min_sites}" if edge[key] is None else written.count(edge[key])
        return written.significant(edge[key], 3) if key else ""

    heading = {"votes": "Votes", "path_norm": "Path norm", "": ""}[key]
    return heading, [(*edge["between"], number(edge)) for edge in edges]


def losses_table(losses: Sequence[float]) -> list[tuple[int, str]]:
    """Return (round, loss) of evenly spaced rounds, with the first and the last."""
    last = len(losses) - 1
    parts = min(MAX_LOSSES - 1, max(last, 1))
    chosen = sorted({round(i * last / parts) for i in range(parts + 1)})
    return [(i + 1, written.significant(losses[i])) for i in chosen]


def derivatives_table(summary: Summary) -> list[tuple[str, ...]]:
    """Return each column with the mean size of its output's derivatives, by kind of input."""
    return [
        (row["column"], *(written.significant(row[kind], 3) for kind in ("self", "edges", "other")))
        for row in summary.get("derivatives", ())
    ]


def tenths(summary: Summary) -> dict[str, list[Tenth]]:
    """Return the tenths of each level; none where all have too few records."""
    return {
        level["variable"]: [Tenth(variable=level["variable"], **t) for t in level["tenths"]]
        for level in summary.get("calibration", ())
    }


def of_network(block: Block, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a network."""
    summary, losses = block.summary, block.summary.get("losses", ())
    levels = tenths(summary)
    drawn = {name: found for name, found in levels.items() if found}
    return {
        "graph": _graph(block, facts) if "edges" in summary else None,
        "linear_inputs": [f"{a} – {b}" for a, b in summary.get("linear_inputs", ())],
        "derivatives": derivatives_table(summary),
        "losses": losses_table(losses) if losses else [],
        "loss_picture": _loss_picture(losses),
        "calibration": [tenth for found in drawn.values() for tenth in found],
        "calibration_pictures": [
            (name, _calibration_picture(name, found))
            for name, found in list(drawn.items())[:MAX_PLOTS]
        ],
        "not_calibrated": [name for name, found in levels.items() if not found],
    }


def _loss_picture(losses: Sequence[float]) -> Markup | None:
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return None
    return loss_picture(losses, "Loss by round")


def _calibration_picture(name: str, found: Sequence[Tenth]) -> Markup:
    points = [(tenth.probability, tenth.share, tenth.error) for tenth in found]
    return calibration_picture(points, f"Calibration of {name}")


def _graph(block: Block, facts: Mapping[str, Any]) -> dict[str, Any]:
    names: Sequence[str] = block.summary["names"]
    heading, rows = edges_table(block.summary, facts["job"]["release"]["min_sites"])
    edges = [graph.Edge(a, b, False, None, "dependent") for a, b, _ in rows]
    shown: dict[str, Any] = {
        "names": names,
        "heading": heading,
        "rows": rows,
        "sites": len(facts["cohort"]),
        "drawing": None,
    }
    if len(names) <= graph.MAX_DRAWN:
        order = graph.round_order(names, [(edge.source, edge.target) for edge in edges])
        shown["drawing"] = graph.graph_picture(order, edges, f"{block.title}: the graph")
    return shown
