"""Posterior moments from Markov chain draws, with control variates against Monte Carlo error.

Mira, Solgi and Imparato ("Zero variance Markov chain Monte Carlo for Bayesian estimators",
Statistics and Computing 2013). For a density p of x that vanishes at infinity, and a function h of
x,

    E[h(x) d/dx_i log p(x) + d/dx_i h(x)] = 0                                                    (1)

The site can compute the term in brackets at every draw. Its mean over the draws should be 0. With
h = 1 and h = x_j, the deviation of this mean from 0 predicts the Monte Carlo error in the means of
phi and phi phi'. If p is normal, the prediction is exact for any draws. With many sites, the
normal cavity dominates a site's likelihood, so nearly all of the Monte Carlo error is removed.
Without control variates, each site would add the full Monte Carlo error of its moments.

The regression coefficients of the control variates are estimated by least squares on one half of
the chains and applied to the other half. So they cause no bias, and the spread of the chains' means
is a valid estimate of the Monte Carlo error.
"""

from __future__ import annotations

import numpy as np

from secagg.core.arrays import Array
from secagg.models.fedlin.hierarchies.base import TiltedMoments

_MIN_SINGULAR_VALUE = 1e-10  # relative singular value that least squares still counts


def controls(slopes: Array, x: Array, places: tuple[int, ...]) -> Array:
    """Return (1), for h = 1 and for each x_j less its mean over the draws.

    slopes: (draws, chains, i), of log p in the entries of x at `places`; x: (draws, chains, j)
    """
    i, j = slopes.shape[-1], x.shape[-1]
    away = x - x.mean(axis=(0, 1))
    products = slopes[..., :, None] * away[..., None, :] + np.eye(j)[list(places)]
    return np.concatenate([slopes, products.reshape(*slopes.shape[:-1], i * j)], axis=-1)


def moments(phi: Array, control: Array) -> TiltedMoments:
    """Return moments of phi (draws, chains, p), corrected by the control variates.

    control: quantities with expectation 0, shape (draws, chains, c)
    The number of chains must be even.
    """
    chains, p = phi.shape[1:]
    scale = control.std(axis=(0, 1))
    control = control / np.where(scale > 0, scale, 1.0)
    centre = phi.mean(axis=(0, 1))
    rows, columns = np.triu_indices(p)
    away = phi - centre
    values = np.concatenate([away, away[..., rows] * away[..., columns]], axis=-1)
    halves = np.arange(chains) < chains // 2
    means = np.empty((chains, values.shape[-1]))
    for half in (halves, ~halves):
        left, right = (part[:, ~half].reshape(-1, part.shape[-1]) for part in (control, values))
        slopes = np.linalg.lstsq(left - left.mean(axis=0), right, rcond=_MIN_SINGULAR_VALUE)[0]
        means[half] = np.mean(values[:, half] - control[:, half] @ slopes, axis=0)
    mean, error = means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(chains)
    cov = np.empty((p, p))
    cov[rows, columns] = cov[columns, rows] = mean[p:] - mean[rows] * mean[columns]
    return TiltedMoments(centre + mean[:p], cov, error[:p])
