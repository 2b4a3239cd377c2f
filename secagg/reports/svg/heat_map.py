"""Drawings of probabilities, as inline SVG: a heat map of a matrix of them, and a bar for one.

Darker is likelier; a cell says its number in words to whoever points at it, and where there is room
it is written. Colours come from the page's style, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from secagg.reports.svg import elements

MAX_CELLS = 40
"""More variables than this make no readable heat map."""
_MAX_WITH_NUMBERS = 12  # variables: of more, cells have no room for a number
_LABEL = 16  # characters of a label that are drawn; its full text is in its title
_CHARACTER = 7.2  # width of one in a 12 px font, generously
_DARK_CELL_FROM = 0.55  # from here on a cell's number is written in the page's own colour


def heat_picture(names: Sequence[str], pips: Mapping[tuple[str, str], float], title: str) -> Markup:
    """Draw a matrix of probabilities, pips[row, column]; cells that it lacks stay empty."""
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
    """Draw a probability as a bar. Hidden from readers: the number stands beside it."""
    drawing = elements.root("bar", width="100%", height="22", aria_hidden="true")
    elements.add(drawing, "rect", "track", x="0", y="7", width="100%", height="8")
    elements.add(drawing, "rect", "filled", x="0", y="7", width=f"{100 * pip:.1f}%", height="8")
    return elements.markup(drawing)


def _label(drawing: elements.Element, name: str, **place: str) -> None:
    label = elements.add(drawing, "text", "name", **place)
    elements.add(label, "title", text=name)
    elements.add(label, "tspan", text=name if len(name) <= _LABEL else name[: _LABEL - 1] + "…")
