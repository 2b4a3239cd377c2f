"""Drawings of probabilities, as inline SVG: a heat map for a matrix, and a bar for a single one.

Darker means likelier. Each cell has its number as a tooltip, and as text if there is room. Colours
come from the page's style, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from secagg.reports.svg import elements

MAX_CELLS = 40
"""With more variables a heat map is not readable."""
_MAX_WITH_NUMBERS = 12  # with more variables, cells have no room for a number
_LABEL = 16  # drawn characters of a label; its title has the full text
_CHARACTER = 7.2  # upper limit of a character's width in a 12 px font
_DARK_CELL_FROM = 0.55  # from here on a cell's number has the page's background colour


def heat_picture(names: Sequence[str], pips: Mapping[tuple[str, str], float], title: str) -> Markup:
    """Draw a matrix of probabilities, pips[row, column]; missing cells stay empty."""
    cell = 34 if len(names) <= _MAX_WITH_NUMBERS else 17
    margin = min(max(map(len, names)), _LABEL) * _CHARACTER + 8
    size = margin + cell * len(names) + 2
    drawing = elements.root(
        "heat", viewBox=f"0 0 {size:.0f} {size:.0f}", width=f"{size:.0f}", role="img"
    )
    elements.add(drawing, "title", text=title)
    for i, name in enumerate(names):
        end, middle = f"{margin - 6:.1f}", margin + cell * (i + 0.5) + 4
        _label(drawing, name, x=end, y=f"{middle:.1f}", text_anchor="end")
        _label(drawing, name, transform=f"translate({middle:.1f} {end}) rotate(-90)")
    for i, row in enumerate(names):
        for j, column in enumerate(names):
            if (pip := pips.get((row, column))) is None:
                continue
            at = elements.add(drawing, "g")
            elements.add(at, "title", text=f"{row}, {column}: {pip:.3f}")
            x, y = margin + cell * j, margin + cell * i
            place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{cell - 1}"}
            elements.add(
                at, "rect", "cell", height=f"{cell - 1}", fill_opacity=f"{pip:.3f}", **place
            )
            if len(names) <= _MAX_WITH_NUMBERS:
                inside = {"x": f"{x + (cell - 1) / 2:.1f}", "y": f"{y + cell / 2 + 3.5:.1f}"}
                kind = "number on" if pip >= _DARK_CELL_FROM else "number"
                elements.add(at, "text", kind, text=f"{pip:.2f}", text_anchor="middle", **inside)
    return elements.markup(drawing)


def bar_picture(pip: float) -> Markup:
    """Draw a probability as a bar, hidden from screen readers: the next cell has the number."""
    drawing = elements.root("bar", width="100%", height="22", aria_hidden="true")
    elements.add(drawing, "rect", "track", x="0", y="7", width="100%", height="8")
    elements.add(drawing, "rect", "filled", x="0", y="7", width=f"{100 * pip:.1f}%", height="8")
    return elements.markup(drawing)


def _label(drawing: elements.Element, name: str, **place: str) -> None:
    label = elements.add(drawing, "text", "name", **place)
    elements.add(label, "title", text=name)
    elements.add(label, "tspan", text=name if len(name) <= _LABEL else name[: _LABEL - 1] + "…")
