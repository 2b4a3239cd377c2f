"""Inline SVG of the losses by round, and of observed shares against predicted probabilities.

Colours come from the page's style. A table next to each picture, and its description for screen
readers, contain the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from markupsafe import Markup

from secagg.evidence.numbers import counted, fixed, significant
from secagg.reports.svg import elements

_WIDTH, _HEIGHT = 440.0, 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 16.0, 30.0, 44.0
_SQUARE, _MARGIN = 190.0, 40.0
_STEPS = (1, 2, 2.5, 5, 10)


def loss_picture(losses: Sequence[float], title: str) -> Markup:
    """Draw the loss of each round, joined by a line. The first round is 1; all losses are finite.

    The vertical axis begins below the smallest loss, not at zero.
    """
    step = round_step(max(losses) - min(losses) or abs(losses[0]) or 1.0, 4)
    low = step * math.floor(min(losses) / step)
    high = max(step * math.ceil(max(losses) / step), low + step)
    every = max(1, math.ceil(round_step(len(losses), 7)))
    last = max(len(losses), 2)

    def x(number: float) -> float:
        return _LEFT + (number - 1) / (last - 1) * (_WIDTH - _LEFT - _RIGHT)

    def y(loss: float) -> float:
        return _HEIGHT - _BOTTOM - (loss - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)

    box = f"0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"
    drawing = elements.root("curve loss", viewBox=box, width=f"{_WIDTH:.0f}", role="img")
    elements.add(drawing, "title", text=title)
    text = (
        f"{counted(len(losses), 'round')}; loss {significant(losses[0])} in the first, "
        f"{significant(losses[-1])} in the last, at least {significant(min(losses))}."
    )
    elements.add(drawing, "desc", text=text)
    base = _HEIGHT - _BOTTOM
    for i in range(round((high - low) / step) + 1):
        at = y(low + i * step)
        _line(drawing, "grid", (_LEFT, at), (_WIDTH - _RIGHT, at))
        _text(drawing, f"{low + i * step:.10g}", _LEFT - 7, at + 4, "end")
    for number in [1, *range(every, len(losses) + 1, every)] if every > 1 else range(1, last + 1):
        _line(drawing, "axis", (x(number), base), (x(number), base + 5))
        _text(drawing, str(number), x(number), base + 19)
    points = [(x(i), y(loss)) for i, loss in enumerate(losses, start=1)]
    path = " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    elements.add(drawing, "path", "line", d=f"M{path}")
    for a, b in points if len(points) <= 60 else points[-1:]:
        elements.add(drawing, "circle", "point", cx=f"{a:.1f}", cy=f"{b:.1f}", r="2.5")
    _text(drawing, "loss", 8, 14, "start", "name")
    _text(drawing, "round", (_LEFT + _WIDTH - _RIGHT) / 2, _HEIGHT - 6, "middle", "name")
    return elements.markup(drawing)


def calibration_picture(points: Sequence[tuple[float, float, float]], title: str) -> Markup:
    """Draw (probability, share, standard error) with the diagonal; bars of two standard errors."""
    width, height = _MARGIN + _SQUARE + 14, _SQUARE + 52

    def x(probability: float) -> float:
        return _MARGIN + probability * _SQUARE

    def y(share: float) -> float:
        return 8 + (1 - min(max(share, 0.0), 1.0)) * _SQUARE

    box = f"0 0 {width:.0f} {height:.0f}"
    drawing = elements.root("curve calibration", viewBox=box, width=f"{width:.0f}", role="img")
    elements.add(drawing, "title", text=title)
    listed = "; ".join(f"{fixed(s, 2)} at {fixed(p, 2)}" for p, s, _ in points)
    elements.add(drawing, "desc", text=f"Observed share by predicted probability: {listed}.")
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        _line(drawing, "grid", (x(0), y(tick)), (x(1), y(tick)))
        _line(drawing, "axis", (x(tick), y(0)), (x(tick), y(0) + 5))
        if tick not in {0.25, 0.75}:
            _text(drawing, f"{tick:g}", x(0) - 6, y(tick) + 4, "end")
            _text(drawing, f"{tick:g}", x(tick), y(0) + 18)
    _line(drawing, "reference", (x(0), y(0)), (x(1), y(1)))
    for probability, share, error in points:
        ends = (x(probability), y(share - 2 * error)), (x(probability), y(share + 2 * error))
        _line(drawing, "interval", *ends)
        at = {"cx": f"{x(probability):.1f}", "cy": f"{y(share):.1f}"}
        elements.add(drawing, "circle", "point", r="3.5", **at)
    _text(drawing, "predicted probability", x(0.5), height - 6)
    return elements.markup(drawing)


def round_step(spread: float, parts: int) -> float:
    """Return a round step that divides a spread into at most `parts` parts. Both above 0."""
    power = 10.0 ** math.floor(math.log10(spread / parts))
    return power * min(step for step in _STEPS if step * power >= spread / parts * (1 - 1e-9))


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
