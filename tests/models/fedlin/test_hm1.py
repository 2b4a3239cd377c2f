"""HM1 as a run, against the dense algorithm on raw records; its edge cases."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.fedlin.written_out import (
    Written,
    bounds,
    continuous,
    dense_and_error,
    dense_hm1,
    linear_tables,
    simulated,
    told,
)
from support.methods.wrong_settings import wrong_settings

from secagg.errors import JobError, UsageError
from secagg.models.fedlin.gradient_steps import Quadratic

HM1 = {"name": "fedlin_hm1"}
SIZES = (12, 30, 7, 55, 3, 0)  # the last: fewer records than coefficients, and none


def run_and_write(
    sizes: tuple[int, ...], method: dict[str, Any], d: int = 3, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, float, Any]:
    """Return sites' coefficients in own units by a run, and by the dense algorithm."""
    tables = linear_tables(sizes, d, seed)
    result, own = simulated({**HM1, **method}, bounds(tables), tables)
    intercept = method.get("intercept", "site")
    written = Written.of(tables, intercept, method.get("scale", "pooled"))
    pooled, each = written.noise(intercept == "site")
    sd = method.get("noise_sd")
    before = 2
    if sd is not None:
        pooled, each = (sd / written.unit[0]) ** 2, []
        before = 1
    site = method.get("variance") == "site" and sd is None
    noise = np.array(each) if site else np.full(len(sizes), pooled)
    names = ("alpha", "rounds", "steps", "step", "weight", "batch", "participation")
    settings = {k: method[k] for k in names if k in method}
    dense, error = dense_and_error(written, noise, before=before, **settings)
    here = [k for k, n in enumerate(sizes) if n]  # a site without records has no coefficients
    expected = np.array([written.back(dense.Theta[k], k) for k in here])
    found = np.array([told(own[f"s{k:03d}"], "hm1") for k in here])
    return found, expected, error * written.largest, result


SETTINGS: list[dict[str, Any]] = [
    {},
    {"alpha": 0.99, "rounds": 12},
    {"intercept": "modelled", "alpha": 0.5},
    {"intercept": "modelled", "scale": "own"},
    {"intercept": "none", "scale": "own"},
    {"scale": "own", "weight": "steps", "alpha": 0.9},
    {"noise_sd": 1.5, "variance": "site"},
    {"participation": 0.4, "alpha": 0.9},
    {"batch": 9, "step": 0.1, "participation": 0.5, "variance": "site"},
    {"steps": 1, "rounds": 60},
    {"steps": 3, "step": 0.9},
]


@pytest.mark.parametrize("method", SETTINGS, ids=str)
def test_a_run_equals_the_dense_algorithm(method: dict[str, Any]) -> None:
    empty = method.get("alpha", 0.1) < 0.9  # there the dense Omega is c, which vanishes
    found, expected, error, result = run_and_write(SIZES if empty else SIZES[:-1], method)
    assert error < 2e-8  # as I + G is conditioned
    np.testing.assert_allclose(found, expected, rtol=0, atol=error)
    assert result.summary["rounds"] == method.get("rounds", 30)


@pytest.mark.oracle
def test_a_run_over_a_hundred_sites_is_correct() -> None:
    sizes = tuple(8 + k % 13 for k in range(100))
    found, expected, error, _ = run_and_write(sizes, {"rounds": 30}, 5)
    assert error < 1e-7
    np.testing.assert_allclose(found, expected, rtol=0, atol=error)


