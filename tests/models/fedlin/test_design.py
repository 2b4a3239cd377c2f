"""FedLin's regressions: designs and units, from a site's raw rows to its own coefficients."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.fedlin.written_out import continuous, fedlin_job, simulated, told

from secagg.contracts import PublicFacts, Variable
from secagg.errors import JobError
from secagg.jobs.job import read_job
from secagg.models.fedlin.design import Layout
from secagg.sessions.planned_job import plan_job

UNITS = [("site", "pooled"), ("site", "own"), ("modelled", "pooled"), ("modelled", "own"),
         ("none", "own")]  # fmt: skip


def design(table: pd.DataFrame, names: list[str], columns: dict[str, Any], degree: int):
    """Raw predictors; of a polynomial, powers of x from 0 to 1 over its bounds."""
    X = table[names].to_numpy(dtype=float)
    if degree == 1:
        return X
    low, high = columns[names[0]]["low"], columns[names[0]]["high"]
    return ((X - low) / (high - low)) ** np.arange(1, degree + 1)


def least_squares(X: np.ndarray, y: np.ndarray, through_origin: bool) -> np.ndarray:
    """numpy's least squares with an intercept, of columns brought to one size about their means."""
    if through_origin:
        size = np.sqrt(np.mean(X**2, axis=0))
        return np.concatenate([[0.0], np.linalg.lstsq(X / size, y, rcond=None)[0] / size])
    mean, size = X.mean(axis=0), X.std(axis=0)
    slopes = np.linalg.lstsq((X - mean) / size, y - y.mean(), rcond=None)[0] / size
    return np.concatenate([[y.mean() - slopes @ mean], slopes])


def some_tables(
    sizes: tuple[float, ...], offsets: tuple[float, ...], seed: int = 0
) -> dict[str, pd.DataFrame]:
    """Sites with predictors of these sizes about these offsets; the last is the outcome's."""
    rng = np.random.default_rng(seed)
    found = {}
    for k, n in enumerate((25, 40, 18)):
        z = rng.standard_normal((n, len(sizes) - 1)).clip(-3, 3)
        y = z @ rng.uniform(0.5, 2, len(sizes) - 1) + 0.2 * rng.standard_normal(n)
        rows = np.array(offsets) + np.array(sizes) * np.column_stack([z, y])
        names = [*(f"x{j}" for j in range(len(sizes) - 1)), "y"]
        found[f"s{k}"] = pd.DataFrame(rows, columns=names)
    return found


def about(sizes: tuple[float, ...], offsets: tuple[float, ...]) -> dict[str, Any]:
    """Bounds beyond the records, not symmetric about them."""
    names = [*(f"x{j}" for j in range(len(sizes) - 1)), "y"]
    return {
        name: continuous(offset - 15 * size, offset + 20 * size)
        for name, size, offset in zip(names, sizes, offsets, strict=True)
    }


