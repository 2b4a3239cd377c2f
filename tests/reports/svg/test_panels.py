"""Panels with one horizontal axis: what is drawn, and where."""

import math
import re
from xml.etree import ElementTree as ET

import pytest

from secagg.reports.svg.panels import Panel, panels_picture
from secagg.reports.svg.plot import WIDTH, At

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*panels: Panel) -> ET.Element:
    return ET.fromstring(str(panels_picture("A title", "ε", panels)))


def numbers(path: str) -> list[float]:
    return [float(n) for n in re.findall(r"-?\d+\.\d+", path)]


def curve(*values: float, spread: float = 0.0) -> list[At]:
    return [At(2.0**i, y, y - spread, y + spread) for i, y in enumerate(values)]


def test_everything_lies_within_the_picture_and_names_are_escaped() -> None:
    picture = drawn(
        Panel("error", [("<a> & b", curve(1.0, 0.5, spread=0.7))], [("none", 0.25)]),
        Panel("cost", [("<a> & b", curve(10.0, 20.0))]),
    )
    height = float(picture.attrib["viewBox"].split()[3])
    for path in picture.iter(f"{SVG}path"):
        if "transform" in path.attrib:
            continue
        found = numbers(path.attrib["d"])
        assert all(0 <= x <= WIDTH for x in found[::2]) and all(
            0 <= y <= height for y in found[1::2]
        )
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert "<a> & b" in texts and "none" in texts and "error" in texts and "ε" in texts


def test_larger_values_are_higher_and_bands_contain_their_curve() -> None:
    picture = drawn(Panel("error", [("a", curve(1.0, 3.0, 2.0, spread=0.5))]))
    (line,) = (
        p for p in picture.iter(f"{SVG}path")
        if p.attrib.get("stroke-width") == "2" and len(numbers(p.attrib["d"])) == 6
    )  # fmt: skip
    ys = numbers(line.attrib["d"])[1::2]
    assert ys[1] < ys[2] < ys[0]
    (band,) = (p for p in picture.iter(f"{SVG}path") if "fill-opacity" in p.attrib)
    edges = numbers(band.attrib["d"])[1::2]
    for i, y in enumerate(ys):
        assert edges[i] < y < edges[-1 - i]


@pytest.mark.parametrize(
    ("values", "top", "labels"),
    [
        ((0.2, 0.9), math.inf, {"0", "0.2", "1"}),
        ((1.0, 900.0), math.inf, {"1", "10", "1,000"}),  # logarithmic
        ((0.6, 0.9), 1.0, {"0", "0.25", "1"}),
        ((0.0, 0.0), math.inf, {"0"}),
    ],
)
def test_the_ticks_of_an_axis(values: tuple[float, ...], top: float, labels: set[str]) -> None:
    picture = drawn(Panel("y", [("a", curve(*values))], top=top))
    ticks = {t.text for t in picture.iter(f"{SVG}text") if t.attrib.get("text-anchor") == "end"}
    assert labels <= ticks


def test_a_reference_may_change_along_the_axis_and_then_counts_as_a_curve() -> None:
    changing = [At(1.0, 3e-9), At(2.0, math.nan), At(4.0, 3e-9)]
    panel = Panel(
        "error", [("a", curve(0.5, 0.25, 0.2))], [("control", changing), ("fixed", 1e-30)]
    )
    picture = drawn(panel)
    ends = [numbers(p.attrib["d"]) for p in picture.iter(f"{SVG}path")
            if "stroke-dasharray" in p.attrib]  # fmt: skip
    _, _, control, fixed = ends  # two in the legend, two in the panel
    assert len(control) == 4 and control[1] == control[3] < fixed[1]
    labels = {t.text for t in picture.iter(f"{SVG}text") if t.attrib.get("text-anchor") == "end"}
    assert "10⁻⁸" in labels and "0.01" not in labels  # powers of ten, if one of them needs it


def test_a_reference_at_a_single_place_is_drawn_over_the_whole_panel() -> None:
    picture = drawn(Panel("error", [("a", [At(3.0, 0.5)])], [("limit", [At(3.0, 0.7)])]))
    _, line = (numbers(p.attrib["d"]) for p in picture.iter(f"{SVG}path")
               if "stroke-dasharray" in p.attrib)  # fmt: skip
    assert line[2] - line[0] > WIDTH / 2


def test_a_note_stands_between_label_and_panel() -> None:
    with_note = Panel("error", [("a", curve(1.0, 2.0))], note="what it is")
    texts = {t.text: float(t.attrib["y"]) for t in drawn(with_note).iter(f"{SVG}text")}
    assert texts["error"] < texts["what it is"] < texts["0"]


def test_a_value_that_does_not_exist_leaves_a_gap() -> None:
    picture = drawn(Panel("y", [("a", [At(1, 1.0), At(2, math.nan), At(4, 2.0)])]))
    assert "nan" not in ET.tostring(picture, encoding="unicode")


def test_no_noise_is_to_the_right_of_all_numbers_and_not_joined() -> None:
    at = [At(1.0, 2.0, 1.5, 2.5), At(8.0, 1.0, 0.5, 1.5), At(math.inf, 0.5, 0.4, 0.6)]
    drawn = panels_picture("t", "x", [Panel("y", [("a", at)])])
    places = [float(x) for x in re.findall(r"translate\(([0-9.]+) ", drawn)]
    assert places[1:] == sorted(places[1:]) and "no noise" in drawn  # the first is the legend's
    (curve,) = re.findall(r'd="M([^"z]+)" fill="none" stroke="#0072B2" stroke-width="2"', drawn)[1:]
    assert curve.count("L") == 1


def test_an_axis_of_differences_need_not_have_zero() -> None:
    at = [At(1.0, 16.2, 16.0, 16.4), At(8.0, 15.7, 15.5, 15.9)]
    drawn = panels_picture("t", "x", [Panel("y", [("a", at)], from_zero=False)])
    assert ">16<" in drawn and ">0<" not in drawn
    assert ">0<" in panels_picture("t", "x", [Panel("y", [("a", at)])])


def test_an_axis_of_shares_near_one_ends_at_one() -> None:
    at = [At(1.0, 0.93, 0.88, 0.98), At(8.0, 0.95, 0.9, 1.01)]
    drawn = panels_picture("t", "x", [Panel("y", [("a", at)], top=1.0, from_zero=False)])
    ticks = [float(t) for t in re.findall(r'text-anchor="end">([^<]+)<', drawn)]
    assert ticks == sorted(ticks) and ticks[-1] == 1.0 and 0.8 < ticks[0] < 0.9
