"""Families that are not linear: a start from least squares, and the curvature to expect.

With normal predictors x of covariance C and any mean function, the slopes of least squares are
those of eta = a + x'b, times E mu'(eta) (Brillinger 1982; by Stein's lemma). So with the slopes d
of least squares of the outcome and s^2 = d'C d, a start k d has

    E mu(eta) = m,   E mu(eta) Z = s,   eta = e + k s Z,   Z ~ N(0, 1),                       (1)

as E mu(eta) Z = k s E mu'(eta). m is the outcome's mean. For log means, k = 1 / m.

In the same way, with weights V(eta), s^2 = b'C b, c = C b / s and e_j = E V(eta) He_j(Z) with
He = (1, Z, Z^2 - 1),

    E V = e_0,   E V (x - E x) = e_1 c,   E V (x - E x)(x - E x)' = e_0 C + e_2 c c'.         (2)
"""

from __future__ import annotations

import math

import numpy as np

from secagg.contracts import Family
from secagg.core.arrays import Array
from secagg.models.one_step.estimate import Estimate, First

_LONGEST = 3.0  # standard deviation of the linear predictor
_ERROR_OF_INTERCEPT = 0.3
_LARGEST_INTERCEPT = 30.0
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
_WEIGHTS = _WEIGHTS / _WEIGHTS.sum()


def from_means(family: Family, first: First, mean: float, sd_mean: float, unit: float) -> Estimate:
    """Return a start by (1), from least squares of the outcome itself.

    mean: of the outcome; sd_mean: of its noise; unit: of the standardised outcome
    """
    slopes = unit * first.estimate.b[1:]
    C = first.S[1:, 1:] - np.outer(first.S[0, 1:], first.S[0, 1:])
    by_noise = unit**2 * float(np.trace(C @ first.estimate.noise[1:, 1:]))
    s = math.sqrt(max(float(slopes @ C @ slopes) - by_noise, 1e-12))
    low, high = 0.0, _LONGEST / s
    for _ in range(50):
        k = (low + high) / 2
        eta = intercept(family, k * s, mean) + k * s * _NODES
        if float(_WEIGHTS @ (family.mean(eta) * _NODES)) < s:
            low = k
        else:
            high = k
    level = intercept(family, k * s, mean) - k * float(slopes @ first.S[0, 1:])
    noise = (k * unit) ** 2 * first.estimate.noise
    noise[0], noise[:, 0] = 0.0, 0.0  # the intercept is that of the mean
    slope = float(family.weight(np.array(level)))  # of the mean
    noise[0, 0] = _ERROR_OF_INTERCEPT**2 + (sd_mean / max(slope, 1e-9)) ** 2
    return Estimate(np.array([level, *(k * slopes)]), np.zeros_like(noise), noise)


def intercept(family: Family, spread: float, mean: float) -> float:
    """Return e of (1), for a mean function that rises."""
    low, high = -_LARGEST_INTERCEPT, _LARGEST_INTERCEPT
    for _ in range(50):
        middle = (low + high) / 2
        below = float(_WEIGHTS @ family.mean(middle + spread * _NODES)) < mean
        low, high = (middle, high) if below else (low, middle)
    return (low + high) / 2


def curvature(family: Family, S: Array, b: Array) -> Array:
    """Return E V(x'b) x x' by (2), for x = (1, ...) with E x x' = S; shape (p, p)."""
    m = S[0, 1:]
    C = S[1:, 1:] - np.outer(m, m)
    s = math.sqrt(max(float(b[1:] @ C @ b[1:]), 1e-12))
    weights = _WEIGHTS * family.weight(float(b[0] + m @ b[1:]) + s * _NODES)
    e = [float((weights * he).sum()) for he in (1.0, _NODES, _NODES**2 - 1)]
    along = C @ b[1:] / s
    shift = e[1] * along
    M = np.empty_like(S)
    M[0, 0], M[0, 1:] = e[0], e[0] * m + shift
    M[1:, 0] = M[0, 1:]
    M[1:, 1:] = e[0] * (C + np.outer(m, m)) + e[2] * np.outer(along, along)
    M[1:, 1:] += np.outer(shift, m) + np.outer(m, shift)
    return M
