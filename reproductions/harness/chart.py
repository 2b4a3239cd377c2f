"""A figure as an SVG file: a row of plots for each panel, one plot for each metric.

The plots show means with bars of one standard error, as in the papers. Columns are evenly spaced.
Methods are shifted by a few pixels so that their bars do not overlap. The tables below the picture
give the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from reproductions.harness import svg
from reproductions.harness.figures import (
    Entries,
    Figure,
    Method,
    Metric,
    Panel,
    Place,
    mean_and_error,
)
from reproductions.harness.svg import COLOURS, MARKERS

WIDTH, HEIGHT = 250.0, 170.0  # of a plot's area
LEFT, GAP, TOP, BOTTOM, ROW = 76.0, 46.0, 66.0, 44.0, 62.0
LEGEND, ENTRY = 20.0, 20.0  # height of a legend line; width of a legend mark
METHOD_SPACING = 3.5  # pixels between methods at one column

STYLE = (
    ".grid{stroke:#ddd}.axis{stroke:#555}"
    ".mean{fill:none;stroke-width:1.8}.error{stroke-width:1.2}.mark{stroke-width:1.4}"
)


def chart(figure: Figure, entries: Entries) -> str:
    """Return the figure as the text of an SVG file."""
    # A method that was not run keeps its colour, so that colours match across pictures.
    drawn = [method for method in figure.methods if method.drawn]
    not_run = figure.methods_not_run()
    shown = [(i, method) for i, method in enumerate(drawn) if method not in not_run]
    plots = len(figure.metrics)
    width = LEFT + plots * WIDTH + (plots - 1) * GAP + 20
    legend, lines = _legend_positions([method for _, method in shown], width)
    top = TOP + lines * LEGEND
    height = top + len(figure.panels) * (HEIGHT + ROW) - ROW + BOTTOM
    drawing = svg.drawing("chart", figure.title, width, height, STYLE)
    for (i, method), (x, y) in zip(shown, legend, strict=True):
        svg.add(
            drawing, "path", "mean", d=f"M{x:.1f} {y:.1f}h{ENTRY:.0f}", stroke=_colour(i),
        )  # fmt: skip
        _marker(drawing, i, x + ENTRY / 2, y)
        svg.add(drawing, "text", text=method.label, x=f"{x + ENTRY + 6:.1f}", y=f"{y + 4:.1f}")
    for row, panel in enumerate(figure.panels):
        y = top + row * (HEIGHT + ROW)
        for column, metric in enumerate(figure.metrics):
            x = LEFT + column * (WIDTH + GAP)
            _plot(drawing, entries, drawn, panel, metric, (x, y))
    return svg.as_file(drawing)


def _legend_positions(
    drawn: Sequence[Method], width: float
) -> tuple[list[tuple[float, float]], int]:
    """Return the start of each method's mark, and the number of legend lines."""
    positions: list[tuple[float, float]] = []
    x, line = 12.0, 0
    for method in drawn:
        size = ENTRY + 18 + 8.0 * len(method.label)  # wide enough for the usual fonts
        if positions and x + size > width:
            x, line = 12.0, line + 1
        positions.append((x, 44 + line * LEGEND))
        x += size
    return positions, line + 1


def _plot(
    drawing: svg.Element,
    entries: Entries,
    drawn: Sequence[Method],
    panel: Panel,
    metric: Metric,
    corner: tuple[float, float],
) -> None:
    """Draw one metric of one panel, with the upper left corner of the plot at `corner`."""
    left, top = corner
    base = top + HEIGHT
    means = {
        (i, column): mean_and_error(entry.values.get(metric.name, {}).values())
        for i, method in enumerate(drawn)
        for column in panel.columns
        if (entry := entries.get(Place(panel.name, column, method.name))) is not None
    }
    largest = max(
        (mean + (error or 0) for mean, error in means.values() if mean is not None), default=0
    )
    step = _step(metric.top or largest or 1.0)
    ceiling = metric.top or step * math.ceil(largest / step - 1e-9) or step

    def x(column: float, method: int) -> float:
        fraction = (panel.columns.index(column) + 0.5) / len(panel.columns)
        return left + fraction * WIDTH + (method - (len(drawn) - 1) / 2) * METHOD_SPACING

    def y(value: float) -> float:
        return base - min(value / ceiling, 1.0) * HEIGHT

    svg.add(drawing, "text", "name", text=f"{metric.label}, {panel.name}", x=f"{left:.1f}",
            y=f"{top - 9:.1f}")  # fmt: skip
    for i in range(round(ceiling / step) + 1):
        tick = y(i * step)
        svg.add(drawing, "line", "axis" if i == 0 else "grid", x1=f"{left:.1f}",
                x2=f"{left + WIDTH:.1f}", y1=f"{tick:.1f}", y2=f"{tick:.1f}")  # fmt: skip
        svg.add(drawing, "text", text=f"{i * step:g}", x=f"{left - 7:.1f}",
                y=f"{tick + 4:.1f}", text_anchor="end")  # fmt: skip
    for column in panel.columns:
        middle = f"{x(column, 0) + (len(drawn) - 1) / 2 * METHOD_SPACING:.1f}"
        svg.add(drawing, "text", text=f"{column:g}", x=middle, y=f"{base + 17:.1f}",
                text_anchor="middle")  # fmt: skip
    svg.add(drawing, "text", text=panel.across, x=f"{left + WIDTH / 2:.1f}",
            y=f"{base + 34:.1f}", text_anchor="middle")  # fmt: skip
    for i in range(len(drawn)):
        entries_of_method = [(x(c, i), *means[i, c]) for c in panel.columns if (i, c) in means]
        points = [(px, mean, error) for px, mean, error in entries_of_method if mean is not None]
        if len(points) > 1:
            path = " L".join(f"{px:.1f} {y(mean):.1f}" for px, mean, _ in points)
            svg.add(drawing, "path", "mean", d=f"M{path}", stroke=_colour(i))
        for px, mean, error in points:
            if error:
                low, high = y(max(mean - error, 0)), y(mean + error)
                bar = f"M{px:.1f} {low:.1f}V{high:.1f}M{px - 3:.1f} {low:.1f}h6"
                svg.add(drawing, "path", "error", d=f"{bar}M{px - 3:.1f} {high:.1f}h6",
                        stroke=_colour(i))  # fmt: skip
            _marker(drawing, i, px, y(mean))


def _marker(drawing: svg.Element, index: int, x: float, y: float) -> None:
    svg.add(drawing, "path", "mark", d=MARKERS[index % len(MARKERS)], fill=_colour(index),
            stroke=_colour(index), transform=f"translate({x:.1f} {y:.1f}) scale(.8)")  # fmt: skip


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _step(largest: float) -> float:
    """Return a round step that divides an axis from 0 to `largest` into about 4 to 8 parts."""
    limit = largest / 4
    power = 10.0 ** math.floor(math.log10(limit))
    return power * max(lead for lead in (1, 2, 2.5, 5) if lead * power <= limit * (1 + 1e-9))
