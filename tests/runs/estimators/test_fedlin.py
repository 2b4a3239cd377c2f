"""FedLin as an estimator: scikit-learn's manners, columns read from tables, predictions."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import r2_score

from secagg.errors import DataError, UsageError
from secagg.runs.estimators.fedlin import FedLin
from secagg.runs.estimators.tables import columns_of

TABLES = dict[str, pd.DataFrame]


def tables(sites: int = 4, n: int = 40) -> TABLES:
    rng = np.random.default_rng(0)
    found = {}
    for k in range(sites):
        x, g = rng.normal(50, 10, n), rng.choice(["a", "b", "c"], n)
        y = 3 + k + 0.2 * x + 2.0 * (g == "b") + rng.normal(0, 1, n)
        found[f"s{k}"] = pd.DataFrame({"x": x, "group": g, "y": y})
    return found


SETTINGS = {"draws": 200}


@pytest.fixture(scope="module")
def fitted() -> FedLin:
    return FedLin("hm2", settings=SETTINGS, seed=1).fit_sites(tables())


@pytest.mark.parametrize("kind", ["hm1", "fedavg", "ditto"])
def test_every_model_fits_and_predicts(kind: str) -> None:
    given = tables()
    model = FedLin(kind, seed=1).fit_sites(given)
    assert list(model.coef_.index) == list(given)
    assert list(model.coef_.columns) == ["intercept", "x", "group=b", "group=c"]
    assert model.score(given) > 0.8
    assert {"hm1", "fedavg", "ditto"} & set(model.errors_.index)


def test_predictions_agree_with_the_coefficients(fitted: FedLin) -> None:
    table = tables()["s2"].iloc[:7].copy()
    table.loc[:1, "x"] = [1000.0, -1000.0]  # beyond the bounds: not clipped
    b = fitted.coef_.loc["s2"]
    expected = (
        b["intercept"]
        + b["x"] * table["x"]
        + b["group=b"] * (table["group"] == "b")
        + b["group=c"] * (table["group"] == "c")
    )
    np.testing.assert_allclose(fitted.predict(table, "s2"), expected, rtol=1e-12)


def test_a_polynomial_uses_the_column_scaled_by_its_bounds() -> None:
    rng = np.random.default_rng(0)
    t = {f"s{k}": np.sort(rng.uniform(0, 300, 60)) for k in range(3)}
    given = {s: pd.DataFrame({"t": v, "y": 1 + v / 300 - 2 * (v / 300) ** 2}) for s, v in t.items()}
    columns = {"t": {"type": "continuous", "low": 0, "high": 300},
               "y": {"type": "continuous", "low": -5, "high": 5}}  # fmt: skip
    settings = {"degree": 2, "noise_sd": 1e-4, "rounds": 250}
    model = FedLin("hm1", columns=columns, settings=settings, seed=1).fit_sites(given)
    assert list(model.coef_.columns) == ["intercept", "t", "t^2"]
    # So little noise leaves least squares, which is exact here, but for what gradient steps leave.
    for site, table in given.items():
        np.testing.assert_allclose(model.predict(table, site), table["y"], atol=2e-3)
    far = model.predict(pd.DataFrame({"t": [-300.0, 600.0]}), "s1")
    b = model.coef_.loc["s1"].to_numpy()
    np.testing.assert_allclose(far, [b @ [1, -1, 1], b @ [1, 2, 4]], rtol=1e-12)
    beyond = {site: table.assign(y=100 * table["y"]) for site, table in given.items()}
    predicted = np.concatenate([model.predict(table, site) for site, table in given.items()])
    actual = np.concatenate([table["y"] for table in beyond.values()])
    assert model.score(beyond) == pytest.approx(r2_score(actual, predicted), rel=1e-9)


def lognormal() -> tuple[TABLES, dict[str, Any]]:
    """An outcome and a predictor that are linear in their logarithms."""
    rng, given = np.random.default_rng(0), {}
    for k in range(3):
        z = rng.normal(0, 1, 50)
        y = np.exp(2 + 0.3 * k + 0.8 * z + 0.1 * rng.normal(size=50))
        given[f"s{k}"] = pd.DataFrame({"dose": np.exp(z), "y": y})
    columns = {
        "dose": {"type": "continuous", "low": 0.01, "high": 100, "transform": "log"},
        "y": {"type": "continuous", "low": 1e-3, "high": 1e4, "transform": "log"},
    }
    return given, columns


def test_predictions_undo_the_logarithm_of_the_outcome() -> None:
    """A dose without one is read as the least value the job allows; others are not clipped."""
    given, columns = lognormal()
    model = FedLin("hm1", columns=columns, seed=1).fit_sites(given)
    actual = np.concatenate([table["y"] for table in given.values()])
    predicted = np.concatenate([model.predict(table, s) for s, table in given.items()])
    assert model.score(given) == pytest.approx(r2_score(actual, predicted), rel=1e-12)
    assert model.score(given) > 0.9
    dose = pd.DataFrame({"dose": [0.0, -3.0, 0.01, 1e-6, 1e6, 2.0]})
    b = model.coef_.loc["s0"]
    read = np.log([0.01, 0.01, 0.01, 1e-6, 1e6, 2.0])
    expected = np.exp(b["intercept"] + b["dose"] * read)
    np.testing.assert_allclose(model.predict(dose, "s0"), expected, rtol=1e-9)
    with pytest.raises(DataError, match="infinite"):
        model.predict(pd.DataFrame({"dose": [-np.inf]}), "s0")


def two_levels(kind: str) -> tuple[TABLES, str]:
    """Tables with an outcome of text, and the level that counts as 1."""
    rng, given, levels = np.random.default_rng(0), {}, ["no", "yes"]
    if kind == "categorical":
        levels = ["a", "b", "c"]
    for k in range(3):
        x = rng.normal(size=60)
        y = np.where(x + 0.5 * rng.normal(size=60) > 0, levels[1], rng.choice(levels[::2], 60))
        given[f"s{k}"] = pd.DataFrame({"x": x, "y": y})
    return given, levels[1]


@pytest.mark.parametrize(
    ("kind", "outcome"), [("binary", "y"), ("binary", "y=yes"), ("categorical", "y=b")]
)
def test_an_outcome_level_is_coded_0_or_1(kind: str, outcome: str) -> None:
    given, level = two_levels(kind)
    columns = columns_of(given)
    model = FedLin("hm1", outcome=outcome, predictors=("x",), columns=columns, seed=1)
    model.fit_sites(given)
    actual = np.concatenate([table["y"] == level for table in given.values()]).astype(float)
    predicted = np.concatenate([model.predict(table, site) for site, table in given.items()])
    assert model.score(given) == pytest.approx(r2_score(actual, predicted), rel=1e-12)
    assert model.score(given) > 0.3


def test_other_levels_of_the_outcome_are_not_default_predictors() -> None:
    """They say what it is: with predictors unset, none of its column's other indicators is one."""
    given, _ = two_levels("categorical")
    model = FedLin("hm1", outcome="y=b", seed=1).fit_sites(given)
    assert list(model.coef_.columns) == ["intercept", "x"]
    asked = FedLin("hm1", outcome="y=b", predictors=("x", "y=c"), seed=1).fit_sites(given)
    assert list(asked.coef_.columns) == ["intercept", "x", "y=c"]  # whoever names it, has it


