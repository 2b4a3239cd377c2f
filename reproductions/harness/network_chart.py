"""A network as an SVG file: names on a circle, joined by a line for each edge.

The width of a line is proportional to the edge's probability. Its colour shows the sign of the
association; negative lines are also dashed, for readers who cannot see the colours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from reproductions.harness import svg

WIDTH, HEIGHT, RADIUS = 640.0, 600.0, 230.0
CENTRE = (320.0, 330.0)
WIDEST = 7.0  # pixels, at probability 1
POSITIVE, NEGATIVE = "#0072B2", "#D55E00"
STYLE = ".edge{fill:none;stroke-linecap:round}.node{fill:#222}"


def network_chart(
    title: str, names: Sequence[str], edges: Mapping[tuple[str, str], tuple[float, float]]
) -> str:
    """Return the picture. edges: pair of names -> (probability, a number with the sign)"""
    drawing = svg.drawing("network", title, WIDTH, HEIGHT, STYLE)
    _legend(drawing)
    angles = {name: _angle(i, len(names)) for i, name in enumerate(names)}
    for (one, other), (probability, sign) in sorted(edges.items(), key=lambda item: item[1][0]):
        (x, y), (to_x, to_y) = _point(angles[one], RADIUS), _point(angles[other], RADIUS)
        _line(drawing, f"M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}", probability, sign)
    for name, angle in angles.items():
        x, y = _point(angle, RADIUS)
        svg.add(drawing, "circle", "node", cx=f"{x:.1f}", cy=f"{y:.1f}", r="4")
        x, y = _point(angle, RADIUS + 12)
        horizontal = math.cos(angle)
        anchor = "middle" if abs(horizontal) < 0.2 else "start" if horizontal > 0 else "end"
        svg.add(drawing, "text", text=name, x=f"{x:.1f}",
                y=f"{y + 4 + 5 * math.sin(angle):.1f}", text_anchor=anchor)  # fmt: skip
    return svg.as_file(drawing)


def _legend(drawing: svg.Element) -> None:
    x = 12.0
    for label, probability, sign in (
        ("PIP 1, positive", 1.0, 1.0),
        ("0.5", 0.5, 1.0),
        ("0.1", 0.1, 1.0),
        ("PIP 1, negative", 1.0, -1.0),
    ):
        _line(drawing, f"M{x:.0f} 44h30", probability, sign)
        svg.add(drawing, "text", text=label, x=f"{x + 38:.0f}", y="48")
        x += 62 + 7.0 * len(label)


def _line(drawing: svg.Element, path: str, probability: float, sign: float) -> None:
    dash = {} if sign >= 0 else {"stroke_dasharray": "9 9"}
    svg.add(drawing, "path", "edge", d=path, stroke=POSITIVE if sign >= 0 else NEGATIVE,
            stroke_width=f"{WIDEST * probability:.2f}", **dash)  # fmt: skip


def _angle(i: int, count: int) -> float:
    """Return the angle of the i-th of `count` names, clockwise from the top."""
    return 2 * math.pi * i / count - math.pi / 2


def _point(angle: float, radius: float) -> tuple[float, float]:
    return CENTRE[0] + radius * math.cos(angle), CENTRE[1] + radius * math.sin(angle)
