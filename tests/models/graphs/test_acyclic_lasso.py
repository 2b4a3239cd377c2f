"""The problems inside NOTEARS: a general minimiser finds the same minima."""

import numpy as np
import pytest
import scipy.linalg
from support.methods.sparse_minimum import exact_minimum

from secagg.models.graphs.acyclic_lasso import LeastSquares, acyclic_lasso
from secagg.models.graphs.acyclicity import acyclicity
from secagg.models.graphs.proximal_newton import Multipliers

PENALTY = 0.1
UNCONSTRAINED = Multipliers(0.0, 1e-30)


def covariance(seed: int, p: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p)) @ (np.eye(p) + 0.5 * np.triu(rng.normal(size=(p, p)), 1))
    return np.cov(X.T, bias=True)


def objective(S: np.ndarray, W: np.ndarray, multipliers: Multipliers) -> float:
    """(F), by the formula of the papers and scipy's exponential."""
    away = np.eye(len(S)) - W
    h = float(np.trace(scipy.linalg.expm(W * W))) - len(S)
    loss = 0.5 * float(np.trace(away.T @ S @ away))
    smooth = loss + multipliers.alpha * h + multipliers.rho / 2 * h * h
    return smooth + PENALTY * float(np.abs(W).sum())


def settle(S: np.ndarray, multipliers: Multipliers, start: np.ndarray) -> np.ndarray:
    """Call it until F stops falling; every call must decrease F."""
    W, value = start, objective(S, start, multipliers)
    for _ in range(300):
        step = acyclic_lasso(S, W, PENALTY, multipliers)
        assert step.finite
        reached = objective(S, step.W, multipliers)
        # Roundings of the two sums, and of scipy's h, which mu amplifies.
        assert reached <= value + 1e-13 * (1 + multipliers.alpha + multipliers.rho * step.h)
        W, before, value = step.W, value, reached
        if before - value <= 1e-15:
            return W
    raise AssertionError("300 steps are more than it takes")


@pytest.mark.parametrize("seed", range(2))
def test_without_a_constraint_the_fit_is_a_lasso_on_all_other_columns(seed: int) -> None:
    """As f is convex then, a general minimiser must reach the same W."""
    S = covariance(seed, 6, 100)
    W = settle(S, UNCONSTRAINED, np.zeros((6, 6)))
    # Ended by a gain in F of 1e-15, and a slope g is worth g^2 / (2 |S|); three times that, as the
    # gain of a step is not the gain of all that are left.
    near = 3 * np.sqrt(2e-15 * np.linalg.norm(S, 2))
    oracle = exact_minimum(LeastSquares(S, PENALTY).value, np.zeros((6, 6)), PENALTY)
    moved = np.sqrt(6) * (near + 1e-9) / np.linalg.eigvalsh(S)[0]  # a column of such slopes
    np.testing.assert_allclose(W, oracle.x, rtol=0, atol=moved)


@pytest.mark.parametrize("seed", range(2))
def test_the_objective_falls_below_the_published_minimisers(seed: int) -> None:
    S, multipliers = covariance(seed, 6, 100), Multipliers(1.0, 30.0)

    def augmented(W: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = LeastSquares(S, PENALTY).value(W)
        h, steep = acyclicity(W)
        mu = multipliers.alpha + multipliers.rho * h
        return value + multipliers.alpha * h + multipliers.rho / 2 * h * h, slope + mu * steep

    start = 0.3 * np.random.default_rng(seed).normal(size=(6, 6))
    oracle = exact_minimum(augmented, start, PENALTY)
    ended = objective(S, oracle.x, multipliers)
    assert ended == pytest.approx(oracle.value, rel=1e-12)
    assert objective(S, settle(S, multipliers, oracle.x), multipliers) <= ended * (1 + 1e-13)


def test_a_constant_variable_has_no_edges() -> None:
    S, multipliers = covariance(1, 4, 50), Multipliers(1.0, 10.0)
    S[2] = S[:, 2] = 0
    W = settle(S, multipliers, 0.1 * np.ones((4, 4)))
    assert not W[2].any() and not W[:, 2].any()
    rest = np.ix_([0, 1, 3], [0, 1, 3])
    alone = settle(S[rest], multipliers, 0.1 * np.ones((3, 3)))
    value = objective(S[rest], alone, multipliers)
    assert objective(S, W, multipliers) == pytest.approx(value, rel=1e-9)


def test_a_large_penalty_gives_an_empty_graph() -> None:
    S = covariance(2, 5, 50)
    largest = np.abs(S - np.diag(np.diag(S))).max()  # the largest slope at zero
    step = acyclic_lasso(S, np.zeros((5, 5)), largest, UNCONSTRAINED)
    assert not step.W.any()
    assert acyclic_lasso(S, np.zeros((5, 5)), 0.99 * largest, UNCONSTRAINED).W.any()
