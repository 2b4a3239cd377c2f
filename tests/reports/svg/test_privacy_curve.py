"""The curve of epsilon against delta is where its axes say it is."""

import math
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from secagg.privacy.accounting.gaussian_dp import gaussian_epsilon
from secagg.reports.svg.xy_chart import curve_picture

DELTAS = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
POWER = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def drawn(mu: float, guaranteed: tuple[float, float]) -> ET.Element:
    """Return the picture of a Gaussian mechanism's curve."""
    points = [(delta, gaussian_epsilon(mu, delta)) for delta in DELTAS]
    return ET.fromstring(str(curve_picture(points, guaranteed)))  # our own markup


def scale(picture: ET.Element, axis: str) -> tuple[float, float]:
    """Return (slope, offset) of the values that the labels of an axis claim, by position."""
    labels = [t for t in picture.findall("text") if t.get("class") is None]
    if axis == "x":
        found = [t for t in labels if (t.text or "").startswith("10") and (t.text or "") > "10⁰"]
        values = [float((t.text or "")[2:].translate(POWER)) for t in found]
        places = [float(t.get("x", "")) for t in found]
    else:
        found = [t for t in labels if t.get("text-anchor") == "end"]
        values = [float(t.text or "") for t in found]
        places = [float(t.get("y", "")) - 4 for t in found]  # labels stand 4 below their line
    slope, offset = np.polyfit(places, values, 1)
    return float(slope), float(offset)


@pytest.mark.parametrize("mu", [0.05, 0.9, 12.0])
def test_points_are_where_the_axes_say(mu: float) -> None:
    guaranteed = (1e-5, gaussian_epsilon(mu, 1e-5))
    picture = drawn(mu, guaranteed)
    (x_slope, x_offset), (y_slope, y_offset) = scale(picture, "x"), scale(picture, "y")
    path = next(p.get("d", "") for p in picture.findall("path"))
    places = [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+) ([\d.]+)", path)]
    ring = next(c for c in picture.findall("circle") if c.get("class") == "guarantee")
    places.append((float(ring.get("cx", "")), float(ring.get("cy", ""))))
    deltas = [*DELTAS, guaranteed[0]]
    assert len(places) == len(deltas)
    for (x, y), delta in zip(places, deltas, strict=True):
        epsilon = gaussian_epsilon(mu, delta)
        # positions are written to 0.1 of 190 pixels of height and 380 of width
        assert x_slope * x + x_offset == pytest.approx(math.log10(delta), abs=0.01)
        assert y_slope * y + y_offset == pytest.approx(epsilon, abs=abs(y_slope) * 0.2)


@pytest.mark.parametrize("mu", [0.05, 0.9, 1.666, 12.0])
def test_the_axis_name_is_beside_its_labels(mu: float) -> None:
    picture = drawn(mu, (1e-5, gaussian_epsilon(mu, 1e-5)))
    texts = picture.findall("text")
    (name,) = (t for t in texts if t.text == "ε")
    for label in texts:
        if label.get("text-anchor") == "end":
            # in sans-serif type a digit is at most 0.6 of its size wide, which is 12; ε of 14
            left = float(label.get("x", "")) - 0.6 * 12 * len(label.text or "")
            assert left > float(name.get("x", "")) + 0.6 * 14


def test_a_guarantee_outside_of_the_curve_is_within_the_picture() -> None:
    picture = drawn(0.9, (1e-12, 7.0))
    width, height = map(float, picture.get("viewBox", "").split()[2:])
    for circle in picture.findall("circle"):
        assert 0 < float(circle.get("cx", "")) < width
        assert 0 < float(circle.get("cy", "")) < height


def test_is_told_to_who_cannot_see_it() -> None:
    text = drawn(0.9, (1e-5, 4.0)).findtext("desc") or ""
    assert f"{gaussian_epsilon(0.9, 1e-9):.3f} at 10⁻⁹" in text and "Guaranteed: 4.000" in text
