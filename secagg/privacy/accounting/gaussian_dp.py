"""Epsilon and delta of Gaussian noise, exactly (Balle & Wang 2018, theorem 8).

A release is (epsilon, delta)-private if one record changes the probability of any result by at most
a factor of e^epsilon, plus delta. mu is the L2 sensitivity of the released numbers divided by the
standard deviation of their noise ("mu-GDP" in Dong, Roth & Su 2022). The joint mu of several
releases is the root of the sum of their mu^2, exactly. So the three functions of this module are
enough to account for Gaussian noise.

With a = epsilon/mu - mu/2, b = epsilon/mu + mu/2, the normal distribution function Phi and its
density phi,

    delta(epsilon) = Phi(-a) - e^epsilon Phi(-b) = Phi(-a) - phi(a) R(b),        (Balle & Wang, 8)

where R(x) = Phi(-x) / phi(x) is Mills' ratio. The last form uses e^epsilon phi(b) = phi(a) and so
avoids the product of a very large and a very small number. For small mu the two terms nearly
cancel. In this case delta is computed as phi(a) times the integral of -R'(x) = 1 - x R(x) from a to
b, by Gauss-Legendre quadrature.

Rounding is on the safe side: a returned delta or epsilon is never below the true value, and a
returned mu is never above it. `_rounding` bounds the rounding error.

===========================  =====================  ==============================================
case                         result                 reason
===========================  =====================  ==============================================
delta of mu = 0              0                      nothing about the records was released
delta of mu = inf            1, but 0 at eps = inf  an exact release; epsilon = inf is no guarantee
delta of epsilon = 0         2 Phi(mu/2) - 1        total variation between N(0, 1) and N(mu, 1)
delta below 5e-324           5e-324                 a Gaussian tail is positive everywhere
epsilon of delta >= 1        0                      delta = 1 is no guarantee
epsilon of a large delta     0                      delta(0) is no larger
epsilon of delta = 0         inf, but 0 at mu = 0   a Gaussian's privacy loss is unbounded
delta below 1e-300           as delta = 0           floats below it lose digits
epsilon of mu = inf          inf                    where delta < 1
mu of delta >= 1 or eps=inf  inf                    every release satisfies this guarantee
mu of delta = 0              0                      only a release of nothing satisfies it
negative or not a number     `UsageError`
===========================  =====================  ==============================================

Not protected: these functions compute the guarantee of noise of a given size. They cannot check
that the noise was drawn, that the sensitivity is correct, or that the adversary knows no share of
the noise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, ndtr

from secagg.errors import UsageError

Floats = NDArray[np.float64]

_UNIT = float(np.finfo(np.float64).eps)
_ROOT_TAU = math.sqrt(2 * math.pi)
_MAX_ARGUMENT = 37.5  # for larger a, the float phi(a) loses digits
_MIN_DELTA = 1e-300
_LEGENDRE = np.polynomial.legendre.leggauss(8)
_NODES, _WEIGHTS = (_LEGENDRE[0] + 1) / 2, _LEGENDRE[1] / 2  # on [0, 1]


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return delta of Gaussian noise with this mu at this epsilon, in [0, 1], rounded up.

    mu: sensitivity divided by standard deviation, 0 to infinity
    epsilon: 0 to infinity
    Raises `UsageError` for an argument that is negative or not a number.
    """
    _check(mu=mu, epsilon=epsilon)
    if mu == 0 or epsilon == math.inf:
        return 0.0
    if mu == math.inf:
        return 1.0
    a = epsilon / mu - mu / 2
    if a > _MAX_ARGUMENT:  # delta < Phi(-a) <= exp(-a^2 / 2)
        return math.nextafter(math.exp(-a * a / 2), math.inf)
    delta = float(_delta_from(np.asarray(a), mu)) * (1 + _rounding(mu, epsilon))
    return min(1.0, math.nextafter(delta, math.inf))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon of Gaussian noise with this mu at this delta, rounded up.

    mu: sensitivity divided by standard deviation, 0 to infinity
    delta: 0 to 1
    Returns infinity if no epsilon holds. Raises `UsageError` for an argument that is negative or
    not a number.

    delta is the probability that the privacy loss, which is normally distributed, exceeds epsilon
    plus an exponential variable. Sums of log-concave variables have log-concave tails, so log delta
    is concave in epsilon. Hence Newton's method approaches the root from above, and every step is
    on the safe side.
    """
    _check(mu=mu, delta=delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    if delta < _MIN_DELTA:
        return math.inf
    # delta < exp(-a^2 / 2), so the root is below this value.
    epsilon = mu * (mu / 2 + math.sqrt(-2 * math.log(delta)))
    if epsilon == math.inf:
        return math.inf
    step = epsilon
    while step > 1e-12 * epsilon:
        current = gaussian_delta(mu, epsilon)
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        # -d delta / d epsilon = e^epsilon Phi(-b) = phi(a) R(b)
        slope = math.exp(-a * a / 2) / _ROOT_TAU * float(_mills(np.asarray(b))) / current
        step = math.log(delta / current) / slope
        epsilon = max(epsilon - step, 0.0)
    increment = _UNIT * epsilon
    while gaussian_delta(mu, epsilon) > delta:  # rounding may have stopped just below the root
        epsilon, increment = epsilon + increment, 2 * increment
    return epsilon


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu with which Gaussian noise is (epsilon, delta)-private, rounded down.

    The noise needs the standard deviation sensitivity / mu.

    epsilon: 0 to infinity
    delta: 0 to 1
    Raises `UsageError` for an argument that is negative or not a number.

    d log delta / d log mu = mu phi(a) / delta is one over the mean of -R' on [a, b]. As mu grows,
    the middle of that interval, epsilon/mu, falls and its length mu grows. -R' is decreasing and
    convex (R is the Laplace transform of e^(-t^2/2)), so its mean grows. Hence log delta is concave
    in log mu. So Newton's method approaches the root from below, and every step is on the safe
    side.
    """
    _check(epsilon=epsilon, delta=delta)
    if delta >= 1 or epsilon == math.inf:
        return math.inf
    if delta < _MIN_DELTA:
        return 0.0
    # mu (mu/2 + root) = epsilon is private enough, by the bound above; so is mu = delta.
    root = math.sqrt(-2 * math.log(delta))
    mu = max(2 * epsilon / (math.sqrt(root * root + 2 * epsilon) + root), delta)
    step = 1.0
    while step > 1e-13 and (current := gaussian_delta(mu, epsilon)) > _MIN_DELTA:
        a = epsilon / mu - mu / 2
        slope = mu * math.exp(-a * a / 2) / _ROOT_TAU / current
        step = math.log(delta / current) / slope
        mu *= math.exp(step)
    increment = _UNIT * mu
    while gaussian_delta(mu, epsilon) > delta:  # rounding may have stopped just above the root
        mu, increment = mu - increment, 2 * increment
    return mu