@pytest.mark.parametrize(
    ("kind", "protocol"), [("hm1", "plain"), ("hm2", None), ("full", None), ("ditto", None)]
)
def test_bounds_read_from_tables_are_noted(kind: str, protocol: str | None) -> None:
    """As everybody would know them; not those that are given."""
    settings = {"rounds": 2, **(SETTINGS if kind in ("hm2", "full") else {})}
    model = FedLin(kind, settings=settings, protocol=protocol, seed=1)
    model.fit_sites(tables())
    noted = [note for note in model.result_.summary["notes"] if "read from the tables" in note]
    assert len(noted) == 1
    model.set_params(columns=columns_of(tables())).fit_sites(tables())
    assert not any("read from the tables" in note for note in model.result_.summary["notes"])


def test_scores_need_records_with_an_outcome(fitted: FedLin) -> None:
    given, s0 = tables(), tables()["s0"]
    given["s1"].loc[3, "y"] = np.nan
    for wrong in (given, {"s0": s0.drop(columns="y")}, {"s0": s0.iloc[:1]}, {}):
        with pytest.raises(DataError):
            fitted.score(wrong)
    with pytest.raises(UsageError):
        FedLin().score(tables())


def test_a_site_without_records_has_no_own_intercept() -> None:
    given = {**tables(3), "empty": tables()["s0"].iloc[:0]}
    columns = columns_of(tables())
    model = FedLin("hm1", columns=columns, seed=1).fit_sites(given)
    with pytest.raises(UsageError, match="'empty'"):
        model.predict(tables()["s0"], "empty")
    assert model.score(given) == pytest.approx(model.score(tables(3)), rel=1e-12)
    settings = {"intercept": "modelled"}
    model = FedLin("hm1", columns=columns, settings=settings, seed=1).fit_sites(given)
    assert np.all(np.isfinite(model.predict(tables()["s0"], "empty")))


