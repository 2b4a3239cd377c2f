"""Losses by round and shares by probability are drawn where the axes say they are."""

from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secagg.reports.svg.xy_chart import calibration_picture, loss_picture, round_step


def axis(picture: ET.Element, which: str) -> tuple[list[float], list[float]]:
    """Return the numbers beside an axis and their places; labels stand 4 below their line."""
    numbers, places = [], []
    for text in picture.findall("text"):
        vertical = text.get("text-anchor") == "end"
        try:
            number = float(text.text or "")
        except ValueError:
            continue  # a name
        if vertical == (which == "y"):
            numbers.append(number)
            places.append(float(text.get(which, "")) - (4 if vertical else 0))
    return numbers, places


def values(picture: ET.Element, which: str, places: list[float]) -> np.ndarray:
    """Return what the axis says of some places."""
    slope, offset = np.polyfit(axis(picture, which)[1], axis(picture, which)[0], 1)
    return slope * np.array(places) + offset


def points(picture: ET.Element) -> tuple[np.ndarray, np.ndarray]:
    circles = picture.findall("circle")
    across, down = ([float(c.get(k, "")) for c in circles] for k in ("cx", "cy"))
    return values(picture, "x", across), values(picture, "y", down)


@pytest.mark.parametrize(
    "losses",
    [[3.0, 2.0, 1.5, 1.25], [-4.0, -8.0], [5.0, 5.0, 5.0], list(np.geomspace(1e6, 1e-3, 40)),
     [0.0, 0.0], [1e-9, 2e-9, 1.5e-9]],
)  # fmt: skip
def test_each_loss_is_at_its_round(losses: list[float]) -> None:
    picture = ET.fromstring(str(loss_picture(losses, "Loss")))  # our own markup
    rounds, drawn = points(picture)
    # Places are written to a tenth of a unit; the axes are 366 and 176 long.
    assert rounds == pytest.approx(range(1, len(losses) + 1), abs=0.002 * len(losses))
    marks = axis(picture, "y")[0]
    assert drawn == pytest.approx(losses, abs=0.002 * (max(marks) - min(marks)))
    assert min(marks) <= min(losses) <= max(losses) <= max(marks)


def test_shares_have_bars_of_two_standard_errors_within_the_square() -> None:
    found = [(0.15, 0.1, 0.03), (0.55, 0.6, 0.05), (0.95, 1.0, 0.02)]
    picture = ET.fromstring(str(calibration_picture(found, "Calibration")))  # our own markup
    across, up = points(picture)
    assert across == pytest.approx([p for p, _, _ in found], abs=0.002)
    assert up == pytest.approx([s for _, s, _ in found], abs=0.002)
    bars = [line for line in picture.findall("line") if line.get("class") == "interval"]
    for bar, (_, share, error) in zip(bars, found, strict=True):
        ends = values(picture, "y", [float(bar.get("y1", "")), float(bar.get("y2", ""))])
        assert ends == pytest.approx([share - 2 * error, min(1, share + 2 * error)], abs=0.002)


@given(st.floats(1e-12, 1e12), st.integers(1, 9))
def test_a_step_is_round_and_no_larger_than_needed(spread: float, parts: int) -> None:
    step = round_step(spread, parts)
    digits = step / 10.0 ** np.floor(np.log10(step * (1 + 1e-9)))
    assert any(digits == pytest.approx(d) for d in (1, 2, 2.5, 5))
    assert spread / parts <= step * (1 + 1e-6) and step <= 2.5 * spread / parts
