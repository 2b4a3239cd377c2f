"""Lassos with ridge weights from a covariance, against scikit-learn's on rows."""

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from secagg.models.numerics.column_lassos import ColumnLassos


def chain(seed: int, p: int, n: int, noise: float) -> np.ndarray:
    """Standardised rows; neighbours correlated about 1 - noise^2 / 2."""
    rows = np.random.default_rng(seed).normal(size=(n, p))
    for j in range(1, p):
        rows[:, j] = np.sqrt(1 - noise**2) * rows[:, j - 1] + noise * rows[:, j]
    return (rows - rows.mean(axis=0)) / rows.std(axis=0)


def objective(S: np.ndarray, V: np.ndarray, ridge: np.ndarray, penalty: float) -> float:
    away = np.eye(len(S)) - V
    loss = 0.5 * float(np.trace(away.T @ S @ away))
    return loss + penalty * float(np.abs(V).sum()) + 0.5 * float(np.sum(ridge * V * V))


def violation(S: np.ndarray, V: np.ndarray, ridge: np.ndarray, penalty: float) -> float:
    """Distance of 0 from the subdifferential, off the diagonal."""
    slope = -S @ (np.eye(len(S)) - V) + ridge * V
    distance = np.where(
        V == 0, np.maximum(np.abs(slope) - penalty, 0), np.abs(slope + penalty * np.sign(V))
    )
    return float(np.max(distance[~np.eye(len(S), dtype=bool)]))


@pytest.mark.parametrize(("seed", "noise"), [(0, 1.0), (1, 0.1), (2, 0.01)])
def test_lassos_agree_with_scikit_learn(seed: int, noise: float) -> None:
    p, n, penalty = 8, 100, 0.1
    rows = chain(seed, p, n, noise)
    S = rows.T @ rows / n
    ridge = np.random.default_rng(seed).uniform(0, 1, (p, p)) ** 4
    free = ~np.eye(p, dtype=bool)
    V = ColumnLassos(S, penalty, free).minimise(np.zeros((p, p)), ridge)
    for j in range(p):
        others = np.flatnonzero(free[:, j])
        # Ridge weights are rows more: |y - Xw|^2 / 2n + penalty |w|_1 is the problem then.
        design = np.vstack([rows[:, others], np.diag(np.sqrt(n * ridge[others, j]))])
        target = np.concatenate([rows[:, j], np.zeros(p - 1)])
        oracle = Lasso(penalty * n / len(design), fit_intercept=False, tol=1e-13, max_iter=10**6)
        w = oracle.fit(design, target).coef_
        W = V.copy()
        W[others, j] = w
        # Its duality gap is at most tol |y|^2 / n = 1e-13 here, and ours is a minimum.
        ours, theirs = objective(S, V, ridge, penalty), objective(S, W, ridge, penalty)
        assert ours <= theirs + 1e-13
        assert theirs <= ours + 1e-12  # and roundings of sums of p^2 terms


@pytest.mark.parametrize("penalty", [0.0, 0.001, 0.1])
@pytest.mark.parametrize("largest", [0.0, 1.0, 1e6, 1e16])
@pytest.mark.parametrize("seed", range(3))
def test_results_are_optimal_for_any_condition_number(
    seed: int, largest: float, penalty: float
) -> None:
    p = 10
    rows = chain(seed, p, 200, 0.01)
    S = rows.T @ rows / len(rows)
    rng = np.random.default_rng(seed)
    ridge = largest * np.where(rng.uniform(size=(p, p)) < 0.5, 0, 10 ** rng.uniform(-20, 0, (p, p)))
    V = ColumnLassos(S, penalty, ~np.eye(p, dtype=bool)).minimise(np.zeros((p, p)), ridge)
    # A single entry would move by 1e-12 at most, in units where its curvature c is 1: slopes are
    # below 1e-12 sqrt(c), relative to S + ridge times V; and c V is at most sqrt(c) |x| = sqrt(c).
    curvature = float(np.sqrt(1 + ridge.max()))
    assert violation(S, V, ridge, penalty) <= 1e-11 * curvature


def test_only_free_entries_change() -> None:
    rows = chain(1, 6, 50, 0.1)
    S = rows.T @ rows / len(rows)
    free = np.triu(np.ones((6, 6), dtype=bool), 1)
    V = ColumnLassos(S, 0.1, free).minimise(np.zeros((6, 6)), np.zeros((6, 6)))
    assert V.any()
    assert not V[~free].any()


def test_repeated_calls_around_a_centre_converge() -> None:
    rows = chain(2, 10, 200, 0.02)
    S = rows.T @ rows / len(rows)
    free, ridge = ~np.eye(10, dtype=bool), np.zeros((10, 10))
    lassos = ColumnLassos(S, 0.01, free)
    best = objective(S, lassos.minimise(np.zeros((10, 10)), ridge), ridge, 0.01)
    centre = np.zeros((10, 10))
    for _ in range(5):  # each call reduces the residual tenfold
        value = objective(S, centre, ridge, 0.01)
        centre = lassos.minimise(centre, ridge, centre=centre)
        assert objective(S, centre, ridge, 0.01) <= value + 1e-14 * abs(value)
    assert objective(S, centre, ridge, 0.01) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("n", [4, 100])
def test_singular_covariances_are_solved(n: int) -> None:
    rows = chain(0, 10, n, 0.5)
    rows[:, 1], rows[:, 3] = rows[:, 0], -rows[:, 2]
    S = rows.T @ rows / n
    for penalty in (0.0, 0.1):
        lassos = ColumnLassos(S, penalty, ~np.eye(10, dtype=bool))
        V = lassos.minimise(np.zeros((10, 10)), np.zeros((10, 10)))
        assert np.all(np.isfinite(V))
        # The lift is 64 * 10 units in the last place, of weights of about 1.
        assert violation(S, V, np.zeros((10, 10)), penalty) <= 1e-11
