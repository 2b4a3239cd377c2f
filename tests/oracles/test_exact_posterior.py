"""The exact posterior of table 2's lasso, against sums over a grid."""

import numpy as np
from scipy.linalg import block_diag

from reproductions.fedlin.tasks import exact_posterior


def test_gibbs_draws_agree_with_a_grid() -> None:
    """Two devices with two coefficients of which no record has both.

    Given lambda and sigma all four are independent, as if of four devices with one each.
    """
    rng = np.random.default_rng(1)
    X = [rng.standard_normal((n, 1)) for n in (4, 6, 9, 3)]
    effects = (0, 1, -2, 0.3)
    y = [x[:, 0] * b + 0.7 * rng.standard_normal(len(x)) for x, b in zip(X, effects, strict=True)]
    log_rate, log_variance = np.linspace(-5, 5, 101), np.linspace(-4, 4, 101)
    at = np.linspace(-6, 6, 1201)
    sigma = np.exp(log_variance / 2)[None, :, None]
    rate = np.exp(log_rate)[:, None, None] / sigma  # of the Laplace density
    log = -(log_rate[:, None] ** 2 + log_variance[None] ** 2) / 2
    each = []
    for x, v in zip(X, y, strict=True):
        left = np.sum((v[:, None] - x * at) ** 2, axis=0)
        here = -(left / sigma**2) / 2 - len(v) * np.log(sigma) + np.log(rate) - rate * np.abs(at)
        weights = np.exp(here)
        total = weights.sum(axis=-1)
        log = log + np.log(total)
        each.append(((weights @ at) / total, (weights @ at**2) / total))
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    mean = np.array([np.sum(weights * m) for m, _ in each])
    sd = np.sqrt([np.sum(weights * s) for _, s in each] - mean**2)

    many = 8_000
    both = [block_diag(X[k], X[k + 1]) for k in (0, 2)], [np.hstack(y[k : k + 2]) for k in (0, 2)]
    draws, _ = exact_posterior.posterior(*both, np.random.default_rng(2), many)
    theta = draws.swapaxes(1, 2).reshape(many, 4)
    batches = theta.reshape(50, -1, 4)
    error = batches.mean(axis=1).std(axis=0, ddof=1) / np.sqrt(50)
    assert np.all(error < 0.03 * sd)
    assert np.all(np.abs(theta.mean(axis=0) - mean) < 4.5 * error)
    error = batches.std(axis=1).std(axis=0, ddof=1) / np.sqrt(50)
    assert np.all(np.abs(theta.std(axis=0) - sd) < 4.5 * error + 0.002 * sd)  # batches' own means


def test_an_exact_cell_uses_the_same_records_as_hm2() -> None:
    """Case I: as HM2's, with inclusion rates and both kinds of targets."""
    found = exact_posterior.compute({"case": "I", "noise": 0.05, "seed": 0})["exact"]
    assert found.keys() == {"free", "noisy", "correct", "false", "converged"}
    assert found["correct"] == 1
    assert 0.005 < found["free"] < 0.03  # 8 coefficients of sd 0.005: 0.014
