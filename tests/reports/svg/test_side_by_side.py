"""Curves side by side: what is drawn, and where."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from secagg.reports.svg.panels import Panel
from secagg.reports.svg.plot import WIDTH, At
from secagg.reports.svg.side_by_side import side_by_side_picture

SVG = "{http://www.w3.org/2000/svg}"


def curve(*values: float, spread: float = 0.1) -> list[At]:
    return [At(2.0**i, y, y - spread, y + spread) for i, y in enumerate(values)]


def drawn(
    curves: Sequence[tuple[str, Sequence[At]]], references: Sequence[tuple[str, float]] = ()
) -> ET.Element:
    panel = Panel("error", curves, references)
    return ET.fromstring(str(side_by_side_picture("A title", "ε", panel)))


def marks(picture: ET.Element) -> list[tuple[float, float]]:
    moved = (p.attrib.get("transform", "") for p in picture.iter(f"{SVG}path"))
    found = [re.findall(r"-?\d+\.\d+", each) for each in moved if each]
    return [(float(x), float(y)) for x, y in found]


def texts(picture: ET.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{SVG}text")]


def strokes(picture: ET.Element) -> list[list[float]]:
    paths = (p.attrib["d"] for p in picture.iter(f"{SVG}path") if "transform" not in p.attrib)
    return [[float(n) for n in re.findall(r"-?\d+\.\d+", path)] for path in paths]


def test_each_curve_has_a_column_and_each_mark_its_place() -> None:
    picture = drawn([("sum <1>", curve(3.0, 2.0, 1.0)), ("site", curve(4.0, 3.0, 2.0))])
    found = marks(picture)
    assert len(found) == 6
    assert [x for x, _ in found] == sorted({x for x, _ in found})  # columns from left to right
    ys = [y for _, y in found]
    assert ys[0] < ys[1] < ys[2] and ys[3] < ys[0]  # a larger error is higher
    assert texts(picture).count("4") >= 2 and "sum <1>" in texts(picture) and "ε" in texts(picture)


def test_a_mark_has_its_interval_and_references_are_dashed() -> None:
    picture = drawn([("a", curve(2.0)), ("b", curve(1.0, spread=math.nan))], [("no noise", 0.5)])
    (x, y), _ = marks(picture)
    upright = [s for s in strokes(picture) if s[0] == s[2] == x]
    ((_, low, _, high),) = upright
    assert high < y < low
    dashed = [p for p in picture.iter(f"{SVG}path") if "stroke-dasharray" in p.attrib]
    assert len(dashed) == 2  # in the legend and in the panel
    assert "no noise" in texts(picture) and "nan" not in ET.tostring(picture, encoding="unicode")


@pytest.mark.parametrize("number", [2, 4, 5, 9])
def test_many_curves_and_long_names_stay_within_the_picture(number: int) -> None:
    curves = [(f"noise at each of the sites, number {i}", curve(1.0, 2.0)) for i in range(number)]
    picture = drawn(curves, [("no noise", 0.5)])
    height = float(picture.attrib["viewBox"].split()[3])
    assert len(marks(picture)) == 2 * number
    for x, y in marks(picture):
        assert 0 < x < WIDTH and 0 < y < height
    for each in picture.iter(f"{SVG}text"):
        assert 0 < float(each.attrib["y"]) < height


def test_only_some_of_many_places_are_shown_the_ends_among_them() -> None:
    values = [float(i) for i in range(1, 31)]
    picture = drawn([("a", curve(*values)), ("b", curve(*values)), ("c", curve(*values))])
    found = texts(picture)
    assert 3 * 2 <= len(marks(picture)) < 3 * 30
    assert found.count("1") >= 3 and found.count(f"{2.0**29:g}") == 3
