"""Panels above each other with one horizontal axis: curves with bands, and dashed references.

The description for screen readers has the ends of each curve. The tables next to a picture have all
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from secagg.evidence.numbers import significant
from secagg.reports.svg import elements
from secagg.reports.svg.marks import COLOURS
from secagg.reports.svg.plot import (
    INK,
    LEFT,
    NO_NOISE,
    PLOT,
    RIGHT,
    WIDTH,
    At,
    Scale,
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

_GAP, _NOTE, _BOTTOM = 48.0, 22.0, 40.0
_BEYOND = 70.0  # room for the place without noise
_TICK = 20.0  # between the middles of two labels
_CHARACTER = 7.4

Curve = tuple[str, Sequence[At]]


@dataclass(frozen=True)
class Panel:
    """label: of the vertical axis; curves: by name

    references: dashed lines by name, each with its value, or with values along the axis
    top: the largest value that is possible, at which the vertical axis ends
    note: what the label means, in smaller letters
    from_zero: whether the vertical axis has 0
    """

    label: str
    curves: Sequence[Curve]
    references: Sequence[tuple[str, float | Sequence[At]]] = ()
    top: float = math.inf
    note: str = ""
    from_zero: bool = True


def panels_picture(title: str, across: str, panels: Sequence[Panel]) -> Markup:
    """Draw the panels; their horizontal axis has the places of all points."""
    places = sorted({at.x for panel in panels for _, curve in panel.curves for at in curve})
    names = list(dict.fromkeys(name for panel in panels for name, _ in panel.curves))
    lines = list(dict.fromkeys(name for panel in panels for name, _ in panel.references))
    legend, top = legend_places([*names, *lines])
    gap = _GAP + (_NOTE if any(panel.note for panel in panels) else 0.0)
    height = top + len(panels) * (PLOT + gap) + _BOTTOM
    described = " ".join(_described(panel, across) for panel in panels)
    drawing = ground(height, title, described)
    for name, (at, y) in zip([*names, *lines], legend, strict=True):
        stroke(drawing, [(at, y), (at + 26, y)], *_look(name, names, lines))
        if name in names:
            mark(drawing, names.index(name), at + 13, y)
        text(drawing, name, at + 33, y + 4, "start")
    x = _horizontal(places)
    for row, panel in enumerate(panels):
        base = top + row * (PLOT + gap) + gap + PLOT
        _plot(drawing, panel, x, base, (names, lines))
    text(drawing, across, (x.start + x.end) / 2, height - 8)
    return elements.markup(drawing)


def _described(panel: Panel, across: str) -> str:
    def ends(curve: Sequence[At]) -> str:
        return "; ".join(f"{significant(a.y)} at {place_label(a.x)}" for a in (curve[0], curve[-1]))

    def value(reference: float | Sequence[At]) -> str:
        return significant(reference) if isinstance(reference, float | int) else ends(reference)

    curves = ". ".join(f"{name}: {ends(curve)}" for name, curve in panel.curves if curve)
    lines = ". ".join(f"{name}: {value(of)}" for name, of in panel.references)
    return f"{panel.label} by {across}. {curves}. {lines}."


def _horizontal(places: Sequence[float]) -> Scale:
    endless, places = places[-1] == math.inf, [place for place in places if place < math.inf]
    low, high = places[0], places[-1]
    right = WIDTH - RIGHT - (_BEYOND if endless else 0.0)
    log = low > 0 and high / low > 4
    margin = (high / low) ** 0.04 if log else 0.04 * (high - low or 1.0)
    ends = (low / margin, high * margin) if log else (low - margin, high + margin)
    every = Scale(*ends, LEFT, right, log, [(place, place_label(place)) for place in places])
    ticks, free = list[tuple[float, str]](), -math.inf
    for value, label in every.ticks:  # labels that would lie on each other are left out
        half = max(_TICK, _CHARACTER * len(label)) / 2
        if every(value) - half >= free:
            ticks.append((value, label))
            free = every(value) + half
    if not endless:
        return Scale(*ends, LEFT, right, log, ticks)
    beyond = WIDTH - RIGHT - _BEYOND / 2
    return Scale(*ends, LEFT, right, log, [*ticks, (math.inf, NO_NOISE)], beyond)


def _plot(
    drawing: elements.Element, panel: Panel, x: Scale, base: float,
    known: tuple[Sequence[str], Sequence[str]],
) -> None:  # fmt: skip
    """Draw one panel, whose horizontal axis is at `base`."""
    names, lines = known
    references = [(name, _along(of, x)) for name, of in panel.references]
    points = [at for _, curve in panel.curves for at in curve]
    fixed = [value for _, value in panel.references if isinstance(value, float | int)]
    along = [at.y for _, of in panel.references if not isinstance(of, float | int) for at in of]
    y = vertical_scale(points, fixed, panel.top, base, along, from_zero=panel.from_zero)
    axis(drawing, panel.label, y, (x.start, WIDTH - RIGHT), panel.note)
    for value, label in x.ticks:
        stroke(drawing, [(x(value), base), (x(value), base + 5)], INK, "", 1.0)
        text(drawing, label, x(value), base + 18)
    for name, line in references:
        if line:
            drawn = [(at, y(value)) for at, value in line]
            stroke(drawing, drawn, *_look(name, names, lines))
    for name, curve in panel.curves:
        band = [at for at in curve if at.has_interval and at.x < math.inf]
        if len(band) > 1:
            corners = [(x(at.x), y(at.high)) for at in band]
            corners += [(x(at.x), y(at.low)) for at in reversed(band)]
            path = " L".join(f"{a:.1f} {b:.1f}" for a, b in corners)
            colour = COLOURS[names.index(name) % len(COLOURS)]
            elements.add(drawing, "path", d=f"M{path}z", fill=colour, fill_opacity="0.15")
    for name, curve in panel.curves:
        exist = [at for at in curve if math.isfinite(at.y)]
        joined = [(x(at.x), y(at.y)) for at in exist if at.x < math.inf]
        if len(joined) > 1:
            stroke(drawing, joined, *_look(name, names, lines))
        for at in exist:
            mark(drawing, names.index(name), x(at.x), y(at.y))


def _along(reference: float | Sequence[At], x: Scale) -> list[tuple[float, float]]:
    """Return where a reference is drawn: pixels from the left, and values that exist."""
    values = [] if isinstance(reference, float | int) else [(x(at.x), at.y) for at in reference]
    values = [(at, value) for at, value in values if math.isfinite(value)]
    if isinstance(reference, float | int):
        reference = float(reference)
    elif len(values) == 1:  # a single place is no line
        reference = values[0][1]
    else:
        return values
    return [(x.start, reference), (WIDTH - RIGHT, reference)] if math.isfinite(reference) else []


def _look(name: str, names: Sequence[str], lines: Sequence[str]) -> tuple[str, str, float]:
    """Return colour, dashes and width of a curve or a reference."""
    return curve_look(names.index(name)) if name in names else reference_look(lines.index(name))
