"""Curves and points between two axes, each linear or logarithmic, as inline SVG.

Colours come from the page's style; lines also differ in their dashes and have their names beside
them in a legend. The description for screen readers says what is drawn, and a table next to each
picture has the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from secagg.evidence.numbers import counted, fixed, power_of_ten, probability, significant
from secagg.reports.svg import elements

_WIDTH, _HEIGHT = 440.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 16.0, 30.0, 44.0
_LEGEND = 18.0
_SQUARE, _MARGIN = 190.0, 40.0
_DASHES = ("", "6 4", "2 3", "9 3 2 3")
_STEPS = (1, 2, 2.5, 5, 10)
_MOST_POINTS = 60  # drawn as points on a line
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """low and high: its ends, low < high; log: logarithmic, both above 0 then

    marks: values with a tick and their labels; () for evenly spaced ones
    """

    label: str
    low: float
    high: float
    log: bool = False
    marks: Sequence[tuple[float, str]] = ()

    @classmethod
    def round(cls, label: str, low: float, high: float, parts: int) -> Axis:
        """Return a linear axis that contains low and high, with ticks at round values."""
        step = round_step(high - low or abs(low) or 1.0, parts)
        first = math.floor(low / step + 1e-9)
        last = max(math.ceil(high / step - 1e-9), first + 1)
        marks = [(i * step, f"{i * step:.10g}") for i in range(first, last + 1)]
        return cls(label, first * step, last * step, marks=marks)

    def share(self, value: float) -> float:
        """Return where a value lies between the ends, from 0 to 1; values outside are moved in."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> Sequence[tuple[float, str]]:
        """The values with a tick, and their labels."""
        if self.marks:
            return self.marks
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9),
                           math.floor(math.log10(self.high) + 1e-9) + 1)  # fmt: skip
            if len(powers) > 1:
                return [(10.0**power, _power(power)) for power in powers]
            return [(value, f"{value:g}") for value in (self.low, self.high)]
        values = [self.low + i * (self.high - self.low) / 4 for i in range(5)]
        return [(value, f"{value:g}") for value in values]


def xy_picture(
    title: str,
    lines: Sequence[tuple[str, Points]],
    x: Axis,
    y: Axis,
    *,
    description: str = "",
    diagonal: bool = False,
    ring: tuple[float, float] | None = None,
) -> Markup:
    """Draw each line with its name; one named "" is not in the legend.

    diagonal: also the line y = x, of the same axes; ring: a point with a circle around it
    """
    named = [name for name, _ in lines if name]
    top = _TOP + _LEGEND * len(named)  # below the axis's name and the legend
    base = top + _HEIGHT - _BOTTOM - 30

    def px(value: float) -> float:
        return _LEFT + x.share(value) * (_WIDTH - _LEFT - _RIGHT)

    def py(value: float) -> float:
        return base - y.share(value) * (base - top)

    ends = "; ".join(f"{name}: {_at(points[0])}, {_at(points[-1])}" for name, points in lines)
    words = description or f"{y.label} by {x.label}. {ends}."
    drawing = _ground("curve", (_WIDTH, base + _BOTTOM), title, words)
    for value, label in y.ticks:
        _line(drawing, "grid", (px(x.low), py(value)), (px(x.high), py(value)))
        _text(drawing, label, _LEFT - 7, py(value) + 4, "end")
    for value, label in x.ticks:
        _line(drawing, "axis", (px(value), base), (px(value), base + 5))
        _text(drawing, label, px(value), base + 19)
    if diagonal:
        shared = [x.low + i * (x.high - x.low) / 60 for i in range(61)]
        if x.log:
            shared = [x.low * (x.high / x.low) ** (i / 60) for i in range(61)]
        _path(drawing, "reference", [(px(at), py(at)) for at in shared])
    for i, (name, points) in enumerate(lines):
        dashes, at = _DASHES[i % len(_DASHES)], _TOP + _LEGEND * i
        if name:
            _path(drawing, "line", [(_LEFT, at), (_LEFT + 28, at)], dashes)
            _text(drawing, name, _LEFT + 36, at + 4, "start")
        _path(drawing, "line", [(px(a), py(b)) for a, b in points], dashes)
        for a, b in points if len(points) <= _MOST_POINTS else points[-1:]:
            _circle(drawing, "point", px(a), py(b), "2.5")
    if ring is not None:
        _circle(drawing, "guarantee", px(ring[0]), py(ring[1]), "5.5")
    _text(drawing, y.label, 8, 14, "start", "name")
    _text(drawing, x.label, (_LEFT + _WIDTH - _RIGHT) / 2, base + _BOTTOM - 6, "middle", "name")
    return elements.markup(drawing)