def check_own_results(
    tables: dict[str, pd.DataFrame],
    columns: dict[str, Any],
    names: list[str],
    settings: dict[str, Any],
    rtol: float,
) -> None:
    """A site's "site_ols" is numpy's least squares of its rows, and errors are of the rows."""
    intercept, degree = settings.get("intercept", "site"), settings.get("degree", 1)
    weights = {"name": "fedlin_hm1", "noise_sd": 1.0, "rounds": 2}
    result, own = simulated({**weights, **settings}, columns, tables)
    squares, held_out = {}, {}
    for site, table in tables.items():
        held = int(settings.get("holdout", 0.0) * len(table))
        kept, tested = table.iloc[: len(table) - held], table.iloc[len(table) - held :]
        X, y = design(kept, names, columns, degree), kept.y.to_numpy(dtype=float)
        expected = least_squares(X, y, intercept == "none")
        found = told(own[site], "site_ols")
        # As errors of predictions: of terms that cancel, where bounds are far from 0.
        largest = np.abs(X).max(axis=0)
        np.testing.assert_allclose(
            found[1:] * largest, expected[1:] * largest, rtol=0, atol=rtol * np.abs(y).max()
        )
        assert found[0] == pytest.approx(expected[0], abs=rtol * np.abs(y).max())
        nothing = y.mean() if intercept == "site" else 0.0
        if intercept == "modelled" and settings.get("scale", "pooled") == "pooled":
            nothing = np.concatenate([t.y.iloc[: len(t) - int(settings.get("holdout", 0) * len(t))]
                                      for t in tables.values()]).mean()  # fmt: skip
        for model in ("hm1", "site_ols", "mean_only"):
            told_ = next(r for r in own[site].summary["errors"] if r["model"] == model)
            if model == "mean_only":
                b = np.concatenate([[nothing], np.zeros(X.shape[1])])
            else:
                b = told(own[site], model)
            for rows, key in ((kept, "training_rmse"), (tested, "held_rmse")):
                if not len(rows):
                    continue
                wrong = rows.y.to_numpy() - b[0] - design(rows, names, columns, degree) @ b[1:]
                rmse = float(np.sqrt(np.mean(wrong**2)))
                assert told_[key] == pytest.approx(rmse, rel=1e-9, abs=rtol * np.abs(y).max())
                into = squares if rows is kept else held_out
                into.setdefault(model, []).append((float(wrong @ wrong), len(rows), rmse))
        assert own[site].summary["records_here"] == len(table)
        assert own[site].summary["learned_from"] == len(kept)
        assert own[site].summary["held_here"] == held
    for row in result.summary["errors"]:
        whole = squares[row["model"]]
        rmse = np.sqrt(sum(s for s, _, _ in whole) / sum(n for _, n, _ in whole))
        assert row["training_rmse"] == pytest.approx(rmse, rel=1e-6)
        if held_out:
            whole = held_out[row["model"]]
            rmse = np.sqrt(sum(s for s, _, _ in whole) / sum(n for _, n, _ in whole))
            assert row["held_rmse"] == pytest.approx(rmse, rel=1e-6)
            assert row["mean_site_rmse"] == pytest.approx(
                np.mean([r for _, _, r in whole]), rel=1e-6
            )


@pytest.mark.parametrize(("degree", "holdout"), [(1, 0.3), (3, 0.0), (3, 0.3)])
@pytest.mark.parametrize(("intercept", "scale"), UNITS)
def test_site_coefficients_and_errors_are_least_squares(
    intercept: str, scale: str, degree: int, holdout: float
) -> None:
    sizes, offsets = (1.0, 3.0, 0.2, 2.0), (0.5, -4.0, 0.1, 7.0)
    if degree == 3:
        sizes, offsets = sizes[2:], offsets[2:]
    tables, columns = some_tables(sizes, offsets), about(sizes, offsets)
    names = [name for name in columns if name != "y"]
    settings = {"intercept": intercept, "scale": scale, "degree": degree, "holdout": holdout}
    settings |= {"holdout_rows": "last"} if holdout else {}
    # Powers of x over a fifth of [0, 1] are collinear but for 1e-4 or so: slopes of 1e3 cancel.
    check_own_results(tables, columns, names, settings, 1e-12 if degree == 1 else 1e-8)


@pytest.mark.parametrize(("intercept", "scale"), UNITS)
@pytest.mark.parametrize(
    ("sizes", "offsets"),
    [
        ((1e-6, 1e6, 1.0, 1e6), (0.0, 0.0, 0.0, 0.0)),
        ((1.0, 1.0, 1.0), (1e6, -1e5, 1e4)),
        ((1e-3, 1e3, 1.0), (1.0, 1e6, 0.0)),
    ],
)
def test_results_do_not_depend_on_units_or_bounds(
    sizes: tuple[float, ...], offsets: tuple[float, ...], intercept: str, scale: str
) -> None:
    """Relative to |y|, times what offsets leave of 16 digits: 1e6 of them 1e-10 of a column.

    Through the origin far columns are all but one; that their sum is 0.5e6 deviations from 0 costs
    the digits of both.
    """
    far = max(abs(o) / s for o, s in zip(offsets, sizes, strict=True))
    rtol = 1e-12 * max(far, 1.0)
    tables, columns = some_tables(sizes, offsets), about(sizes, offsets)
    names = [name for name in columns if name != "y"]
    check_own_results(tables, columns, names, {"intercept": intercept, "scale": scale}, rtol)


