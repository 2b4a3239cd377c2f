"""A site's factor f_k of HM2 and its tilted moments by quadrature, for one or two coefficients.

    f_k(phi) = INTEGRAL N(y | X theta, s I) PROD p(theta_j | phi) d theta

In v = theta / sigma the integrand is exp(B v - A v^2 / 2 - l |v|) in each coefficient, given the
others: one of them is integrated in closed form (two halves of a normal density), another by
Gauss-Legendre on either side of 0. Densities of v are normalised by quadrature, too.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, logsumexp

from secagg.models.fedlin.hierarchies.base import SufficientStatistics
from secagg.models.numerics.natural_gaussian import Natural

Array = NDArray[np.float64]
Factor = Callable[[Array], Array]


def log_line(A: Array, B: Array, rate: Array) -> Array:
    """Return log INTEGRAL exp(B v - A v^2 / 2 - rate |v|) dv."""
    right, left = (log_half((sign * B - rate) / np.sqrt(A)) for sign in (1, -1))
    return np.log(2 * np.pi / A) / 2 + np.logaddexp(right, left)


def log_half(z: Array) -> Array:
    """Return z^2 / 2 + log P(Z <= z), without the difference that it is for z < 0."""
    positive = np.maximum(z, 0.0)
    return np.where(
        z < 0,
        np.log(erfcx(np.maximum(-z, 0.0) / np.sqrt(2)) / 2),
        positive**2 / 2 + log_ndtr(positive),
    )


def log_constant(l1: Array, l2: Array, power: int = 0) -> Array:
    """Return log INTEGRAL |v|^power exp(-l1 |v| - l2 v^2 / 2) dv for arrays of one shape (many,).

    On a scale on which the density falls to exp(-1), by Gauss-Legendre up to where it is exp(-45).
    """
    width = 1 / (l1 / 2 + np.sqrt(l1**2 / 4 + l2 / 2))
    nodes, weights = np.polynomial.legendre.leggauss(100)
    u = 22.5 * (nodes[:, None] + 1)
    half = 22.5 * weights @ (u**power * np.exp(-l1 * width * u - l2 * (width * u) ** 2 / 2))
    found: Array = np.log(2 * half) + (1 + power) * np.log(width)
    return found


def log_factor(site: SufficientStatistics, l1: Array, l2: Array, log_s: Array) -> Array:
    """Return log f_k for arrays of one shape (many,), without the prior's constant of v."""
    sigma = np.exp(log_s / 2)
    whole = -site.records / 2 * (np.log(2 * np.pi) + log_s) - site.square / (2 * sigma**2)
    A = site.gram[0, 0] + l2
    if len(site.cross) == 1:
        return whole + log_line(A, site.cross[0] / sigma, l1)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    least = site.gram[1, 1] - site.gram[0, 1] ** 2 / site.gram[0, 0]
    far = np.abs(np.linalg.solve(site.gram, site.cross)[1]) / sigma + 12 / np.sqrt(least)
    v = np.concatenate([(nodes - 1) / 2, (nodes + 1) / 2])[:, None] * far
    lines = log_line(A, site.cross[0] / sigma - site.gram[0, 1] * v, l1)
    along = site.cross[1] / sigma * v - (site.gram[1, 1] + l2) * v**2 / 2 - l1 * np.abs(v)
    log_weights = np.log(np.tile(weights, 2))[:, None] + np.log(far / 2)
    found: Array = whole + logsumexp(lines + along + log_weights, axis=0)
    return found


def tilted_moments(log_density: Factor, cavity: Natural, points: int = 61) -> tuple[Array, Array]:
    """Return mean and covariance of exp(log_density(phi)) times the cavity, phi (many, p).

    By the trapezoidal rule over 7 sds about a mean: the cavity's, then that found with a small
    power of the density, and so on to all of it.
    """
    mean, cov = cavity.moments()
    for power in (*np.geomspace(1e-8, 0.3, 14), 1, 1):
        side = np.linspace(-7, 7, points if power == 1 else points // 2)
        axes = np.meshgrid(*[side] * len(mean), indexing="ij")
        phi = mean + np.stack(axes, axis=-1).reshape(-1, len(mean)) @ np.linalg.cholesky(cov).T
        prior = phi @ cavity.r - np.sum((phi @ cavity.Q) * phi, axis=1) / 2
        logs = power * log_density(phi) + prior
        shares = np.exp(logs - logs.max())
        shares /= shares.sum()
        mean = shares @ phi
        cov = (shares[:, None] * (phi - mean)).T @ (phi - mean)
    return mean, cov
