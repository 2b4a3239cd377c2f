"""Means and standard errors against hand computation; tables and pictures that hold them.

The values are those of a toy figure: two methods over three seeds, in one panel of two columns, and
a third method that was left out.
"""

import math
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from reproductions.harness.chart import chart
from reproductions.harness.figures import (
    Comparison,
    Entry,
    Figure,
    Method,
    Metric,
    Panel,
    Place,
    PublishedValue,
    Remark,
    Statement,
    mean_and_error,
    read_entries,
)
from reproductions.harness.findings import verdicts
from reproductions.harness.pages import as_markdown, as_plain, progress
from secagg.experiments.runner.cells import Cell, Outcome, cell
from secagg.experiments.runner.types import Numbers

A2, A4, B2, B4 = (Place("panel", column, method) for method in "ab" for column in (2, 4))
C2 = Place("panel", 2, "c")
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
            Statement("C below A.", (compared(C2, A2),)),
            Statement("A below B and C.", (compared(A2, B2), compared(A2, C2))),
        ),
        remarks=(
            Remark("A is stable", "shd", ((A4, A2),)),
            Remark("and close to B and C.", "shd", ((A2, B2), (A2, C2), (A4, B4))),
        ),
        stated=(PublishedValue("shd", A2, 5.0, 30, 1), PublishedValue("shd", C2, 5.0, 30, 1)),
        notes=("A note.",),
    )
    return figure, outcomes


def test_mean_and_standard_error_agree_with_a_hand_calculation() -> None:
    """1, 2, 6: mean 3, squared deviations 4 + 1 + 9 = 14, variance 7, standard error root(7/3)."""
    mean, error = mean_and_error([1.0, 2.0, 6.0])
    assert mean == 3 and error == pytest.approx(math.sqrt(7 / 3), rel=1e-15)
    assert mean_and_error([5.0]) == (5.0, None)
    assert mean_and_error([]) == (None, None)


def test_entries_count_failed_and_unconverged_runs() -> None:
    figure, outcomes = toy()
    entries = read_entries(figure, outcomes)
    assert [entries[p].runs for p in (A2, A4, B2, B4)] == [3, 3, 3, 2]
    assert [entries[p].unconverged for p in (A2, A4, B2, B4)] == [1, 0, 0, 0]
    assert entries[B4].failed == {2: "It went | wrong"}
    assert entries[A2].values["seconds"] == {0: 0.0, 1: 2.0, 2: 4.0}
    assert len(figure.cells()) == 12


def test_a_cell_may_have_numbers_for_each_column() -> None:
    both = cell("t", 1.0, seed=0)
    figure, _ = toy()
    places = {place: {0: both} for place in (A2, A4, B2)}
    numbers = {"a 2": {"shd": 1.0, "converged": 1.0}, "a": {"shd": 3.0, "converged": 1.0},
               "b": {"shd": 5.0, "converged": 1.0}}  # fmt: skip
    found = read_entries(
        replace(figure, points=places), {both: Outcome(numbers, None, 1.0, "v1")}
    )  # fmt: skip
    assert [found[place].values["shd"][0] for place in places] == [1, 3, 5]


def test_missing_runs_are_counted() -> None:
    figure, outcomes = toy()
    first = {cell: o for cell, o in outcomes.items() if dict(cell.settings)["seed"] == 0}
    del outcomes[figure.points[A4][2]]
    entries = read_entries(figure, outcomes)
    assert entries[A4].waiting == (2,) and (entries[A4].runs, entries[A4].planned) == (2, 3)
    page = as_markdown(figure, entries).splitlines()
    assert "of 3: 2 (A & co), 3 (B)." in progress(figure, entries)
    assert "| A & co | 3.0 ± 1.5 | 4.0 ± 0.0 (2) |" in page
    assert "| A & co | 3, 1 not converged | 2, 1 pending |" in page
    entries = read_entries(figure, first)
    page = as_markdown(figure, entries).splitlines()
    assert "of 3: 1." in progress(figure, entries)
    assert (
        "| A & co | 1.0 (1) | 4.0 (1) |" in page and "| B | 1, 2 pending | 1, 2 pending |" in page
    )
    assert as_plain(figure, entries, (), 0.0)["entries"][0]["to_come"] == [1, 2]


def test_a_mean_states_its_number_of_runs_if_some_lack_the_quantity() -> None:
    figure, outcomes = toy()
    numbers: Numbers = {"a": {"converged": 1.0}}
    outcomes[figure.points[A2][1]] = Outcome(numbers, None, 1.0, "v1")
    entries = read_entries(figure, outcomes)
    assert entries[A2].runs == 3 and entries[A2].values["shd"] == {0: 1.0, 2: 6.0}
    assert "| A & co | 3.5 ± 2.5 (2) | 4.0 ± 0.0 |" in as_markdown(figure, entries).splitlines()