def test_held_out_records_are_not_used_for_fitting() -> None:
    """Held-out records are not learned from: the two errors are of a partition of the rows."""
    tables, columns = some_tables((1.0, 2.0), (0.0, 5.0)), about((1.0, 2.0), (0.0, 5.0))
    _, own = simulated({"name": "fedavg", "holdout": 0.4}, columns, tables)
    for site, table in tables.items():
        held, b = int(0.4 * len(table)), told(own[site], "site_ols")
        row = next(r for r in own[site].summary["errors"] if r["model"] == "site_ols")
        squares = row["training_rmse"] ** 2 * (len(table) - held) + row["held_rmse"] ** 2 * held
        wrong = table.y.to_numpy() - b[0] - table.x0.to_numpy() * b[1]
        assert squares == pytest.approx(float(wrong @ wrong), rel=1e-12)
        every = least_squares(table[["x0"]].to_numpy(), table.y.to_numpy(), False)
        assert np.abs(b - every).max() > 1e-3


def test_predictors_keep_the_order_of_the_job() -> None:
    """The outcome stands between them."""
    rng = np.random.default_rng(0)
    columns = {
        "x0": continuous(-5, 9),
        "sex": {"type": "binary", "levels": ["f", "m"]},
        "y": continuous(-20, 35),
        "stage": {"type": "categorical", "levels": ["i", "ii", "iii"]},
    }
    tables = {}
    for k, n in enumerate((40, 60)):
        stage = rng.choice(["i", "ii", "iii"], n)
        table = pd.DataFrame(
            {"x0": rng.standard_normal(n), "sex": rng.choice(["f", "m"], n), "stage": stage}
        )
        tables[f"s{k}"] = table.assign(y=table.x0 + 2 * (stage == "ii") + rng.standard_normal(n))
    for settings in ({}, {"intercept": "modelled"}, {"scale": "own"}):
        predictors = ["stage", "x0", "sex"]
        job = {"name": "fedlin_hm1", "rounds": 2, "predictors": predictors, **settings}
        _, own = simulated(job, columns, tables)
        for site, t in tables.items():
            X = np.column_stack([t.stage == "ii", t.stage == "iii", t.x0, t.sex == "m"])
            expected = least_squares(X.astype(float), t.y.to_numpy(), False)
            terms = [row["term"] for row in own[site].summary["coefficients"]]
            assert terms == ["intercept", "stage=ii", "stage=iii", "x0", "sex=m"]
            np.testing.assert_allclose(told(own[site], "site_ols"), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("columns", "outcome", "where"),
    [
        ({"x": continuous(0, 1), "y": {"type": "categorical", "levels": ["i", "ii", "iii"]}},
         "y", "method.outcome"),
        ({"y": continuous(0, 1)}, "y", "columns"),
        ({"intercept": continuous(0, 1), "y": continuous(0, 1)}, "y", "columns"),
    ],
    ids=["an outcome of several variables", "no predictor", "a predictor named as the intercept"],
)  # fmt: skip
def test_columns_that_form_no_regression_are_refused(
    columns: dict[str, Any], outcome: str, where: str
) -> None:
    with pytest.raises(JobError) as raised:
        simulated({"name": "fedlin_hm1", "outcome": outcome}, columns, {"a": None, "b": None})
    assert raised.value.where == where


