"""Lines and points between two axes, each linear or logarithmic, as inline SVG.

Colours come from the page's style; lines also differ in their dashes and have their names beside
them in a legend. The description for screen readers says what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from secagg.evidence.numbers import power_of_ten
from secagg.reports.svg import elements

_WIDTH, _HEIGHT = 440.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 16.0, 30.0, 44.0
_LEGEND = 18.0
_DASHES = ("", "6 4", "2 3", "9 3 2 3")
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """low and high: its ends, low < high; log: logarithmic, both above 0 then"""

    label: str
    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        """Return where a value lies between the ends, from 0 to 1; values outside are moved in."""
        value = min(max(value, self.low), self.high)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """The values with a tick, and their labels."""
        if self.log:
            powers = range(math.ceil(math.log10(self.low) - 1e-9),
                           math.floor(math.log10(self.high) + 1e-9) + 1)  # fmt: skip
            if len(powers) > 1:
                return [(10.0**power, _power(power)) for power in powers]
            return [(value, f"{value:g}") for value in (self.low, self.high)]
        values = [self.low + i * (self.high - self.low) / 4 for i in range(5)]
        return [(value, f"{value:g}") for value in values]


def xy_picture(
    title: str, lines: Sequence[tuple[str, Points]], x: Axis, y: Axis, *, diagonal: bool = False
) -> Markup:
    """Draw each line with its name; diagonal: also the line y = x, of the same axes."""
    top = _TOP + _LEGEND * len(lines)  # below the axis's name and the legend
    base = top + _HEIGHT - _BOTTOM - 30

    def px(value: float) -> float:
        return _LEFT + x.share(value) * (_WIDTH - _LEFT - _RIGHT)

    def py(value: float) -> float:
        return base - y.share(value) * (base - top)

    height = base + _BOTTOM
    drawing = elements.root(
        "curve", viewBox=f"0 0 {_WIDTH:.0f} {height:.0f}", width=f"{_WIDTH:.0f}", role="img"
    )
    elements.add(drawing, "title", text=title)
    ends = "; ".join(f"{name}: {_at(points[0])}, {_at(points[-1])}" for name, points in lines)
    elements.add(drawing, "desc", text=f"{y.label} by {x.label}. {ends}.")
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
        _path(drawing, "line", [(_LEFT, at), (_LEFT + 28, at)], dashes)
        _text(drawing, name, _LEFT + 36, at + 4, "start")
        _path(drawing, "line", [(px(a), py(b)) for a, b in points], dashes)
        for a, b in points if len(points) <= 30 else ():
            where = {"cx": f"{px(a):.1f}", "cy": f"{py(b):.1f}"}
            elements.add(drawing, "circle", "point", r="2.5", **where)
    _text(drawing, y.label, 8, 14, "start", "name")
    _text(drawing, x.label, (_LEFT + _WIDTH - _RIGHT) / 2, height - 6, "middle", "name")
    return elements.markup(drawing)


def _power(power: int) -> str:
    return f"{10.0**power:g}" if -4 <= power <= 4 else power_of_ten(power)


def _at(point: tuple[float, float]) -> str:
    return f"{point[1]:.3g} at {point[0]:.3g}"


def _path(drawing: elements.Element, name: str, points: Points, dashes: str = "") -> None:
    path = " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    style = {"stroke_dasharray": dashes} if dashes else {}
    elements.add(drawing, "path", name, d=f"M{path}", fill="none", **style)


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
