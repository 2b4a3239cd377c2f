"""The drawings of forest plots, as inline SVG without a fixed width.

The plot is a table with names and numbers in its cells, so they wrap, scale, print and work with
screen readers like any text; only the interval is a drawing. Horizontal positions are percentages,
so a drawing fits its cell at any width. Colours come from the page's style, light or dark.

Each term has its own scale, because coefficients have different units. The value of no effect (1
for odds ratios, 0 otherwise) is in the middle of every scale and forms one straight line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from secagg.evidence.numbers import significant
from secagg.reports.svg import elements

_HALF = 46.0  # percent of the width on each side of the middle: room for markers at the ends
_MAX_WIDENING = 2.5  # largest factor by which sites' intervals widen a scale; then they are cut


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval; both ends equal the estimate if there is no interval."""

    estimate: float
    low: float
    high: float

    @classmethod
    def of(cls, estimate: float | None, low: float | None, high: float | None) -> Interval | None:
        """Return the interval of these numbers, or None without a finite estimate."""
        if estimate is None or not math.isfinite(estimate):
            return None
        ends = (low, high)
        if any(end is None or math.isnan(end) for end in ends):
            return cls(estimate, estimate, estimate)
        return cls(estimate, *(float(end) for end in ends if end is not None))


@dataclass(frozen=True)
class Scale:
    """A scale from no effect in the middle to `reach` on both sides (of the logarithm if `log`)."""

    reach: float
    log: bool

    def distance(self, value: float) -> float:
        """Return the signed distance of a value from no effect."""
        if not self.log:
            return value
        return math.log(value) if value > 0 else -math.inf

    def place(self, value: float) -> float:
        """Return the horizontal position in percent, cut off at the ends."""
        part = max(-1.0, min(self.distance(value) / self.reach, 1.0))
        return 50 + _HALF * part

    def holds(self, value: float) -> bool:
        """Return whether the value lies on the scale."""
        return abs(self.distance(value)) <= self.reach

    @property
    def huge(self) -> bool:
        """Whether a label needs a power of ten: without one it would have many zeros."""
        return any(value and not 1e-5 < abs(value) < 1e7 for value in self.ticks())

    def ticks(self) -> tuple[float, ...]:
        """Return three labelled values: no effect, and one round value on each side."""
        if not self.log:
            step = _round_down(0.9 * self.reach)
            return -step, 0.0, step
        factor = math.exp(min(0.95 * self.reach, 690.0))
        if factor > 2:
            nice = _round_down(factor, (1, 2, 5))
            return 1 / nice, 1.0, nice
        step = _round_down(0.9 * -math.expm1(-self.reach))
        return 1 - step, 1.0, 1 + step


def scale_for(first: Interval | None, others: Sequence[Interval | None], *, log: bool) -> Scale:
    """Return a scale that contains the first interval, and the others as far as is readable."""
    plain = Scale(1.0, log)

    def farthest(interval: Interval | None) -> float:
        if interval is None:
            return 0.0
        ends = (interval.low, interval.high, interval.estimate)
        return max(abs(plain.distance(end)) for end in ends)

    pooled = farthest(first)
    widest = max([farthest(interval) for interval in others], default=0.0)
    reach = max(pooled, min(widest, _MAX_WIDENING * pooled) if pooled else widest)
    return Scale(reach * 1.05 if 0 < reach < math.inf else 1.0, log)


def interval_picture(
    interval: Interval | None, scale: Scale, *, pooled: bool, hollow: bool = False
) -> Markup:
    """Draw one line of a forest plot; an end beyond the scale becomes an arrow head."""
    drawing = _drawing(f"{'pooled' if pooled else 'alone'}{' hollow' if hollow else ''}", 22)
    elements.add(drawing, "line", "reference", x1="50%", x2="50%", y1="0", y2="22")
    if interval is None:
        return elements.markup(drawing)
    low, high = scale.place(interval.low), scale.place(interval.high)
    elements.add(drawing, "line", "interval", x1=f"{low:.2f}%", x2=f"{high:.2f}%", y1="11", y2="11")
    ends = ((interval.low, low), (interval.high, high))
    for at in sorted({at for end, at in ends if not scale.holds(end)}):
        sign = 1 if at < 50 else -1
        head = elements.add(drawing, "svg", x=f"{at:.2f}%", y="11", overflow="visible")
        elements.add(head, "path", "head", d=f"M{-sign * 4} 0 l{sign * 8} -4.5 v9 z")
    for end, at in ends if interval.low < interval.high else ():
        if scale.holds(end):
            x = f"{at:.2f}%"
            elements.add(drawing, "line", "interval", x1=x, x2=x, y1="8", y2="14")
    if scale.holds(interval.estimate):
        at = scale.place(interval.estimate)
        if pooled:
            mark = elements.add(drawing, "svg", x=f"{at:.2f}%", y="11", overflow="visible")
            elements.add(mark, "path", "mark", d="M0 -6.5 L6.5 0 L0 6.5 L-6.5 0 z")
        else:
            elements.add(drawing, "circle", "mark", cx=f"{at:.2f}%", cy="11", r="4")
    return elements.markup(drawing)


def axis_picture(scale: Scale) -> Markup:
    """Draw the axis under a term's lines."""
    drawing = _drawing("axis", 24)
    ends = {"x1": f"{50 - _HALF}%", "x2": f"{50 + _HALF}%"}
    elements.add(drawing, "line", "axis", y1="1", y2="1", **ends)
    for value in scale.ticks():
        at = f"{scale.place(value):.2f}%"
        elements.add(drawing, "line", "axis", x1=at, x2=at, y1="1", y2="6")
        label = significant(value, 1) if scale.huge else f"{value:.4g}".replace("-", "−")
        elements.add(drawing, "text", text=label, x=at, y="19", text_anchor="middle")
    return elements.markup(drawing)


def _round_down(x: float, leads: Sequence[int] = (1, 2, 3, 5)) -> float:
    """Return the largest of these leads times a power of ten that is at most x."""
    power = 10.0 ** math.floor(math.log10(x))
    return power * max((lead for lead in leads if lead * power <= x), default=1)


def _drawing(name: str, height: int) -> elements.Element:
    # Hidden from screen readers: neighbouring cells have the same numbers as text.
    return elements.root(name, width="100%", height=str(height), aria_hidden="true")


def arrow_picture(*, down: bool) -> Markup:
    """Draw a vertical arrow as tall as its neighbour."""
    drawing = elements.root("arrow", width="16", height="100%", aria_hidden="true")
    elements.add(drawing, "line", x1="8", x2="8", y1="0", y2="100%")
    head = elements.add(drawing, "svg", y="100%" if down else "0", overflow="visible")
    elements.add(head, "path", d="M2 -9 L8 0 L14 -9 z" if down else "M2 9 L8 0 L14 9 z")
    return elements.markup(drawing)
