"""What the tables of `sparse-bayes` say of fits whose numbers are given here."""

import json
from collections.abc import Mapping
from typing import Any

from reproductions.harness.network_chart import network_chart
from reproductions.harness.tables import Study, StudyTables, Table, study_tables, write
from reproductions.sparse_bayes import directed_rows, rows
from reproductions.sparse_bayes.tasks import markov_random_field
from reproductions.sparse_bayes.tasks.sampler import WHOLE_FIT
from secagg.experiments.runner.cells import Outcome, cell
from secagg.experiments.runner.experiment import Done


def coefficient(pip: float, r_hat: float = 1.0) -> dict[str, float]:
    return {
        "mean": 0.25, "mcse": 0.001, "low": 0.1, "high": 0.4, "pip": pip, "pip_mcse": 0.01,
        "r_hat": r_hat, "ess_bulk": 900.0, "ess_tail": 350.0,
    }  # fmt: skip


WIDTH = {"records": 100.0, "slab_sd": 1.0, "spike_sd": 0.1}


def rows_of(table: Table) -> dict[str, list[str]]:
    return {row[0]: list(row[1:]) for row in table.rows}


def test_the_heart_tables_agree_with_the_fits() -> None:
    own = {hospital: {"age": 0.1 * k} for k, hospital in enumerate(rows.HOSPITALS)}
    pips = dict(zip(rows.PRIORS, (0.9, 0.5, 0.125), strict=True))
    fits: dict[str, Any] = {
        prior: {"age": coefficient(pip), **own, WHOLE_FIT: WIDTH} for prior, pip in pips.items()
    }
    least = {"mean": -0.5, "low": -0.75, "high": -0.25}
    fits[rows.LEAST] = {"age": least, WHOLE_FIT: {"records": 100.0}}
    compared, one, _, _, hospitals = rows.heart_tables(fits).tables
    assert rows_of(compared) == {
        "age": ["0.900 ± 0.010", "0.500 ± 0.010", "0.125 ± 0.010", "-0.500", "-0.75 to -0.25"]
    }
    assert rows_of(one) == {
        "age": ["0.250 ± 0.001", "0.10 to 0.40", "0.900 ± 0.010", "1.000", "900", "350"]
    }
    assert "eta ~ IG(1, 1)" in one.note and "slab 1.00, spike 0.100" in one.note
    assert rows_of(hospitals) == {"age": ["0.25", "0.00", "0.10", "0.20", "0.30"]}


def test_network_edges_and_unconverged_fits_are_reported() -> None:
    """Two sides of one pair in {0.98, 0.7}, all others 0.02: the union finds it at a rate of 0.1,
    the intersection does not (1 - 0.7 = 0.3).
    """
    names = ["a", "b", "c"]
    sides = {(i, j): coefficient(0.02) for i in names for j in names if i != j}
    sides["a", "b"], sides["b", "a"] = coefficient(0.98), coefficient(0.7, r_hat=1.02)
    fit = {markov_random_field.side(*pair): row for pair, row in sides.items()} | {WHOLE_FIT: WIDTH}
    partial = {
        markov_random_field.pair(*pair): {"r": r, "p_value": 0.5, "edge": edge}
        for pair, r, edge in ((("a", "b"), 0.5, 1.0), (("a", "c"), 0.1, 0.0),
                              (("b", "c"), -0.3, 1.0))
    }  # fmt: skip
    fits = dict.fromkeys(rows.PRIORS, fit) | {rows.PARTIAL: partial | {WHOLE_FIT: {"records": 9.0}}}
    came = rows.ovarian_tables(fits)
    pairs, edges, mixing = map(rows_of, came.tables)
    assert pairs.keys() == {"a - b"} and pairs["a - b"][-4:] == ["0.50", "yes", "1.020", "350"]
    assert edges["one slab, union"] == ["1", "1"]
    assert edges["one slab, intersection"] == ["0", "0"]
    assert edges["one slab, a PIP above 0.5"] == ["1", "1"]
    assert edges[rows.PARTIAL] == ["2", "2"]
    assert mixing["own slabs"] == ["6", "1.020", "1", "350", "6", "1.00", "0.100"]
    assert came.picture.count('class="edge"') == 4 + 1  # the legend's, and a - b


def test_a_negative_edge_is_dashed() -> None:
    drawn = network_chart("A field", ["a<", "b"], {("a<", "b"): (0.8, -0.2)})
    legend = network_chart("A field", ["a<", "b"], {})
    assert drawn.count("stroke-dasharray") == legend.count("stroke-dasharray") + 1
    assert "a&lt;" in drawn


def toy_study(calls: dict[str, str]) -> Study:
    fits = {label: cell("support.experiments.toy_task", 1.0, what=w) for label, w in calls.items()}

    def tell(numbers: Mapping[str, Any]) -> StudyTables:
        return StudyTables(
            (Table("A table", ("fit", "value"), [["x", f"{len(numbers)}"]], "A note."),)
        )

    return Study("toy", "A toy study", fits, tell, ("Of nothing.",))


def test_a_study_is_reported_when_all_its_fits_exist() -> None:
    study = toy_study({"one": "draw", "other": "raise"})
    one, other = study.cells()
    good, bad = Outcome({"toy": {"value": 1.0}}, None, 1.0, "v"), Outcome(None, "Why", 1.0, "v")
    came, missing = study_tables(study, {one: good})
    assert came is None and missing == ["other: pending"]
    assert study_tables(study, {one: good, other: bad})[1] == ["other: failed: Why"]
    page = write(study, Done({one: good, other: bad}, ("v",), 2.0))["toy.md"]
    assert "Not finished" in page and "- other: failed: Why" in page and "A table" not in page
    files = write(study, Done(dict.fromkeys(study.cells(), good), ("v",), 2.0))
    assert set(files) == {"toy.md", "toy.json"}
    text = files["toy.md"]
    assert "## A table\n\nA note.\n\n| fit | value |" in text and "- Of nothing." in text
    numbers = json.loads(files["toy.json"])
    assert numbers["fits"] == {"one": {"toy": {"value": 1.0}}, "other": {"toy": {"value": 1.0}}}


def test_tables_of_the_directed_graph_agree_with_the_fits() -> None:
    scores = {"edges": 2.0, "right": 1.0, "reversed": 0.0, "extra": 1.0, "missing": 16.0,
              "shd": 17.0}  # fmt: skip
    edges = {
        "Raf -> Mek": coefficient(0.5), "Mek -> Raf": coefficient(0.25),
        "Raf -> Jnk": coefficient(0.125), "Raf -> PKA": coefficient(0.05),
    }  # fmt: skip
    fits: dict[str, Any] = {
        rows.ONE: edges | {WHOLE_FIT: WIDTH, "fdr": scores, "likely": scores},
        directed_rows.NOTEARS: {"notears": scores},
    }
    shown, graphs, mixing = directed_rows.tables(fits).tables
    assert {name: row[3] for name, row in rows_of(shown).items()} == {
        "Raf -> Mek": "yes", "Mek -> Raf": "reversed", "Raf -> Jnk": "no",
    }  # fmt: skip
    assert rows_of(shown)["Raf -> Mek"][2:] == ["0.500 ± 0.010", "yes", "1.000", "900", "350"]
    assert rows_of(graphs)[directed_rows.NOTEARS] == ["2", "1", "0", "1", "16", "17"]
    assert rows_of(mixing) == {"4": ["1.000", "0", "350", "4", "1.00", "0.100"]}