def test_sites_may_be_named_by_numbers() -> None:
    named = {9 + k: table for k, table in enumerate(tables().values())}
    model = FedLin("hm1", seed=1).fit_sites(named)
    np.testing.assert_array_equal(model.predict(named[10], 10), model.predict(named[10], "10"))
    assert model.score(named) > 0.8


def test_intervals_agree_with_the_sites_own_results(fitted: FedLin) -> None:
    """A frame of them; and of what sites share. Another model leaves none of an earlier fit."""
    assert list(fitted.intervals_.columns) == ["mean", "sd", "low", "high"]
    for site, own in fitted.own_.items():
        rows = {row["term"]: row for row in own.summary["coefficients"]}
        assert list(fitted.intervals_.loc[site].index) == list(fitted.coef_.columns)
        for term, row in fitted.intervals_.loc[site].iterrows():
            assert row.to_dict() == {key: rows[str(term)][key] for key in row.index}
    told = fitted.result_.summary["shared"]
    assert fitted.shared_.loc[told[0]["name"], "low"] == told[0]["low"]
    model = FedLin("hm2", settings=SETTINGS, seed=1).fit_sites(tables())
    model.set_params(model="hm1", settings=None).fit_sites(tables())
    assert not hasattr(model, "intervals_") and not hasattr(model, "shared_")


def test_omitted_rows_are_noted() -> None:
    given = tables()
    model = FedLin("hm1", settings={"rounds": 2}, seed=1).fit_sites(given)
    assert not any("left out" in note for note in model.result_.summary["notes"])
    given["s1"].loc[3:5, "x"] = np.nan
    model.fit_sites(given)
    assert any("3 of 160 rows lack" in note for note in model.result_.summary["notes"])


def test_many_clipped_values_are_noted() -> None:
    """Above 1 % of a column's values: of 160, two are, one is not."""
    given = tables()
    columns = columns_of(given)
    x = np.sort(np.concatenate([table["x"] for table in given.values()]))
    for outside, noted in ((1, False), (2, True)):
        columns["x"]["high"] = float((x[-outside - 1] + x[-outside]) / 2)
        model = FedLin("hm1", columns=columns, settings={"rounds": 2}, seed=1).fit_sites(given)
        counted = f"{outside} of 160 values of 'x'"
        assert any(counted in note for note in model.result_.summary["notes"]) == noted


def test_an_estimator_adapts_to_a_new_site(fitted: FedLin) -> None:
    new = tables(6)["s5"]
    adapted = fitted.adapt(new)
    rows = {row["term"]: row for row in adapted.table()}
    assert rows["x"]["low"] < 0.2 < rows["x"]["high"]
    with pytest.raises(UsageError, match="fedlin_hm2"):
        FedLin("fedavg", seed=1).fit_sites(tables()).adapt(new)


def test_invalid_calls_are_errors(fitted: FedLin) -> None:
    with pytest.raises(UsageError, match="'x'") as raised:
        fitted.predict(tables()["s0"], "x")
    assert raised.value.advice.endswith("s0, s1, s2, s3.")  # and no more
    s0 = tables()["s0"]
    for fail in (
        lambda: FedLin().predict(s0, "s0"),
        lambda: FedLin("hm3").fit_sites(tables()),
        lambda: FedLin("hm1").fit_sites({"s0": s0}),
    ):
        with pytest.raises(UsageError):
            fail()
    for wrong in (s0.assign(x=np.nan), s0.drop(columns="x")):
        with pytest.raises(DataError):
            fitted.predict(wrong, "s0")
    with pytest.raises(DataError, match="'y'"):
        FedLin("hm1").fit_sites({**tables(), "s1": tables()["s1"].drop(columns="y")})


def test_column_types_and_bounds_are_read_from_the_tables() -> None:
    given = {
        "a": pd.DataFrame({"n": [1.0, 3.0], "b": [0, 1], "w": ["x", "y"], "l": ["p", "q"]}),
        "b": pd.DataFrame({"n": [2.0, np.nan], "b": [1, 1], "w": ["x", "NA"], "l": ["r", None]}),
    }
    assert columns_of(given) == {
        "n": {"type": "continuous", "low": 0.8, "high": 3.2},
        "b": {"type": "binary"},
        "w": {"type": "binary", "levels": ["x", "y"]},
        "l": {"type": "categorical", "levels": ["p", "q", "r"]},
    }
    assert list(columns_of(given, ["l=q", "n", "l=r"])) == ["l", "n"]
    for constant in ([1.0, 1.0], ["x", "x"]):
        with pytest.raises(DataError):
            columns_of({"a": pd.DataFrame({"n": constant})})