def curve_picture(points: Points, guaranteed: tuple[float, float]) -> Markup:
    """Draw epsilon at each delta, all of which hold together, and the guaranteed pair.

    All are (delta, epsilon), finite.
    """
    drawn = sorted(points)
    exponents = [math.log10(delta) for delta, _ in (*drawn, guaranteed)]
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    every = max(1, math.ceil((high - low) / 7))
    marks = [(10.0**power, power_of_ten(power)) for power in range(low, high + 1, every)]
    x = Axis("δ", 10.0**low, 10.0**high, log=True, marks=marks)
    y = Axis.round("ε", 0.0, max(epsilon for _, epsilon in (*drawn, guaranteed)), 5)
    listed = "; ".join(f"{significant(e)} at {probability(d)}" for d, e in drawn)
    words = f"Epsilon {listed}. Guaranteed: {significant(guaranteed[1])}."
    title = "Epsilon of the whole run at each delta"
    return xy_picture(title, [("", drawn)], x, y, description=words, ring=guaranteed)


def loss_picture(losses: Sequence[float], title: str) -> Markup:
    """Draw the loss of each round, joined by a line. The first round is 1; all losses are finite.

    The vertical axis begins below the smallest loss, not at zero.
    """
    last = max(len(losses), 2)
    every = max(1, math.ceil(round_step(len(losses), 7)))
    numbers = [1, *range(every, len(losses) + 1, every)] if every > 1 else range(1, last + 1)
    x = Axis("round", 1.0, float(last), marks=[(float(n), str(n)) for n in numbers])
    y = Axis.round("loss", min(losses), max(losses), 4)
    words = (
        f"{counted(len(losses), 'round')}; loss {significant(losses[0])} in the first, "
        f"{significant(losses[-1])} in the last, at least {significant(min(losses))}."
    )
    points = [(float(i), loss) for i, loss in enumerate(losses, start=1)]
    return xy_picture(title, [("", points)], x, y, description=words)


def calibration_picture(points: Sequence[tuple[float, float, float]], title: str) -> Markup:
    """Draw (probability, share, standard error) with the diagonal; bars of two standard errors."""
    height = _SQUARE + 52

    def x(probability: float) -> float:
        return _MARGIN + probability * _SQUARE

    def y(share: float) -> float:
        return 8 + (1 - min(max(share, 0.0), 1.0)) * _SQUARE

    listed = "; ".join(f"{fixed(s, 2)} at {fixed(p, 2)}" for p, s, _ in points)
    words = f"Observed share by predicted probability: {listed}."
    drawing = _ground("curve calibration", (_MARGIN + _SQUARE + 14, height), title, words)
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        _line(drawing, "grid", (x(0), y(tick)), (x(1), y(tick)))
        _line(drawing, "axis", (x(tick), y(0)), (x(tick), y(0) + 5))
        if tick not in {0.25, 0.75}:
            _text(drawing, f"{tick:g}", x(0) - 6, y(tick) + 4, "end")
            _text(drawing, f"{tick:g}", x(tick), y(0) + 18)
    _line(drawing, "reference", (x(0), y(0)), (x(1), y(1)))
    for p, share, error in points:
        _line(drawing, "interval", (x(p), y(share - 2 * error)), (x(p), y(share + 2 * error)))
        _circle(drawing, "point", x(p), y(share), "3.5")
    _text(drawing, "predicted probability", x(0.5), height - 6)
    return elements.markup(drawing)


def round_step(spread: float, parts: int) -> float:
    """Return a round step that divides a spread into at most `parts` parts. Both above 0."""
    power = 10.0 ** math.floor(math.log10(spread / parts))
    return power * min(step for step in _STEPS if step * power >= spread / parts * (1 - 1e-9))


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -4 <= power <= 4 else power_of_ten(power)


def _at(point: tuple[float, float]) -> str:
    return f"{point[1]:.3g} at {point[0]:.3g}"


def _ground(name: str, size: tuple[float, float], title: str, words: str) -> elements.Element:
    width, height = size
    box = f"0 0 {width:.0f} {height:.0f}"
    drawing = elements.root(name, viewBox=box, width=f"{width:.0f}", role="img")
    elements.add(drawing, "title", text=title)
    elements.add(drawing, "desc", text=words)
    return drawing


def _path(drawing: elements.Element, name: str, points: Points, dashes: str = "") -> None:
    path = " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    style = {"stroke_dasharray": dashes} if dashes else {}
    elements.add(drawing, "path", name, d=f"M{path}", fill="none", **style)


def _circle(drawing: elements.Element, name: str, x: float, y: float, radius: str) -> None:
    elements.add(drawing, "circle", name, cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius)


def _line(
    drawing: elements.Element, name: str, start: tuple[float, float], end: tuple[float, float]
) -> None:
    ends = {"x1": start[0], "y1": start[1], "x2": end[0], "y2": end[1]}
    elements.add(drawing, "line", name, **{key: f"{at:.1f}" for key, at in ends.items()})


def _text(
    drawing: elements.Element, text: str, x: float, y: float, anchor: str = "middle", name: str = ""
) -> None:
    at = {"x": f"{x:.1f}", "y": f"{y:.1f}", "text_anchor": anchor}
    elements.add(drawing, "text", name, text, **at)