def orthogonal(seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return X_k with X'X = n_k I, so that all directions of a site are alike, and y_k."""
    rng = np.random.default_rng(seed)
    Xs, ys = [], []
    for n in (12, 30, 18):
        X = np.linalg.qr(rng.standard_normal((n, 4)))[0] * np.sqrt(n)
        Xs.append(X)
        ys.append(X @ rng.standard_normal(4) + rng.standard_normal(n))
    return Xs, ys


@pytest.mark.parametrize(("steps", "step"), [(1, 0.3), (5, 0.3), (20, 0.5), (20, 0.05)])
def test_the_posterior_mean_is_a_fixed_point_of_rounds(steps: int, step: float) -> None:
    """However far steps go: given Omega, E[Theta] is the fixed point of steps and shrinkage."""
    Xs, ys = orthogonal()
    rng, noise = np.random.default_rng(1), 0.7
    root = rng.standard_normal((3, 3))
    Omega = root @ root.T
    n = np.array([float(len(X)) for X in Xs])
    least = np.array([X.T @ y / len(X) for X, y in zip(Xs, ys, strict=True)])  # (K, d)
    mean = Omega @ np.linalg.solve(Omega + np.diag(noise / n), least)
    shapes = [Quadratic.of(X.T @ X, X.T @ y) for X, y in zip(Xs, ys, strict=True)]
    eta = [step / shape.steepest for shape in shapes]
    a = [noise * shape.answer(e, steps) for shape, e in zip(shapes, eta, strict=True)]
    moved = np.array([s.stepped(mean[k], eta[k], steps) for k, s in enumerate(shapes)])
    after = Omega @ np.linalg.solve(Omega + np.diag(a), moved)
    np.testing.assert_allclose(after, mean, rtol=0, atol=1e-12)
    if steps == 20 and step == 0.5:  # where steps come to their end, "steps" shrinks 20 times that
        assert 2 * eta[0] * steps * noise / a[0] == pytest.approx(20, rel=1e-5)


@pytest.mark.parametrize(
    ("steps", "rounds", "alpha"), [(1, 1500, 0.1), (20, 100, 0.5)], ids=["one step", "many"]
)
def test_rounds_converge_to_the_documented_limit(steps: int, rounds: int, alpha: float) -> None:
    """One step gives E[Theta] given Omega for any X; many steps: docs/methods/fedlin_hm1.md."""
    written = Written.of(linear_tables((20, 30, 25, 40), noise=1.0, spread=0.5), "site", "pooled")
    noise, _ = written.noise(True)
    settings = {"steps": steps, "rounds": rounds, "alpha": alpha}
    dense = dense_hm1(written, np.full(4, noise), **settings)
    least = np.array([written.least(k) for k in range(4)])
    K, d = least.shape
    precision = np.zeros((K * d, K * d))
    for k, X in enumerate(written.X):
        precision[k * d : (k + 1) * d, k * d : (k + 1) * d] = X.T @ X / noise
    prior = np.kron(dense.Omega, np.eye(d))
    told_by_records = precision @ least.ravel()
    mean = np.linalg.solve(np.eye(K * d) + prior @ precision, prior @ told_by_records)
    size = float(np.linalg.norm(mean))
    off = float(np.linalg.norm(dense.Theta.ravel() - mean)) / size
    if steps == 1:
        assert off < 1e-9
    else:
        assert off == pytest.approx(0.04, abs=0.005)
        assert np.linalg.norm(least.ravel() - mean) / size == pytest.approx(0.11, abs=0.005)


def test_an_error_says_what_to_set_if_no_site_can_estimate_the_noise() -> None:
    """Nowhere more records than coefficients: the error says what to set, and that helps."""
    tables = linear_tables((4, 3, 2))
    with pytest.raises(UsageError) as raised:
        simulated(HM1, bounds(tables), tables)
    assert "method.noise_sd" in raised.value.advice
    found, expected, error, _ = run_and_write((4, 3, 2), {"noise_sd": 0.3})
    np.testing.assert_allclose(found, expected, rtol=0, atol=error)


@pytest.mark.parametrize(("intercept", "least"), [("site", 5), ("modelled", 5), ("none", 4)])
def test_a_single_site_is_not_asked_for_residuals(intercept: str, least: int) -> None:
    """Its residuals would be the sum. d = 3: with 4 coefficients 5 records leave one residual."""
    settings = {"intercept": intercept, "scale": "own", "rounds": 2}
    for sizes in ((30, least - 1), (30, 0, 2, least - 1)):
        tables = linear_tables(sizes)
        with pytest.raises(UsageError) as raised:
            simulated({**HM1, **settings}, bounds(tables), tables)
        assert "method.noise_sd" in raised.value.advice
    found, expected, error, _ = run_and_write((30, least), settings)
    np.testing.assert_allclose(found, expected, rtol=0, atol=error)


def test_noise_of_an_outcome_far_from_zero_is_estimated() -> None:
    """Through the origin residuals are of the order of |y|, which is 200 half widths here."""
    rng = np.random.default_rng(0)
    tables = {}
    for k, n in enumerate((20, 30)):
        x = rng.uniform(-1, 1, n)  # nothing to do with y
        tables[f"s{k}"] = pd.DataFrame({"x0": x, "y": 100 + rng.uniform(-0.4, 0.4, n)})
    columns = {"x0": continuous(-1, 1), "y": continuous(99.5, 100.5)}
    method = {**HM1, "intercept": "none", "scale": "own", "rounds": 2}
    result, _ = simulated(method, columns, tables)
    pooled, _ = Written.of(tables, "none", "own").noise(False)
    assert result.summary["noise_sd"] == pytest.approx(np.sqrt(pooled), rel=1e-12)


@pytest.mark.parametrize("intercept", ["site", "modelled"])
def test_effects_of_collinear_columns_are_divided_among_them(intercept: str) -> None:
    """As the dense algorithm does: what no site's records tell stays at 0."""
    tables = {s: t.assign(x2=2 * t.x0 - t.x1) for s, t in linear_tables((12, 30, 9)).items()}
    method = {**HM1, "intercept": intercept}
    result, own = simulated(method, bounds(tables), tables)
    written = Written.of(tables, intercept, "pooled")
    pooled, _ = written.noise(intercept == "site")
    dense, error = dense_and_error(written, np.full(3, pooled))
    for k, each in enumerate(own.values()):
        atol = error * written.largest + 1e-10  # directions of rounding alone
        np.testing.assert_allclose(told(each, "hm1"), written.back(dense.Theta[k], k), atol=atol)
        np.testing.assert_allclose(
            told(each, "site_ols"), written.back(written.least(k), k), atol=1e-9
        )
        assert any("site_ols" in note for note in each.summary["notes"])
    deviation = np.sqrt(pooled) * written.unit[0]
    assert result.summary["noise_sd"] == pytest.approx(deviation, rel=1e-9)


@pytest.mark.parametrize("scale", ["pooled", "own"])
def test_a_column_constant_at_one_site_has_no_effect_there(scale: str) -> None:
    """0.1 less the mean of many 0.1 is rounding: it once had a slope of order 1."""
    tables = linear_tables((20, 30, 25), d=1)
    tables["s000"]["x0"] = 0.1
    result, own = simulated({**HM1, "scale": scale}, bounds(tables), tables)
    alone = own["s000"].summary
    mean = float(tables["s000"].y.mean())
    assert told(own["s000"], "site_ols") == pytest.approx([mean, 0.0], abs=1e-12)
    assert any("site_ols" in note for note in alone["notes"])
    spread = pytest.approx(float(tables["s000"].y.std(ddof=0)), rel=1e-12)
    assert all(row["training_rmse"] == spread for row in alone["errors"])
    written = Written.of(tables, "site", scale)
    written.X[0][:] = 0.0
    pooled, _ = written.noise(True)
    assert result.summary["noise_sd"] == pytest.approx(np.sqrt(pooled) * written.unit[0])


@pytest.mark.parametrize("intercept", ["site", "modelled"])
@pytest.mark.parametrize("column", ["x1", "y"])
@pytest.mark.parametrize("value", [0.1, -0.7])
def test_a_column_constant_everywhere_is_named(intercept: str, column: str, value: float) -> None:
    """With squares about 0 its variance is rounding, which is not always 0 or below."""
    tables = linear_tables((20, 31, 17))
    columns = bounds(tables)
    tables = {site: table.assign(**{column: value}) for site, table in tables.items()}
    with pytest.raises(UsageError, match=f"'{column}'"):
        simulated({**HM1, "intercept": intercept}, columns, tables)


def test_the_tolerance_ends_the_rounds() -> None:
    """When all coefficients' change is first below it. Rounds without anybody are no sign of it."""
    tables = linear_tables((20, 30, 9))
    settings = {**HM1, "alpha": 0.9, "noise_sd": 1.0, "weight": "steps"}
    every, _ = simulated({**settings, "rounds": 60}, bounds(tables), tables)
    result, _ = simulated({**settings, "rounds": 60, "tolerance": 5e-3}, bounds(tables), tables)
    rounds = result.summary["rounds"]
    assert every.summary["rounds"] == 60
    assert 3 < rounds < 60
    assert result.summary["change"] < 5e-3
    before, _ = simulated({**settings, "rounds": rounds - 1}, bounds(tables), tables)
    assert before.summary["change"] >= 5e-3
    method = {**HM1, "participation": 0.05, "rounds": 25, "tolerance": 1e-3}
    result, _ = simulated(method, bounds(tables), tables)
    assert result.summary["rounds"] == 25


def ended(**method: Any) -> Mapping[str, Any]:
    """Return the summary of a run over sites whose records tell little."""
    tables = linear_tables((20, 30, 25, 40), noise=3.0, spread=0.3)
    return simulated({**HM1, **method}, bounds(tables), tables)[0].summary


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("method", "noted"),
    [
        ({}, "Take more method.rounds"),  # or a larger method.alpha
        ({"steps": 1, "step": 1e-5}, "Take more method.rounds"),  # not grown yet, so not shrunk
        ({"alpha": 0.9}, None),
        ({"tolerance": 5e-3}, "Take a smaller method.tolerance"),
        ({"weight": "steps"}, "more rounds may"),
        ({"weight": "steps", "rounds": 100}, "more rounds would not help"),
        ({"weight": "steps", "rounds": 300}, "more rounds would not help"),
        ({"batch": 10, "step": 0.1}, "still changed"),  # by chance: no guess
        ({"participation": 0.5}, "still changed"),
    ],
    ids=str,
)
def test_at_most_one_fitting_note_is_given_on_convergence(
    method: dict[str, Any], noted: str | None
) -> None:
    """One note at most, whose advice fits."""
    summary = ended(**method)
    assert len(summary["notes"]) == (noted is not None)
    assert noted is None or noted in summary["notes"][0]
    assert summary.get("converged", False) == ("tolerance" in method and noted is None)
    ended_at_0 = method.get("rounds") == 300  # in steps of 2^-56
    assert (summary["change"] is None) == ended_at_0
    chance = bool(method.keys() & {"batch", "participation"})
    assert (summary["remaining"] is None) == (chance or ended_at_0)


