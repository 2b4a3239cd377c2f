"""Means, standard errors and verdicts against hand computation; tables and pictures that hold them.

The values are those of a toy figure: two methods over three seeds, in one panel of two columns.
"""

from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest

from secagg.reproductions.cells import Cell, Outcome, cell
from secagg.reproductions.chart import chart
from secagg.reproductions.figures import (
    Comparison,
    Entry,
    Figure,
    Method,
    Metric,
    Panel,
    Place,
    Stated,
    Statement,
    judge,
    mean_and_error,
    paired_difference,
    read_entries,
)
from secagg.reproductions.pages import as_markdown, as_plain

A2, A4, B2, B4 = (Place("panel", column, method) for method in "ab" for column in (2, 4))
VALUES = {A2: [1.0, 2.0, 6.0], A4: [4.0, 4.0, 4.0], B2: [3.0, 5.0, 10.0], B4: [4.0, 3.0, 4.5]}


def compared(smaller: Place, larger: Place) -> Comparison:
    return Comparison("shd", smaller, larger)


def toy() -> tuple[Figure, dict[Cell, Outcome]]:
    cells = {
        place: {seed: cell("t", 1.0, column=place.column, method=place.method, seed=seed)
                for seed in range(3)}
        for place in VALUES
    }  # fmt: skip
    outcomes = {
        cells[place][seed]: Outcome(
            {place.method: {"shd": value, "converged": float(value != 6)}}, None, 2.0 * seed, "v1"
        )
        for place, values in VALUES.items()
        for seed, value in enumerate(values)
    }
    outcomes[cells[B4][2]] = Outcome(None, "It went | wrong", 1.0, "v2")
    figure = Figure(
        name="toy",
        title="Toy <figure>",
        metrics=(Metric("shd", "SHD", 1),),
        costs=(Metric("seconds", "CPU seconds", 2),),
        methods=(Method("a", "A & co"), Method("b", "B", drawn=False), Method("c", "C")),
        panels=(Panel("panel", "sites K", (2, 4)),),
        points=cells,
        statements=(
            Statement("A below B.", (compared(A2, B2), compared(A4, B4))),
            Statement("B below A.", (compared(B2, A2),)),
            Statement("A below A.", (compared(A2, A2),)),
            Statement("C below A.", (compared(Place("panel", 2, "c"), A2),)),
        ),
        stated=(Stated("shd", A2, 5.0), Stated("shd", A4, 5.0)),
        notes=("A note.",),
    )
    return figure, outcomes


def test_mean_and_standard_error_by_hand() -> None:
    """1, 2, 6: mean 3, squared deviations 4 + 1 + 9 = 14, variance 7, standard error root(7/3)."""
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    assert mean == 3 and error == pytest.approx(math.sqrt(7 / 3), rel=1e-15)
    assert mean_and_error([5.0]) == (5.0, None)
    assert mean_and_error([]) == (None, None)


def test_differences_are_taken_seed_by_seed() -> None:
    """B - A at 2: 2, 3, 4, mean 3, standard error 1 / root 3. At 4 seed 2 is missing: 0, -1."""
    figure, outcomes = toy()
    entries = read_entries(figure, outcomes)
    mean, error = paired_difference(entries, compared(A2, B2))
    assert mean == 3 and error == pytest.approx(1 / math.sqrt(3))
    mean, error = paired_difference(entries, compared(A4, B4))
    assert mean == -0.5 and error == pytest.approx(0.5)
    assert paired_difference(entries, compared(A2, Place("panel", 2, "c"))) == (None, None)


def test_entries_count_what_failed_and_what_did_not_converge() -> None:
    figure, outcomes = toy()
    entries = read_entries(figure, outcomes)
    assert [entries[p].runs for p in (A2, A4, B2, B4)] == [3, 3, 3, 2]
    assert [entries[p].unconverged for p in (A2, A4, B2, B4)] == [1, 0, 0, 0]
    assert entries[B4].failed == {2: "It went | wrong"}
    assert entries[A2].values["seconds"] == {0: 0.0, 1: 2.0, 2: 4.0}
    assert len(figure.cells()) == 12


