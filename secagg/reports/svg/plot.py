"""What pictures of an experiment share: the ground, scales, a legend, strokes and marks.

Colours are attributes and not part of a page's style, so that a picture is the same on a page and
as a file. It has a white ground, and reads in grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from secagg.evidence.numbers import power_of_ten
from secagg.reports.svg import elements
from secagg.reports.svg.marks import COLOURS, DASHES, MARKERS
from secagg.reports.svg.xy_chart import round_step

WIDTH, PLOT = 520.0, 170.0
LEFT, RIGHT, TOP = 62.0, 18.0, 10.0
INK, GRID = "#222222", "#dddddd"
NO_NOISE = "no noise"
_LEGEND, _CHARACTER = 20.0, 7.4  # wide enough for the usual fonts
_FONT = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_LOG_RATIO = 30.0
"""A vertical axis is logarithmic if the largest value is so many times the smallest."""


@dataclass(frozen=True)
class At:
    """A point of a curve, with the ends of its interval; nan if it has none.

    x: inf stands for no noise, to the right of all numbers
    """

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan

    @property
    def has_interval(self) -> bool:
        """Whether both ends exist."""
        return math.isfinite(self.low) and math.isfinite(self.high)


@dataclass(frozen=True)
class Scale:
    """From values to pixels; ticks have values and labels. beyond: pixels of an infinite value"""

    low: float
    high: float
    start: float
    end: float
    log: bool
    ticks: Sequence[tuple[float, str]]
    beyond: float = math.nan

    def __call__(self, value: float) -> float:
        if value == math.inf and not math.isnan(self.beyond):
            return self.beyond
        value = min(max(value, self.low), self.high)
        share = (
            math.log(value / self.low) / math.log(self.high / self.low)
            if self.log
            else (value - self.low) / (self.high - self.low)
        )
        return self.start + share * (self.end - self.start)


def place_label(x: float) -> str:
    """Return the label of a place on the horizontal axis."""
    return NO_NOISE if x == math.inf else f"{x:g}"


def vertical_scale(
    points: Iterable[At],
    references: Iterable[float],
    top: float,
    base: float,
    along: Iterable[float] = (),
    *,
    from_zero: bool = True,
) -> Scale:
    """Return the vertical scale of a panel whose horizontal axis is at `base`.

    references: further values that it contains; but a logarithmic axis begins near the smallest
        point, so that a reference of 10^-16 does not press all points together
    along: values of lines that change along the horizontal axis, which count as points
    top: where it ends, if that is finite
    from_zero: whether 0 is on it; not if only differences have a meaning
    """
    drawn = list(points)
    values = [v for at in drawn for v in (at.y, at.low, at.high) if math.isfinite(v)]
    lines = [value for value in references if math.isfinite(value)]
    changing = [value for value in along if math.isfinite(value)]
    values += lines + changing
    means = [at.y for at in drawn if math.isfinite(at.y)] + changing or lines
    largest, least = max(values, default=1.0), min(means, default=0.0)
    if math.isfinite(top):
        span = top if from_zero else (top - min(values, default=0.0)) or top
        step = round_step(span, 4)
        marks = [top - i * step for i in range(max(math.ceil(span / step - 1e-9), 1), -1, -1)]
        ticks = [(mark, f"{mark:.6g}") for mark in marks]
        return Scale(marks[0], top, base, base - PLOT, False, ticks)
    if from_zero and least > 0 and largest / least > _LOG_RATIO:
        powers = range(math.floor(math.log10(least)), math.ceil(math.log10(largest)) + 1)
        every = math.ceil(len(powers) / 8)
        shown = [p for p in powers if p % every == 0]
        plain = all(-5 < power < 7 for power in powers)
        ticks = [(10.0**p, _power(p) if plain else power_of_ten(p)) for p in shown]
        return Scale(10.0 ** powers[0], 10.0 ** powers[-1], base, base - PLOT, True, ticks)
    # Intervals of a positive number are cut at 0.
    bottom = min(0.0, least, *lines) if from_zero else min(values, default=0.0)
    step = round_step((largest - bottom) or 1.0, 5)
    count = range(math.floor(bottom / step), math.ceil(largest / step - 1e-9) + 1)
    ticks = [(i * step, f"{i * step:,.12g}") for i in (count if len(count) > 1 else range(2))]
    return Scale(ticks[0][0], ticks[-1][0], base, base - PLOT, False, ticks)


def _power(exponent: int) -> str:
    return f"{10**exponent:,}" if exponent >= 0 else f"{10.0**exponent:g}"


def ground(height: float, title: str, description: str) -> elements.Element:
    """Return a picture with nothing on it."""
    drawing = elements.root(
        "panels", xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH:.0f} {height:.0f}",
        width=f"{WIDTH:.0f}", role="img", font_family=_FONT, font_size="13", fill=INK,
    )  # fmt: skip
    elements.add(drawing, "title", text=title)
    elements.add(drawing, "desc", text=description)
    elements.add(drawing, "rect", width="100%", height="100%", fill="#ffffff")
    return drawing


def legend_places(names: Sequence[str]) -> tuple[list[tuple[float, float]], float]:
    """Return where each entry of a legend begins, and where the legend ends."""
    found: list[tuple[float, float]] = []
    x, row = 10.0, 0
    for name in names:
        size = 50 + _CHARACTER * len(name)
        if found and x + size > WIDTH:
            x, row = 10.0, row + 1
        found.append((x, TOP + 8 + row * _LEGEND))
        x += size
    return found, TOP + (row + 1) * _LEGEND


def axis(
    drawing: elements.Element, label: str, y: Scale, ends: tuple[float, float], note: str = ""
) -> None:
    """Draw a panel's label with a note, and the vertical axis's ticks, with lines between ends."""
    text(drawing, label, 8, y.end - (28 if note else 12), "start", weight="600")
    if note:
        text(drawing, note, 8, y.end - 12, "start", size="12")
    for value, mark_label in y.ticks:
        stroke(drawing, [(ends[0], y(value)), (ends[1], y(value))], GRID, "", 1.0)
        text(drawing, mark_label, LEFT - 7, y(value) + 4, "end")


def reference_look(index: int) -> tuple[str, str, float]:
    """Return colour, dashes and width of a reference."""
    return "#555555", DASHES[index % len(DASHES)], 1.5


def curve_look(index: int) -> tuple[str, str, float]:
    """Return colour, dashes and width of a curve."""
    return COLOURS[index % len(COLOURS)], "", 2.0


def mark(drawing: elements.Element, index: int, x: float, y: float) -> None:
    """Draw a point of the curve with this number."""
    colour = COLOURS[index % len(COLOURS)]
    elements.add(
        drawing, "path", d=MARKERS[index % len(MARKERS)], fill=colour, stroke=colour,
        transform=f"translate({x:.1f} {y:.1f})",
    )  # fmt: skip


def stroke(
    drawing: elements.Element, points: Sequence[tuple[float, float]], colour: str, dashes: str,
    width: float,
) -> None:  # fmt: skip
    """Draw a line through points."""
    path = " L".join(f"{a:.1f} {b:.1f}" for a, b in points)
    style = {"stroke_dasharray": dashes} if dashes else {}
    size = f"{width:g}"
    elements.add(
        drawing, "path", d=f"M{path}", fill="none", stroke=colour, stroke_width=size, **style
    )


def text(
    drawing: elements.Element, words: str, x: float, y: float, anchor: str = "middle",
    weight: str = "", size: str = "",
) -> None:  # fmt: skip
    """Write words."""
    style = {"font_weight": weight} if weight else {}
    style |= {"font_size": size} if size else {}
    elements.add(
        drawing, "text", text=words, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, **style
    )
