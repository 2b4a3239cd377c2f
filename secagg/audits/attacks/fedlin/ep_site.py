"""The moments of HM2's tilted density as a function of a site's X'X and X'y, by an attacker.

Yue, Al Kontar and Estrada Gomez (2022), section 4.1: phi = (mu, log tau), with prior "normal". With
A = X'X / sigma_k^2, c = X'y / sigma_k^2, T = diag(tau) and F = (I + A T)^-1, a site's likelihood is

    log f_k(phi) = -log|I + A T| / 2 + b'mu - mu' F A mu / 2 + c' T b / 2,    b = F c.           (1)

Times the cavity, it is normal in mu given tau. So mu is integrated in closed form, and log tau by
importance sampling from the cavity and from the normal density that the site sent. The points are
fixed, so the result is a smooth function of A and c.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from secagg.core.arrays import Array
from secagg.models.numerics.natural_gaussian import Natural

_POINTS = 512  # of each density; an error of about 1e-3, like the site's own
_WIDER = 1.2  # standard deviations of the second density, relative to those sent


class TiltedDensity:
    """The tilted density of a site, as it was sent, and as (1) gives it."""

    def __init__(self, cavity: Natural, tilted: Natural) -> None:
        """Place the points. Raises `LinAlgError` if one of them is not a density."""
        self.d = d = len(cavity.r) // 2
        self.mean, cov = tilted.moments()
        self.root = np.linalg.cholesky(cov)
        before, spread = cavity.moments()
        sobol = qmc.Sobol(d, seed=0).random(_POINTS)
        standard = ndtri(np.clip(sobol, 1e-12, 1 - 1e-12))
        first_root = np.asarray(np.linalg.cholesky(spread[d:, d:]), dtype=np.float64)
        second_root = np.asarray(np.linalg.cholesky(cov[d:, d:]), dtype=np.float64)
        normals = [(before[d:], first_root), (self.mean[d:], _WIDER * second_root)]
        self.log_tau = np.vstack([mean + standard @ root.T for mean, root in normals])
        first, second = (_log_normal(self.log_tau, *normal) for normal in normals)
        self.tau = np.exp(self.log_tau)
        self.precision = cavity.Q[:d, :d]
        self.shift = cavity.r[:d] - self.log_tau @ cavity.Q[:d, d:].T
        means = np.linalg.solve(self.precision, self.shift.T).T
        self.log_weights = first - np.logaddexp(first, second)
        self.log_weights -= np.sum(self.shift * means, axis=1) / 2

    def moments(self, A: Array, c: Array) -> tuple[Array, Array]:
        """Return the mean and covariance of phi for a site with this A and c."""
        d, n = self.d, len(self.tau)
        N = np.eye(d) + A * self.tau[:, None, :]
        solved = np.linalg.solve(N, np.broadcast_to(np.column_stack([A, c]), (n, d, d + 1)))
        b = solved[:, :, d]
        P = self.precision + solved[:, :, :d]
        cov = np.linalg.inv((P + P.transpose(0, 2, 1)) / 2)
        h = self.shift + b
        mu = np.einsum("nij,nj->ni", cov, h)
        log_weights = self.log_weights + np.sum(c * self.tau * b + h * mu, axis=1) / 2
        log_weights -= (np.linalg.slogdet(N)[1] + np.linalg.slogdet(P)[1]) / 2
        weights = np.exp(log_weights - np.max(log_weights))
        weights /= np.sum(weights)
        phi = np.hstack([mu, self.log_tau])
        mean = weights @ phi
        spread = ((phi - mean) * weights[:, None]).T @ (phi - mean)
        spread[:d, :d] += np.einsum("n,nij->ij", weights, cov)
        return mean, spread

    def misfits(self, A: Array, c: Array) -> Array:
        """Return the differences to what was sent, in standard deviations of that."""
        mean, cov = self.moments(A, c)
        excess = np.linalg.solve(self.root, np.linalg.solve(self.root, cov).T) - np.eye(2 * self.d)
        away = np.linalg.solve(self.root, mean - self.mean)
        return np.asarray(
            np.concatenate([away, excess[np.triu_indices(2 * self.d)]]), dtype=np.float64
        )


def _log_normal(x: Array, mean: Array, root: Array) -> Array:
    standard = np.linalg.solve(root, (x - mean).T)
    found: Array = -np.sum(standard**2, axis=0) / 2 - np.sum(np.log(np.diagonal(root)))
    return found
