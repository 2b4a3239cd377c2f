"""The posterior of one coefficient at few sites, by a grid of what they share: FedLin, example 4.1.

Sites have estimates b of their coefficients, with variances s.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from secagg.models.fedlin.hierarchies.normal import NormalHierarchy

Array = NDArray[np.float64]


def _grid(b: Array, s: Array, prior: NormalHierarchy) -> tuple[Array, Array, Array]:
    """Return mu (m,), log tau (t,) and their probabilities (m, t)."""
    log_tau = prior.log_mean + prior.log_sd * np.linspace(-7, 7, 1201)
    reach = 8 * np.sqrt(np.max(s) + np.var(b) + 1)
    mu = np.mean(b) + np.linspace(-reach, reach, 2001)
    log = norm.logpdf(mu, prior.mean, prior.sd)[:, None]
    log = log + norm.logpdf(log_tau, prior.log_mean, prior.log_sd)[None]
    for each, variance in zip(b, s, strict=True):
        log = log + norm.logpdf(each, mu[:, None], np.sqrt(np.exp(log_tau) + variance)[None])
    weights = np.exp(log - log.max())
    return mu, log_tau, weights / weights.sum()


def exact(b: Array, s: Array, prior: NormalHierarchy) -> tuple[Array, Array, Array, Array]:
    """Return mean and cov of (mu, log tau), and their quantiles 0.05 and 0.95."""
    mu, log_tau, weights = _grid(b, s, prior)
    sides = (weights.sum(axis=1), mu), (weights.sum(axis=0), log_tau)
    mean = np.array([w @ x for w, x in sides])
    cov = np.diag([w @ (x - m) ** 2 for (w, x), m in zip(sides, mean, strict=True)])
    cov[0, 1] = cov[1, 0] = (mu - mean[0]) @ weights @ (log_tau - mean[1])
    ends = np.array(
        [[np.interp(p, np.cumsum(w) - w / 2, x) for p in (0.05, 0.95)] for w, x in sides]
    )
    return mean, cov, ends[:, 0], ends[:, 1]


def exact_sites(b: Array, s: Array, prior: NormalHierarchy) -> tuple[Array, Array]:
    """Return means and sds of the sites' coefficients."""
    mu, log_tau, weights = _grid(b, s, prior)
    mean, sd, tau = np.empty(len(b)), np.empty(len(b)), np.exp(log_tau)
    for k, (each, variance) in enumerate(zip(b, s, strict=True)):
        given = 1 / (1 / variance + 1 / tau)
        at = given * (each / variance + mu[:, None] / tau)
        mean[k] = np.sum(weights * at)
        sd[k] = np.sqrt(np.sum(weights * (given + (at - mean[k]) ** 2)))
    return mean, sd
