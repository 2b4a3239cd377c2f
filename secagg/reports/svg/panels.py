"""Panels above each other with one horizontal axis: curves with bands, and horizontal references.

Colours are attributes and not part of a page's style, so that a picture is the same on a page and
as a file. It has a white ground, reads in grey, and its description for screen readers has the ends
of each curve. The tables next to it have all numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from secagg.reports.numbers import significant
from secagg.reports.svg import elements
from secagg.reports.svg.line_chart import round_step
from secagg.reports.svg.marks import COLOURS, DASHES, MARKERS

WIDTH, _PLOT = 520.0, 170.0
_LEFT, _RIGHT, _TOP, _GAP, _BOTTOM = 62.0, 18.0, 10.0, 48.0, 40.0
_LEGEND = 20.0
_INK, _GRID = "#222222", "#dddddd"
_FONT = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_LOG_RATIO = 30.0
"""A vertical axis is logarithmic if the largest value is so many times the smallest."""


@dataclass(frozen=True)
class At:
    """A point of a curve, with the ends of its interval; nan if it has none."""

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan


@dataclass(frozen=True)
class Panel:
    """label: of the vertical axis; curves: by name; references: horizontal lines, by name

    top: the largest value that is possible, at which the vertical axis ends
    """

    label: str
    curves: Sequence[tuple[str, Sequence[At]]]
    references: Sequence[tuple[str, float]] = ()
    top: float = math.inf


@dataclass(frozen=True)
class _Scale:
    """From values to pixels; ticks have values and labels."""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: Sequence[tuple[float, str]]

    def __call__(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return self.start + share * (self.end - self.start)


def panels_picture(title: str, across: str, panels: Sequence[Panel]) -> Markup:
    """Draw the panels; their horizontal axis has the places of all points."""
    places = sorted({at.x for panel in panels for _, curve in panel.curves for at in curve})
    names = list(dict.fromkeys(name for panel in panels for name, _ in panel.curves))
    lines = list(dict.fromkeys(name for panel in panels for name, _ in panel.references))
    legend, rows = _legend([*names, *lines])
    top = _TOP + rows * _LEGEND
    height = top + len(panels) * (_PLOT + _GAP) + _BOTTOM
    drawing = elements.root(
        "panels", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        width=f"{WIDTH:.0f}", role="img", font_family=_FONT, font_size="13", fill=_INK,
    )  # fmt: skip
    elements.add(drawing, "title", text=title)
    elements.add(drawing, "desc", text=" ".join(_described(panel, across) for panel in panels))
    elements.add(drawing, "rect", width="100%", height="100%", fill="#ffffff")
    for name, (at, y) in zip([*names, *lines], legend, strict=True):
        _stroke(drawing, [(at, y), (at + 26, y)], *_look(name, names, lines))
        if name in names:
            _mark(drawing, names.index(name), at + 13, y)
        _text(drawing, name, at + 33, y + 4, "start")
    x = _horizontal(places)
    for row, panel in enumerate(panels):
        base = top + row * (_PLOT + _GAP) + _GAP + _PLOT
        _plot(drawing, panel, x, base, (names, lines))
    _text(drawing, across, (x.start + x.end) / 2, height - 8)
    return elements.markup(drawing)


def _described(panel: Panel, across: str) -> str:
    def ends(curve: Sequence[At]) -> str:
        return "; ".join(f"{significant(a.y)} at {a.x:g}" for a in (curve[0], curve[-1]))

    curves = ". ".join(f"{name}: {ends(curve)}" for name, curve in panel.curves if curve)
    lines = ". ".join(f"{name}: {significant(value)}" for name, value in panel.references)
    return f"{panel.label} by {across}. {curves}. {lines}."


def _legend(names: Sequence[str]) -> tuple[list[tuple[float, float]], int]:
    """Return where each entry begins, and the number of rows."""
    found: list[tuple[float, float]] = []
    x, row = 10.0, 0
    for name in names:
        size = 50 + 7.4 * len(name)  # wide enough for the usual fonts
        if found and x + size > WIDTH:
            x, row = 10.0, row + 1
        found.append((x, _TOP + 8 + row * _LEGEND))
        x += size
    return found, row + 1


def _horizontal(places: Sequence[float]) -> _Scale:
    low, high = places[0], places[-1]
    log = low > 0 and high / low > 4
    margin = (high / low) ** 0.04 if log else 0.04 * (high - low or 1.0)
    ends = (low / margin, high * margin) if log else (low - margin, high + margin)
    return _Scale(*ends, _LEFT, WIDTH - _RIGHT, log, [(place, f"{place:g}") for place in places])


def _vertical(panel: Panel, base: float) -> _Scale:
    values = [
        value
        for _, curve in panel.curves
        for at in curve
        for value in (at.y, at.low, at.high)
        if math.isfinite(value)
    ]
    values += [value for _, value in panel.references if math.isfinite(value)]
    means = [at.y for _, curve in panel.curves for at in curve if math.isfinite(at.y)]
    top, least = max(values, default=1.0), min(means, default=0.0)
    if math.isfinite(panel.top):
        marks = [panel.top * i / 4 for i in range(5)]
        ticks = [(mark, f"{mark:g}") for mark in marks]
        return _Scale(0.0, panel.top, base, base - _PLOT, False, ticks)
    if least > 0 and top / least > _LOG_RATIO:
        powers = range(math.floor(math.log10(least)), math.ceil(math.log10(top)) + 1)
        ticks = [(10.0**power, f"{10.0**power:,g}") for power in powers]
        return _Scale(ticks[0][0], ticks[-1][0], base, base - _PLOT, True, ticks)
    bottom = min(0.0, min(values, default=0.0))
    step = round_step((top - bottom) or 1.0, 5)
    count = range(math.floor(bottom / step), math.ceil(top / step - 1e-9) + 1)
    ticks = [(i * step, f"{i * step:,.6g}") for i in (count if len(count) > 1 else range(2))]
    return _Scale(ticks[0][0], ticks[-1][0], base, base - _PLOT, False, ticks)


def _plot(
    drawing: elements.Element, panel: Panel, x: _Scale, base: float,
    known: tuple[Sequence[str], Sequence[str]],
) -> None:  # fmt: skip
    """Draw one panel, whose horizontal axis is at `base`."""
    names, lines = known
    y = _vertical(panel, base)
    _text(drawing, panel.label, 8, base - _PLOT - 12, "start", weight="600")
    for value, label in y.ticks:
        _stroke(drawing, [(x.start, y(value)), (x.end, y(value))], _GRID, "", 1.0)
        _text(drawing, label, _LEFT - 7, y(value) + 4, "end")
    for value, label in x.ticks:
        _stroke(drawing, [(x(value), base), (x(value), base + 5)], _INK, "", 1.0)
        _text(drawing, label, x(value), base + 18)
    for name, value in panel.references:
        if math.isfinite(value):
            _stroke(drawing, [(x.start, y(value)), (x.end, y(value))], *_look(name, names, lines))
    for name, curve in panel.curves:
        band = [at for at in curve if math.isfinite(at.low) and math.isfinite(at.high)]
        if len(band) > 1:
            corners = [(x(at.x), y(at.high)) for at in band]
            corners += [(x(at.x), y(at.low)) for at in reversed(band)]
            path = " L".join(f"{a:.1f} {b:.1f}" for a, b in corners)
            colour = COLOURS[names.index(name) % len(COLOURS)]
            elements.add(drawing, "path", d=f"M{path}z", fill=colour, fill_opacity="0.15")
    for name, curve in panel.curves:
        drawn = [(x(at.x), y(at.y)) for at in curve if math.isfinite(at.y)]
        if len(drawn) > 1:
            _stroke(drawing, drawn, *_look(name, names, lines))
        for at in drawn:
            _mark(drawing, names.index(name), *at)


def _look(name: str, names: Sequence[str], lines: Sequence[str]) -> tuple[str, str, float]:
    """Return colour, dashes and width of a curve or a reference."""
    if name in names:
        return COLOURS[names.index(name) % len(COLOURS)], "", 2.0
    return "#555555", DASHES[lines.index(name) % len(DASHES)], 1.5


def _mark(drawing: elements.Element, index: int, x: float, y: float) -> None:
    colour = COLOURS[index % len(COLOURS)]
    elements.add(
        drawing, "path", d=MARKERS[index % len(MARKERS)], fill=colour, stroke=colour,
        transform=f"translate({x:.1f} {y:.1f})",
    )  # fmt: skip


def _stroke(
    drawing: elements.Element, points: Sequence[tuple[float, float]], colour: str, dashes: str,
    width: float,
) -> None:  # fmt: skip
    path = " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    style = {"stroke_dasharray": dashes} if dashes else {}
    elements.add(
        drawing,
        "path",
        d=f"M{path}",
        fill="none",
        stroke=colour,
        stroke_width=f"{width:g}",
        **style,
    )


def _text(
    drawing: elements.Element, text: str, x: float, y: float, anchor: str = "middle",
    weight: str = "",
) -> None:  # fmt: skip
    style = {"font_weight": weight} if weight else {}
    elements.add(
        drawing, "text", text=text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, **style
    )