def _delta_from(a: Floats, mu: float) -> Floats:
    """Return delta at a = epsilon/mu - mu/2, elementwise, for a <= `_MAX_ARGUMENT`."""
    density = np.exp(-(np.maximum(a, -_MAX_ARGUMENT) ** 2) / 2) / _ROOT_TAU
    if mu > 1:
        return ndtr(-a) - density * _mills(a + mu)
    x = a[..., None] + mu * _NODES
    drop = mu * ((1 - x * _mills(x)) @ _WEIGHTS)  # R(a) - R(b)
    return density * drop


def _mills(x: Floats) -> Floats:
    """Return R(x) = Phi(-x) / phi(x)."""
    return math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2))


def _rounding(mu: float, epsilon: float) -> float:
    """Bound the relative rounding error of `_delta_from` (checked against mpmath).

    A unit is the relative rounding error of one operation. a and b each have an error of about two
    units of b. If a changes by da, delta changes by less than a factor e^((a + 2) da), and phi by
    e^(a da). 1 - x R(x), about 1/x^2, loses b^2 units by cancellation. For mu > 1, phi has an error
    of a^2 units, and cancellation of the two terms of delta increases it by less than a factor
    a + 2.
    """
    b = epsilon / mu + mu / 2
    near = max(epsilon / mu - mu / 2, 0.0) + 2
    return 8 * _UNIT * (near * b + near**3 + min(b, 2 * near) ** 2)


def _check(**arguments: float) -> None:
    for name, value in arguments.items():
        if not value >= 0:
            raise UsageError(name, f"{value} is not a number of at least 0")
