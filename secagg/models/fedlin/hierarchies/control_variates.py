"""Moments of what a Markov chain visits, with a part of their Monte Carlo error known and removed.

Mira, Solgi and Imparato ("Zero variance Markov chain Monte Carlo for Bayesian estimators",
Statistics and Computing 2013). For a density p of x that vanishes at infinity, and h of x,

    E[h(x) d/dx_i log p(x) + d/dx_i h(x)] = 0                                                    (1)

of which a site knows the left side at every draw. With h = 1 and h = x_j the means of (1) over the
draws tell by how much those of phi and phi phi' are off: exactly where p is normal, whatever the
draws. So the noise vanishes as the cavity outweighs a site's likelihood, and with many sites it
does; without this, each site would add the noise of the whole density's moments.

Coefficients are found by least squares on one half of the chains and used for the other, so that
they bring no bias, and the spread of the chains' means is an honest error.
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
    """Return moments of phi (draws, chains, p), given what has mean 0 (draws, chains, c).

    chains: an even number
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