def test_the_page_shows_means_failures_and_verdicts() -> None:
    page = as_markdown(toy()[0], read_entries(*toy()))
    for line in (
        "| sites K | 2 | 4 |",
        "| A & co | 3.0 ± 1.5 | 4.0 ± 0.0 |",
        "| B | 6.0 ± 2.1 | 3.5 ± 0.5 (2) |",
        "| A & co | 3, 1 not converged | 3 |",
        "| B | 3 | 2, 1 failed |",
        "| SHD of A & co, panel, sites K 2 | 5 | 3.0 ± 1.5 | -3.9 to 9.9 | undecided |",
        "| SHD of C, panel, sites K 2 | 5 | - | - | not run |",
        "| A below B. | Of 2 comparisons: 2 undecided. Fewer than 6 runs with a value: 2. |",
        "| C below A. | Not run: C. |",
        "| A below B and C. | Of 2 comparisons: 1 undecided, 1 not run. Fewer than 6 runs with a "
        "value: 1. Not run: C. |",
        # A4 - A2: 3, 2, -2, whose mean is 1 and s root 7; A2 - B2: -2, -3, -4. t of 2 degrees is
        # 4.303 (tables). At 4, B failed in one run: A4 - B4 is 0 and 1, and t of 1 degree 12.706.
        "| A is stable | SHD of A & co (4) minus A & co (2) | 1.0 ± 1.5 | -5.6 to 7.6 | 3 |",
        "| and close to B and C. | SHD of A & co (2) minus B (2) | -3.0 ± 0.6 | -5.5 to -0.5 | 3 |",
        "|  | SHD of A & co (2) minus C (2) | - | - | 0 |",
        "|  | SHD of A & co (4) minus B (4) | 0.5 ± 0.5 | -5.9 to 6.9 | 2 |",
        "Not run: C.",
        "- B, 1 times: It went | wrong",
        "A note.",
    ):
        assert line in page.splitlines(), line
    assert "| C |" not in page and progress(toy()[0], read_entries(*toy())) == ""


def test_the_json_has_values_means_and_failures() -> None:
    plain = as_plain(toy()[0], read_entries(*toy()), ("v1", "v2"), 12.5)
    entry = plain["entries"][-1]
    assert (entry["method"], entry["column"], entry["runs"]) == ("b", 4, 2)
    assert entry["values"]["shd"] == {"0": 4.0, "1": 3.0}
    assert entry["mean"]["shd"] == 3.5 and entry["standard_error"]["shd"] == 0.5
    assert entry["failed"] == {"2": "It went | wrong"} and plain["computed_with"] == ["v1", "v2"]
    assert plain["not_run"] == ["c"] and plain["cpu_seconds"] == 12.5
    [first, second] = plain["statements"][-1]["comparisons"]
    assert (first["verdict"], first["runs"], first["difference"]["mean"]) == ("undecided", 3, 3.0)
    assert first["smaller"] == {"panel": "panel", "column": 2, "method": "a"}
    assert (second["verdict"], second["runs"], second["difference"]) == ("not run", 0, None)
    [close, absent, _] = plain["remarks"][1]["differences"]
    assert (close["of"]["method"], close["less"]["method"], close["runs"]) == ("a", "b", 3)
    assert close["difference"]["mean"] == -3.0
    assert close["standard_error"] == pytest.approx(1 / math.sqrt(3), rel=1e-15)
    assert (absent["runs"], absent["difference"], absent["standard_error"]) == (0, None, None)


def test_a_shrinking_difference_is_reported_with_both_differences() -> None:
    """B - A is 2, 3, 4 at 2 and 0, 1, 2 at 4, thrice: it shrinks by 2 in every run."""
    values = {A2: [1.0] * 9, A4: [1.0] * 9, B2: [3.0, 4.0, 5.0] * 3, B4: [1.0, 2.0, 3.0] * 3}
    entries = {
        place: Entry({"shd": dict(enumerate(given)), "converged": dict.fromkeys(range(9), 1.0)},
                     {}, 0)
        for place, given in values.items()
    }  # fmt: skip
    grows = Comparison("shd", A4, B4, by_more_than=compared(A2, B2))
    [told] = verdicts(replace(toy()[0], statements=(Statement("It grows.", (grows,)),)), entries)
    assert told[1] == (
        "Of 1 comparison: 1 not as stated. Not as stated: A & co (4) below B (4) by -2.0 more than "
        "A & co (2) below B (2) (-2.0 to -2.0; 9 runs)."
    )


def test_the_figure_draws_every_mean_at_its_height() -> None:
    figure, outcomes = toy()
    drawing = ET.fromstring(chart(figure, read_entries(figure, outcomes)))
    tag = "{http://www.w3.org/2000/svg}"
    texts = [text.text for text in drawing.iter(f"{tag}text")]
    assert "Toy <figure>" in texts and "A & co" in texts
    assert "B" not in texts and "C" not in texts  # not drawn, and not run
    grid = {
        float(text.text): float(text.attrib["y"]) - 4
        for text in drawing.iter(f"{tag}text")
        if text.attrib.get("text-anchor") == "end" and text.text
    }
    (low, base), (high, top) = min(grid.items()), max(grid.items())
    marks = [m.attrib for m in drawing.iter(f"{tag}path") if m.attrib["class"] == "mark"][1:]
    heights = [float(mark["transform"].split()[1].partition(")")[0]) for mark in marks]
    values = [(base - y) / (base - top) * (high - low) + low for y in heights]
    # Coordinates are written to a tenth of a pixel, of which there are 170 to the scale.
    assert values == pytest.approx([3.0, 4.0], abs=0.2 * high / 170)


def test_a_figure_without_values_is_drawn() -> None:
    figure, outcomes = toy()
    failed = dict.fromkeys(outcomes, Outcome(None, "It went wrong", 1.0, ""))
    entries = read_entries(figure, failed)
    ET.fromstring(chart(figure, entries))
    page = as_markdown(figure, entries).splitlines()
    assert "None." in page and "- A & co, 6 times: It went wrong" in page
