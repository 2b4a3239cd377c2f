"""The curve of epsilon against delta, as inline SVG; all its points hold together.

Delta has a logarithmic axis. Colours come from the page's style. A table next to the curve, and the
description for screen readers, contain the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from secagg.evidence.numbers import power_of_ten, probability, significant
from secagg.reports.svg import elements

_WIDTH, _HEIGHT = 440.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 16.0, 14.0, 44.0
_TICK_STEPS = (1, 2, 2.5, 5)


def curve_picture(points: Sequence[tuple[float, float]], guaranteed: tuple[float, float]) -> Markup:
    """Draw epsilon at each delta, and the guaranteed pair; all are (delta, epsilon), finite."""
    drawn = sorted(points)
    exponents = [math.log10(delta) for delta, _ in (*drawn, guaranteed)]
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    step = _step(max(epsilon for _, epsilon in (*drawn, guaranteed)))
    top = step * math.ceil(max(epsilon for _, epsilon in (*drawn, guaranteed)) / step)

    def x(delta: float) -> float:
        part = (math.log10(delta) - low) / (high - low)
        return _LEFT + part * (_WIDTH - _LEFT - _RIGHT)

    def y(epsilon: float) -> float:
        return _HEIGHT - _BOTTOM - epsilon / top * (_HEIGHT - _TOP - _BOTTOM)

    box = f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
    drawing = elements.root("curve", viewBox=box, width=f"{_WIDTH:.0f}", role="img")
    elements.add(drawing, "title", text="Epsilon of the whole run at each delta")
    listed = "; ".join(f"{significant(e)} at {probability(d)}" for d, e in drawn)
    text = f"Epsilon {listed}. Guaranteed: {significant(guaranteed[1])}."
    elements.add(drawing, "desc", text=text)
    for i in range(round(top / step) + 1):
        at = f"{y(i * step):.1f}"
        elements.add(
            drawing, "line", "grid", x1=f"{_LEFT:.1f}", x2=f"{_WIDTH - _RIGHT:.1f}", y1=at, y2=at
        )
        elements.add(drawing, "text", text=f"{i * step:g}", x=f"{_LEFT - 7:.1f}",
                y=f"{y(i * step) + 4:.1f}", text_anchor="end")  # fmt: skip
    every = max(1, math.ceil((high - low) / 7))
    for power in range(low, high + 1, every):
        at = f"{x(10.0**power):.1f}"
        base = _HEIGHT - _BOTTOM
        elements.add(drawing, "line", "axis", x1=at, x2=at, y1=f"{base:.1f}", y2=f"{base + 5:.1f}")
        elements.add(drawing, "text", text=power_of_ten(power), x=at, y=f"{base + 19:.1f}",
                text_anchor="middle")  # fmt: skip
    path = " L".join(f"{x(delta):.1f} {y(epsilon):.1f}" for delta, epsilon in drawn)
    elements.add(drawing, "path", "line", d=f"M{path}")
    for delta, epsilon in drawn:
        elements.add(
            drawing, "circle", "point", cx=f"{x(delta):.1f}", cy=f"{y(epsilon):.1f}", r="2.5"
        )
    ring = {"cx": f"{x(guaranteed[0]):.1f}", "cy": f"{y(guaranteed[1]):.1f}", "r": "5.5"}
    elements.add(drawing, "circle", "guarantee", **ring)
    elements.add(drawing, "text", "name", text="ε", x="8", y=f"{_TOP + 4:.1f}")
    elements.add(drawing, "text", "name", text="δ", x=f"{(_LEFT + _WIDTH - _RIGHT) / 2:.1f}",
            y=f"{_HEIGHT - 6:.1f}", text_anchor="middle")  # fmt: skip
    return elements.markup(drawing)


def _step(largest: float) -> float:
    """Return a round step that divides the axis into three to six parts."""
    power = 10.0 ** math.floor(math.log10(largest / 3))
    return power * max(step for step in _TICK_STEPS if step * power <= largest / 3)