@pytest.mark.oracle
def test_the_estimated_remaining_change_has_the_right_order() -> None:
    """Thirty rounds at alpha = 0.1 change by less than 1 % at last, with 7 % to go."""
    soon, late = ended(), ended(rounds=200)
    assert soon["change"] < 0.01
    assert soon["remaining"] == pytest.approx(soon["change"] / 0.1)
    one, end = (
        np.array([[row["mean"], row["sd"]] for row in each["across_sites"]])
        for each in (soon, late)
    )
    away = np.linalg.norm(one - end) / np.linalg.norm(one)
    assert away / 10 < soon["remaining"] < 10 * away
    assert late["remaining"] < 1e-6


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        *wrong_settings(
            rounds=[0],
            alpha=[1.0, float("nan")],
            tolerance=[-1e-9, float("inf")],
            steps=[0],
            step=[0.0, 1.0],
            batch=[0],
            participation=[0.0, 1.1],
            holdout=[1.0, -0.1],
            noise_sd=[0.0, -1.0, float("nan")],
            degree=[0, 2],
            intercept=["none"],
            outcome=["z"],
            predictors=[[], ["y"], ["x0", "x0"]],
        ),
        ({"degree": 13, "predictors": ["x0"]}, "method.degree"),
        ({"weight": "both"}, "method: weight"),
        ({"variance": "none"}, "method: variance"),
        ({"holdout_rows": "first"}, "method: holdout_rows"),
        ({"momentum": 0.9}, "method: unknown key"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], where: str) -> None:
    tables = linear_tables((5, 6))
    with pytest.raises(JobError) as caught:
        simulated({**HM1, **setting}, bounds(tables), tables)
    assert caught.value.line().startswith(where)


def test_too_many_sites_are_refused_before_reading_data() -> None:
    """m = K + d: a round of K sites has K^2 / 2 numbers."""
    columns = {"x0": {"type": "binary"}, "y": {"type": "binary"}}
    nobody = {f"s{k}": None for k in range(3000)}
    with pytest.raises(JobError):
        simulated({**HM1, "rounds": 10_000}, columns, nobody)
