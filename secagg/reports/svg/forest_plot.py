"""The drawings of forest plots, as inline SVG without a fixed width.

The plot is a table with names and numbers in its cells, so they wrap, scale, print and work with
screen readers like any text; only the interval is a drawing. Horizontal positions are percentages,
so a drawing fits its cell at any width. Colours come from the page's style, light or dark.

Each term may have its own scale, because coefficients have different units. A scale goes from the
smallest to the largest number of its lines and contains no effect (1 for ratios, 0 otherwise),
which is a dotted line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from secagg.evidence.numbers import significant
from secagg.reports.svg import elements
from secagg.reports.svg.xy_chart import round_step

_LEFT, _RIGHT = 4.0, 96.0  # percent of the width: room for markers at the ends
_MAX_WIDENING = 2.5  # largest factor by which sites' intervals widen a scale; then they are cut
_ROOM = 0.03  # of a scale's length, beyond its outermost numbers
_PARTS = 4  # of an axis, at most
_LEAST_RATIO = 3.0  # of the ends of a scale of ratios with ticks at powers of ten and parts of them
_RADIUS, _LEAST_RADIUS = 5.5, 2.0


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
    """A scale between two distances from no effect, of the logarithm if `log`; low < high."""

    low: float
    high: float
    log: bool

    def distance(self, value: float) -> float:
        """Return the signed distance of a value from no effect."""
        if not self.log:
            return value
        return math.log(value) if value > 0 else -math.inf

    def place(self, value: float) -> float:
        """Return the horizontal position in percent, cut off at the ends."""
        part = (self.distance(value) - self.low) / (self.high - self.low)
        return _LEFT + (_RIGHT - _LEFT) * max(0.0, min(part, 1.0))

    def holds(self, value: float) -> bool:
        """Return whether the value lies on the scale."""
        return self.low <= self.distance(value) <= self.high

    def cuts(self, interval: Interval | None) -> bool:
        """Return whether an end of an interval lies beyond the scale."""
        return interval is not None and not (self.holds(interval.low) and self.holds(interval.high))

    @property
    def no_effect(self) -> float:
        """The value of no effect."""
        return 1.0 if self.log else 0.0

    @property
    def huge(self) -> bool:
        """Whether a label needs a power of ten: without one it would have many zeros."""
        return any(value and not 1e-5 < abs(value) < 1e7 for value in self.ticks())

    def ticks(self) -> tuple[float, ...]:
        """Return up to five labelled round values; no effect is one of them."""
        low, high = (math.exp(min(end, 690.0)) for end in (self.low, self.high))
        if not self.log or high / low < _LEAST_RATIO:
            low, high = (low, high) if self.log else (self.low, self.high)
            step = round_step(high - low, _PARTS)
            first = math.ceil((low - self.no_effect) / step)
            last = math.floor((high - self.no_effect) / step)
            return tuple(self.no_effect + i * step for i in range(first, last + 1))
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for leads in ((1, 2, 5), (1, 3), (1,)):
            values = [lead * 10.0**power for power in powers for lead in leads]
            ticks = tuple(value for value in values if low <= value <= high)
            if len(ticks) <= _PARTS + 1:
                return ticks
        every = math.ceil(len(powers) / _PARTS)
        return tuple(
            v for power in powers if power % every == 0 and low <= (v := 10.0**power) <= high
        )


def scale_for(
    first: Sequence[Interval | None], others: Sequence[Interval | None] = (), *, log: bool
) -> Scale:
    """Return a scale that contains the first intervals, and the others as far as is readable.

    It contains every estimate. The ends of the others' intervals widen it up to a factor.
    """
    plain = Scale(0.0, 1.0, log)

    def hull(values: Iterable[float]) -> tuple[float, float]:
        found = [0.0, *filter(math.isfinite, map(plain.distance, values))]
        return min(found), max(found)

    all_others = [each for each in others if each is not None]
    pooled = [v for each in first if each is not None for v in (each.low, each.high, each.estimate)]
    kept = [*pooled, *(each.estimate for each in all_others)]
    low, high = hull(kept)
    widest = hull([*kept, *(v for each in all_others for v in (each.low, each.high))])
    if high > low:
        room = (_MAX_WIDENING - 1) / 2 * (high - low)
        widest = max(widest[0], low - room), min(widest[1], high + room)
    low, high = widest
    if not low < high:
        return Scale(-1.0, 1.0, log)
    room = _ROOM * (high - low)
    return Scale(low - room, high + room, log)


def interval_picture(
    interval: Interval | None,
    scale: Scale,
    *,
    pooled: bool,
    hollow: bool = False,
    weight: float = 1.0,
) -> Markup:
    """Draw one line of a forest plot; an end beyond the scale becomes an arrow head.

    weight: area of a circle, as a share of the largest one
    """
    drawing = _drawing(f"{'pooled' if pooled else 'alone'}{' hollow' if hollow else ''}", 22)
    middle = f"{scale.place(scale.no_effect):.2f}%"
    elements.add(drawing, "line", "reference", x1=middle, x2=middle, y1="0", y2="22")
    if interval is None:
        return elements.markup(drawing)
    low, high = scale.place(interval.low), scale.place(interval.high)
    elements.add(drawing, "line", "interval", x1=f"{low:.2f}%", x2=f"{high:.2f}%", y1="11", y2="11")
    ends = ((interval.low, low), (interval.high, high))
    for at in sorted({at for end, at in ends if not scale.holds(end)}):
        sign = 1 if at == _LEFT else -1
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
            r = f"{max(_RADIUS * math.sqrt(weight), _LEAST_RADIUS):.2g}"
            elements.add(drawing, "circle", "mark", cx=f"{at:.2f}%", cy="11", r=r)
    return elements.markup(drawing)


def axis_picture(scale: Scale) -> Markup:
    """Draw the axis under a term's lines."""
    drawing = _drawing("axis", 24)
    ends = {"x1": f"{_LEFT}%", "x2": f"{_RIGHT}%"}
    elements.add(drawing, "line", "axis", y1="1", y2="1", **ends)
    for value in scale.ticks():
        at = f"{scale.place(value):.2f}%"
        elements.add(drawing, "line", "axis", x1=at, x2=at, y1="1", y2="6")
        label = significant(value, 1) if scale.huge else f"{value:.4g}".replace("-", "−")
        elements.add(drawing, "text", text=label, x=at, y="19", text_anchor="middle")
    return elements.markup(drawing)


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
