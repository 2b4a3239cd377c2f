"""Curves side by side: one column for each, with a mark and its interval at some places.

Where the curves are placements of noise, the picture shows error against placement. Colours and
marks of the curves are those of `panels`, the columns have names, and each mark has its place below
it, so that the picture reads in grey.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from markupsafe import Markup

from secagg.evidence.numbers import significant
from secagg.reports.svg import elements
from secagg.reports.svg.panels import Curve, Panel
from secagg.reports.svg.plot import (
    GRID,
    LEFT,
    PLOT,
    RIGHT,
    WIDTH,
    At,
    axis,
    curve_look,
    ground,
    legend_places,
    mark,
    place_label,
    reference_look,
    stroke,
    text,
    vertical_scale,
)

_IN_A_ROW = 4  # columns; further curves have rows of their own
_GAP, _BOTTOM, _LINE = 48.0, 26.0, 16.0
_SMALL, _CHARACTER = 6.6, 8.2  # width of a character of the places, and of the names
_CAP = 3.5


def side_by_side_picture(title: str, across: str, panel: Panel) -> Markup:
    """Draw a panel's curves side by side. References have one value each, or are left out."""
    lines = [(name, of) for name, of in panel.references if isinstance(of, float | int)]
    legend, top = legend_places([name for name, _ in lines])
    top = top if lines else 0.0
    rows = [panel.curves[i : i + _IN_A_ROW] for i in range(0, len(panel.curves), _IN_A_ROW)]
    width = (WIDTH - LEFT - RIGHT) / len(rows[0])
    names = [[_wrapped(name, width) for name, _ in row] for row in rows]
    under = [max(map(len, row)) * _LINE + 28 for row in names]
    height = top + len(rows) * (PLOT + _GAP) + sum(under) + _BOTTOM
    drawing = ground(height, title, _described(panel, across))
    for i, ((name, _), (left, above)) in enumerate(zip(lines, legend, strict=True)):
        stroke(drawing, [(left, above), (left + 26, above)], *reference_look(i))
        text(drawing, name, left + 33, above + 4, "start")
    places = _some_places(panel.curves, width)
    points = [at for _, curve in panel.curves for at in curve if at.x in places]
    base, first = top, 0
    for row, below, wrapped in zip(rows, under, names, strict=True):
        base += _GAP + PLOT
        y = vertical_scale(
            points, [value for _, value in lines], panel.top, base, from_zero=panel.from_zero
        )
        end = LEFT + width * len(row)
        axis(drawing, panel.label, y, (LEFT, end))
        for i, (_, value) in enumerate(lines):
            if math.isfinite(value):
                stroke(drawing, [(LEFT, y(value)), (end, y(value))], *reference_look(i))
        for k, (_, curve) in enumerate(row):
            left = LEFT + k * width
            if k:
                stroke(drawing, [(left, base + 22), (left, base - PLOT)], GRID, "", 1.0)
            for at in curve:
                if at.x in places:
                    middle = left + width * (places.index(at.x) + 0.5) / len(places)
                    text(drawing, _short(at.x), middle, base + 16, size="11")
                    _marked(drawing, first + k, middle, [y(v) for v in (at.y, at.low, at.high)])
            for line, words in enumerate(wrapped[k]):
                text(drawing, words, left + width / 2, base + 36 + line * _LINE, weight="600")
        base, first = base + below, first + len(row)
    text(drawing, across, (LEFT + WIDTH - RIGHT) / 2, height - 8)
    return elements.markup(drawing)


def _marked(drawing: elements.Element, index: int, x: float, at: Sequence[float]) -> None:
    """Draw a mark with its interval; at: pixels of mean, low and high, nan if there is none."""
    middle, low, high = at
    if not math.isfinite(middle):
        return
    if math.isfinite(low) and math.isfinite(high):
        colour, _, size = curve_look(index)
        stroke(drawing, [(x, low), (x, high)], colour, "", size)
        for end in (low, high):
            stroke(drawing, [(x - _CAP, end), (x + _CAP, end)], colour, "", size)
    mark(drawing, index, x, middle)


def _some_places(curves: Sequence[Curve], width: float) -> list[float]:
    """Return as many places as have room in a column, evenly chosen, the ends among them."""
    places = sorted({at.x for _, curve in curves for at in curve})
    room = max(2, int(width / (_SMALL * max(len(_short(x)) for x in places) + 4)))
    if len(places) <= room:
        return places
    return [places[round(i * (len(places) - 1) / (room - 1))] for i in range(room)]


def _short(place: float) -> str:
    return "none" if place == math.inf else f"{place:g}"


def _wrapped(name: str, width: float) -> list[str]:
    return textwrap.wrap(name, max(6, int((width - 10) / _CHARACTER)))


def _described(panel: Panel, across: str) -> str:
    def ends(curve: Sequence[At]) -> str:
        return "; ".join(
            f"{significant(a.y)} at {across} {place_label(a.x)}" for a in (curve[0], curve[-1])
        )

    curves = ". ".join(f"{name}: {ends(curve)}" for name, curve in panel.curves if curve)
    return f"{panel.label} by curve. {curves}."