@pytest.mark.parametrize("names", [("x0", "intercept"), ("Intercept", "y")], ids=str)
def test_an_outcome_may_be_named_intercept(names: tuple[str, str]) -> None:
    """Nor does another case: results tell terms apart by name."""
    tables, columns = some_tables((1.0, 2.0), (0.0, 0.0)), about((1.0, 2.0), (0.0, 0.0))
    named = {site: t.set_axis(names, axis="columns") for site, t in tables.items()}
    columns = dict(zip(names, columns.values(), strict=True))
    _, own = simulated({"name": "fedlin_hm1", "outcome": names[1], "rounds": 2}, columns, named)
    expected = least_squares(tables["s0"][["x0"]].to_numpy(), tables["s0"].y.to_numpy(), False)
    assert [row["term"] for row in own["s0"].summary["coefficients"]] == ["intercept", names[0]]
    np.testing.assert_allclose(told(own["s0"], "site_ols"), expected, atol=1e-12)


def layout(intercept: str = "site", degree: int = 1, middle: float = 3.0) -> Layout:
    """Of y on one column within `middle` -+ 2."""
    variables = (Variable("x", "x", middle, 2.0), Variable("y", "y", -1.0, 5.0))
    public = PublicFacts(variables, ("x", "y"), 100, ("a", "b"))
    return Layout.of(public, "y", None, intercept, degree)  # type: ignore[arg-type]


@pytest.mark.parametrize("intercept", ["site", "modelled"])
@pytest.mark.parametrize("degree", [1, 4])
def test_in_own_units_inverts_the_scaling_of_the_design(intercept: str, degree: int) -> None:
    """Predictions from theta in the units analysed are those from what `in_own_units` returns."""
    rng = np.random.default_rng(degree)
    regression = layout(intercept, degree)
    values = rng.uniform(-1, 1, (30, 2))
    centre, scale = np.array([0.2, 0.0 if degree > 1 else -0.1]), np.array([3.0, 0.7])
    X, y = regression.design(values, centre, scale)
    level = regression.level(X, y)
    theta = rng.standard_normal(regression.d)
    predicted = level.y + (X - level.x) @ theta
    outcome = -1 + 5 * (centre[0] + predicted / scale[0])
    b = regression.in_own_units(theta, centre, scale, level)
    x = 3 + 2 * values[:, 1]
    powers = ((values[:, 1] + 1) / 2)[:, None] ** np.arange(1, degree + 1)
    X_own = powers if degree > 1 else x[:, None]
    np.testing.assert_allclose(b[0] + X_own @ b[1:], outcome, rtol=0, atol=1e-12 * np.abs(b).max())


@pytest.mark.parametrize("middle", [0.0, 3.0, 1e6, -1e9])
def test_rounding_bounds_the_error_for_bounds_far_from_zero(middle: float) -> None:
    """Equal numbers, read with those bounds, differ by less than `rounding` after centring."""
    regression = layout(middle=middle)
    rng = np.random.default_rng(0)
    x = middle + 2 * rng.uniform(-1, 1, 200)
    other = (x + 7 * abs(middle)) - 7 * abs(middle)  # x, but for its last digits
    carried = (np.column_stack([x, other]) - middle) / 2
    for centre, scale in ((-middle / 2, 2.0), (0.0, 1.7)):
        z = (carried - centre) * scale
        off = regression.rounding(np.array([0.0, centre]), np.array([1.0, scale]))
        assert np.abs(z[:, 0] - z[:, 1]).max() <= 16 * off[0]
        assert off[0] < 1e-14 * scale * (1 + abs(middle) + abs(centre))


def test_a_job_without_parties_has_the_columns_of_the_layout() -> None:
    """The outcome first, then predictors in the order of the job."""
    columns = {"b": continuous(0, 1), "y": continuous(0, 1), "a": continuous(0, 1)}
    job = read_job(fedlin_job({"name": "fedavg"}, columns))
    planned = plan_job(job, {"s": pd.DataFrame(), "t": pd.DataFrame()})
    regression = Layout.of(planned.public, "y", None, "modelled", 1)
    assert regression.names == ("y", "b", "a")
    assert regression.terms == ("intercept", "b", "a")
    assert regression.d == 3
