"""A linear Gaussian simulator for the tests of the graph learners."""

import importlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from secagg.models.common.pooled_moments import Moments


@dataclass(frozen=True)
class Network:
    """truth: (p, p) 0/1; weights: (p, p); rows: (n, p); moments: of the rows; exact: Moments
    whose covariance is the model's own, without sampling error (and n as given).
    """

    truth: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    moments: Moments
    exact: Moments


def moments_of(rows: np.ndarray) -> Moments:
    centred = rows - rows.mean(axis=0)
    names = tuple(f"x{j}" for j in range(rows.shape[1]))
    return Moments(names, len(rows), rows.mean(axis=0), centred.T @ centred)


@pytest.fixture(scope="session")
def of_rows() -> Callable[[np.ndarray], Moments]:
    return moments_of


@pytest.fixture(scope="session")
def causal_learn() -> None:
    """Import causal-learn before a test: it takes a second or two, and fixtures are not counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in ("utils.PCUtils.SkeletonDiscovery", "search.ScoreBased.GES"):
            importlib.import_module(f"causallearn.{module}")


@pytest.fixture
def simulate() -> Callable[..., Network]:
    def network(seed: int, p: int, edges: int, n: int) -> Network:
        """x = W'x + e, unit noise, a random DAG (Erdos-Renyi with `edges` edges), |W_ij| in
        [0.5, 2] as in Ng and Zhang (2022), section 6.
        """
        rng = np.random.default_rng(seed)
        order = rng.permutation(p)
        pairs = np.argwhere(np.triu(np.ones((p, p)), 1))
        chosen = order[pairs[rng.choice(len(pairs), edges, replace=False)]]
        truth = np.zeros((p, p), dtype=int)
        truth[chosen[:, 0], chosen[:, 1]] = 1
        weights = truth * rng.uniform(0.5, 2, (p, p)) * rng.choice([-1, 1], (p, p))
        mixing = np.linalg.inv(np.eye(p) - weights)
        rows = rng.normal(size=(n, p)) @ mixing
        moments = moments_of(rows)
        exact = Moments(moments.names, n, np.zeros(p), n * (mixing.T @ mixing))
        return Network(truth, weights, rows, moments, exact)

    return network


@pytest.fixture
def numerical_gradient() -> Callable[..., tuple[np.ndarray, float]]:
    def gradient(
        function: Callable[[np.ndarray], float], at: np.ndarray
    ) -> tuple[np.ndarray, float]:
        """Return central differences with one Richardson step, and a bound on their error.

        The plain difference D(s) errs by c s^2; (4 D(s) - D(2s)) / 3 by a term in s^4 that is
        smaller than the change from D(s), which is therefore the bound, plus rounding.
        """
        step = 1e-4

        def differences(width: float) -> np.ndarray:
            result = np.empty_like(at)
            for index in np.ndindex(*at.shape):
                move = np.zeros_like(at)
                move[index] = width
                result[index] = (function(at + move) - function(at - move)) / (2 * width)
            return result

        narrow, wide = differences(step), differences(2 * step)
        best = (4 * narrow - wide) / 3
        rounding = 10 * np.finfo(float).eps * max(1.0, abs(function(at))) / step
        return best, float(np.max(np.abs(best - narrow))) + rounding

    return gradient
