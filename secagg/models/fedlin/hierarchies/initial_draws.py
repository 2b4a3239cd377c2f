"""Where chains of a penalised regression start: draws of phi that are nearly of its density.

For HM2 of FedLin (Yue, Al Kontar and Estrada Gomez 2022, section 4.3). The penalty is replaced by
ridge regression's, with kappa = l1^2 / 2 + l2: the variance of theta is then the same for l2 = 0
and for l1 = 0. Its likelihood (2) in `secagg.models.fedlin.hierarchies.ridge_likelihood` is cheap,
so that draws from a mixture of a normal density at the mode and the cavity are chosen by weight,
with replacement.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.ridge_likelihood import SpectralLeastSquares, normal_start
from secagg.models.numerics.natural_gaussian import Natural

_CANDIDATES = 2000
_CAVITY_SHARE = 0.3  # share of them from the cavity
_SD_RATIO = 1.5  # the other component's sd, relative to the curvature's


def starts(
    site: SpectralLeastSquares, cavity: Natural, chains: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return phi (chains, p), and the variances of theta / sigma (chains,) that go with it."""
    mode, cov = normal_start(site, cavity, _chart)
    mean, wide = cavity.moments()
    roots = np.linalg.cholesky(np.array([_SD_RATIO**2 * cov, wide])).astype(np.float64)
    parts = [(mode, roots[0]), (mean, roots[1])]
    few = int(_CAVITY_SHARE * _CANDIDATES)
    trials = np.concatenate([
        centre + rng.standard_normal((many, len(mean))) @ root.T
        for (centre, root), many in zip(parts, (_CANDIDATES - few, few), strict=True)
    ])  # fmt: skip
    drawn = logsumexp(
        [_log_normal(trials, *part) for part in parts],
        axis=0,
        b=np.array([[1 - _CAVITY_SHARE], [_CAVITY_SHARE]]),
    )
    with np.errstate(over="ignore", divide="ignore"):
        log_kappa = _log_kappa(trials)
        weights = _log_normal(trials, *parts[1]) - drawn + site.evidence(log_kappa, trials[:, -1])
    weights = np.exp(weights - np.max(weights))
    chosen = rng.choice(_CANDIDATES, chains, p=weights / np.sum(weights))
    return trials[chosen], np.exp(-log_kappa[chosen])


def _log_kappa(phi: Array) -> Array:
    """Return log(l1^2 / 2 + l2) of phi (..., p); phi is (log l1, log s) or has log l2 between."""
    first = 2 * phi[..., 0] - np.log(2)
    found: Array = np.logaddexp(first, phi[..., 1]) if phi.shape[-1] == 3 else first
    return found


def _chart(phi: Array) -> tuple[Array, Array, Array]:
    p = len(phi)
    log_kappa = _log_kappa(phi)
    share = np.exp(2 * phi[0] - np.log(2) - log_kappa)
    slope = np.zeros(p)
    slope[: p - 1] = np.array([2 * share, 1 - share])[: p - 1]
    bent = np.zeros((p, p))
    bent[: p - 1, : p - 1] = share * (1 - share) * np.array([[4, -2], [-2, 1]])[: p - 1, : p - 1]
    jacobian = np.array([slope, np.eye(p)[-1]])
    return np.array([log_kappa, phi[-1]]), jacobian, bent


def _log_normal(points: Array, mean: Array, root: Array) -> Array:
    """Return the log density at points (many, p), up to the constant that all have in common."""
    away = np.linalg.solve(root, (points - mean).T)
    found: Array = -np.sum(away**2, axis=0) / 2 - np.sum(np.log(np.diagonal(root)))
    return found