@pytest.mark.parametrize(
    ("difference", "list_"),
    [
        ([1.0, 1.0, 1.0], "clearly_so"),  # no error at all
        ([1.0, 2.0, 3.0], "clearly_so"),  # 2 with standard error 0.58
        ([0.0, 1.0, 4.0], "so"),  # 1.7 with 1.2
        ([0.0, 0.0, 0.0], "not_so"),
        ([-1.0, 0.0, 0.5], "not_so"),
        ([-1.0, -2.0, -3.0], "clearly_not_so"),
    ],
)
def test_verdicts(difference: list[float], list_: str) -> None:
    def entry(values: list[float]) -> Entry:
        return Entry({"shd": dict(enumerate(values))}, {}, 0)

    comparison = compared(A2, B2)
    found = judge({A2: entry([0, 0, 0]), B2: entry(difference)}, Statement("", (comparison,)))
    assert getattr(found, list_) == [comparison]
    lists = (found.clearly_so, found.so, found.not_so, found.clearly_not_so, found.missing)
    assert sum(map(len, lists)) == 1


def test_the_page() -> None:
    page = as_markdown(toy()[0], read_entries(*toy()))
    for line in (
        "| sites K | 2 | 4 |",
        "| A & co | 3.0 ± 1.5 | 4.0 ± 0.0 |",
        "| B | 6.0 ± 2.1 | 3.5 ± 0.5 |",
        "| A & co | 3, 1 not converged | 3 |",
        "| B | 3 | 2, 1 failed |",
        "| SHD of A & co, panel, sites K 2 | 5 | 3.0 ± 1.5 | -1.3 |",
        "| SHD of A & co, panel, sites K 4 | 5 | 4.0 ± 0.0 | - |",  # without an error of its own
        "| A below B. | 1 of 2 comparisons as stated, 1 by more than two standard errors. Not so: "
        "A & co (4) above B (4) by 0.5 ± 0.5. |",
        "| B below A. | 0 of 1 comparisons as stated. Clearly not so: B (2) above A & co (2) by "
        "3.0 ± 0.6. |",
        "| A below A. | 0 of 1 comparisons as stated. Not so: A & co (2) equals A & co (2). |",
        "| C below A. | Not run. |",
        "- B, 1 times: It went | wrong",
        "A note.",
    ):
        assert line in page.splitlines(), line
    assert "| C |" not in page  # a method without entries has no row


def test_the_numbers() -> None:
    plain = as_plain(toy()[0], read_entries(*toy()), ("v1", "v2"))
    entry = plain["entries"][-1]
    assert (entry["method"], entry["column"], entry["runs"]) == ("b", 4, 2)
    assert entry["values"]["shd"] == {"0": 4.0, "1": 3.0}
    assert entry["mean"]["shd"] == 3.5 and entry["standard_error"]["shd"] == 0.5
    assert entry["failed"] == {"2": "It went | wrong"} and plain["computed_with"] == ["v1", "v2"]


def test_the_picture_has_every_mean_at_its_height() -> None:
    figure, outcomes = toy()
    drawing = ET.fromstring(chart(figure, read_entries(figure, outcomes)))
    tag = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in drawing.iter(f"{tag}text")]
    assert "Toy <figure>" in texts and "A & co" in texts and "B" not in texts
    grid = {
        float(text.text): float(text.attrib["y"]) - 4
        for text in drawing.iter(f"{tag}text")
        if text.attrib.get("text-anchor") == "end" and text.text
    }
    (low, base), (high, top) = min(grid.items()), max(grid.items())
    marks = [m.attrib for m in drawing.iter(f"{tag}path") if m.attrib["class"] == "mark"][2:]
    heights = [float(mark["transform"].split()[1].partition(")")[0]) for mark in marks]
    values = [(base - y) / (base - top) * (high - low) + low for y in heights]
    # Coordinates are written to a tenth of a pixel, of which there are 170 to the scale.
    assert values == pytest.approx([3.0, 4.0], abs=0.2 * high / 170)


def test_a_figure_without_any_value_is_drawn_all_the_same() -> None:
    figure, outcomes = toy()
    failed = dict.fromkeys(outcomes, Outcome(None, "It went wrong", 1.0, ""))
    entries = read_entries(figure, failed)
    ET.fromstring(chart(figure, entries))
    page = as_markdown(figure, entries)
    assert "Nothing." in page and "- A & co, 6 times: It went wrong" in page
