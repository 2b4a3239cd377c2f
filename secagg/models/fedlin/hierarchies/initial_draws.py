"""Starting points of the chains of a penalised regression: approximate draws of phi.

For HM2 of FedLin (Yue, Al Kontar and Estrada Gomez 2022, section 4.3). The penalty is replaced by
that of ridge regression, with kappa = l1^2 / 2 + l2. If l2 = 0 or l1 = 0, theta then has the same
prior variance as under the original penalty. The marginal likelihood of ridge regression, (2) in
`secagg.models.fedlin.hierarchies.ridge_likelihood`, is cheap to compute. Points are drawn from a
mixture of the cavity and a normal density at the mode. They are then resampled with replacement, in
proportion to their importance weights.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.ridge_likelihood import SpectralLeastSquares, normal_start
from secagg.models.numerics.natural_gaussian import Natural

_CANDIDATES = 2000
_CAVITY_SHARE = 0.3  # share of the points that are drawn from the cavity
_SD_RATIO = 1.5  # sd of the normal component, relative to the sd by the curvature at the mode


def starts(
    site: SpectralLeastSquares, cavity: Natural, chains: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return phi (chains, p), and for each the prior variance of theta / sigma (chains,)."""
    mode, cov = normal_start(site, cavity, _chart)
    mean, wide = cavity.moments()
    roots = np.linalg.cholesky(np.array([_SD_RATIO**2 * cov, wide])).astype(np.float64)
    parts = [(mode, roots[0]), (mean, roots[1])]
    from_cavity = int(_CAVITY_SHARE * _CANDIDATES)
    counts = (_CANDIDATES - from_cavity, from_cavity)
    trials = np.concatenate([
        centre + rng.standard_normal((count, len(mean))) @ root.T
        for (centre, root), count in zip(parts, counts, strict=True)
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
    """Return log(l1^2 / 2 + l2). phi (..., p) is (log l1, log s) or (log l1, log l2, log s)."""
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
    """Return the log density at points (many, p), up to a common constant."""
    away = np.linalg.solve(root, (points - mean).T)
    found: Array = -np.sum(away**2, axis=0) / 2 - np.sum(np.log(np.diagonal(root)))
    return found
