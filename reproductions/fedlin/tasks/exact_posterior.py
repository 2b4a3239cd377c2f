"""Cells of FedLin's table 2: the exact posterior of its lasso, from all devices' records at once.

HM2 with prior "lasso" approximates this posterior without collecting the records. Yue, Al Kontar
and Estrada Gomez (2022), section 4.3, with common sigma and lambda:

    y_k ~ N(X_k theta_k, sigma^2 I),  theta_ki ~ Laplace(sigma / lambda),  log lambda, log sigma^2
    ~ N(0, 1)                                                                                    (1)

Gibbs sampling (Park and Casella, JASA 2008): theta_ki ~ N(0, sigma^2 s_ki), s_ki ~ Exp(lambda^2/2)
have the marginal (1). One sweep draws

    log lambda, log sigma^2 | theta      with s integrated out: steps of a random walk
    1/s_ki | theta, lambda, sigma        inverse Gaussian, mean lambda sigma / |theta_ki|, shape
                                         lambda^2
    theta_k | s, sigma                   N(A^-1 X'y, sigma^2 A^-1),  A = X'X + diag(1/s_k)

The first two steps together draw (lambda, sigma, s) given theta.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reproductions.fedlin.tasks.hm2_selection import LEVEL, draw, rates
from reproductions.fedlin.tasks.simulated_cases import errors
from secagg.contracts import Array
from secagg.experiments.runner.types import CONVERGED, Settings
from secagg.models.common.posterior_summary import summarise

DRAWS, DISCARDED = 4000, 500
_THIN = 4  # sweeps per draw: with 600 coefficients and 800 records, theta and sigma are correlated
_WALK_STEPS = 8  # steps of the random walk per sweep
_PARTS, _MAX_R_HAT = 4, 1.02  # for lambda and sigma; parts of 4000 sweeps differ by chance


def compute(settings: Settings) -> dict[str, dict[str, float]]:
    """Return A-RMSE and inclusion rates of "exact". Settings: case, noise, seed."""
    seed = int(settings["seed"])
    drawn = draw(str(settings["case"]), float(settings["noise"]), seed)
    theta, phi = posterior(drawn.X, drawn.y, np.random.default_rng(seed))
    parts = phi.reshape(_PARTS, -1, 2).swapaxes(0, 1)  # parts of one chain serve as chains
    mixed = bool(np.all(summarise(parts).r_hat < _MAX_R_HAT))
    ends = np.quantile(theta, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    included = (ends[0] > 0) | (ends[1] < 0)
    numbers = errors(drawn, theta.mean(axis=0)) | rates(included, drawn.theta != 0)
    return {"exact": numbers | {CONVERGED: float(mixed)}}


def posterior(
    X: Sequence[Array], y: Sequence[Array], rng: np.random.Generator, draws: int = DRAWS
) -> tuple[Array, Array]:
    """Return draws of theta (draws, d, K), and of log lambda and log sigma^2 (draws, 2)."""
    gram = np.array([x.T @ x for x in X])
    cross = np.array([x.T @ v for x, v in zip(X, y, strict=True)])
    square, n = sum(float(v @ v) for v in y), sum(map(len, y))
    K, d = cross.shape
    theta = np.linalg.solve(gram + np.eye(d), cross[:, :, None])[:, :, 0]
    phi = np.array([0.0, np.log(square / n)])
    step = 2.38 / np.sqrt(2) * np.array([(K * d) ** -0.5, (n / 2) ** -0.5])
    thetas, phis = np.empty((draws, K, d)), np.empty((draws, 2))
    for sweep in range(DISCARDED + _THIN * draws):
        rss = square - 2 * np.sum(cross * theta) + np.einsum("ka,kab,kb->", theta, gram, theta)
        norms = rss, float(np.sum(np.abs(theta)))
        for _ in range(_WALK_STEPS):
            trial = phi + step * rng.standard_normal(2)
            gain = _log_density(trial, *norms, n, K * d) - _log_density(phi, *norms, n, K * d)
            phi = trial if -rng.standard_exponential() < gain else phi
        rate, sigma = np.exp(phi[0]), np.exp(phi[1] / 2)
        inverse = rng.wald(rate * sigma / np.maximum(np.abs(theta), 1e-12), rate**2)
        root = np.linalg.cholesky(gram + inverse[:, :, None] * np.eye(d))
        noise = root @ (sigma * rng.standard_normal((K, d, 1)))
        theta = np.linalg.solve(root @ root.swapaxes(1, 2), cross[:, :, None] + noise)[:, :, 0]
        if sweep >= DISCARDED:  # the last of _THIN sweeps overwrites the others
            i = (sweep - DISCARDED) // _THIN
            thetas[i], phis[i] = theta, phi
    return thetas.swapaxes(1, 2), phis


def _log_density(phi: Array, rss: float, norm: float, n: int, coefficients: int) -> float:
    """Return log p(phi | theta), up to a constant; rss: |y - X theta|^2; norm: |theta|_1."""
    prior = -float(phi @ phi) / 2
    likelihood = -(n * phi[1] + rss * np.exp(-phi[1])) / 2
    rate = phi[0] - phi[1] / 2  # log (lambda / sigma)
    return float(prior + likelihood + coefficients * rate - np.exp(rate) * norm)
