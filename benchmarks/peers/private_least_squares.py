"""Least squares under differential privacy, from two papers, on pooled records.

AdaSSP: Wang, Y.-X. (UAI 2018), "Revisiting differentially private linear regression: optimal and
adaptive prediction & estimation in unbounded domain", algorithm 2. Noise in X'X, X'y and the least
eigenvalue, and a ridge that depends on the last. Here with a noise of the same mu in each of the
three, so that all three together are exactly (epsilon, delta)-private; Wang's own constants
(root(log(6 / delta)) / (epsilon / 3)) need 1.7 times this noise at epsilon 1.

TukeyEM: Amin, Joseph, Ribero and Vassilvitskii (ICLR 2023), "Easy differentially private linear
regression", algorithms 1 to 3. Least squares on each of m random parts of the records; then the
exponential mechanism chooses a point by its approximate Tukey depth among the m estimates, after a
propose-test-release check that few changed records cannot make this unsafe.

Both protect adding or removing one record. Not protected: anything. Noise is in floating point and
replayable. This is for benchmarks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from secagg.privacy.accounting.gaussian_dp import gaussian_mu

Floats = NDArray[np.float64]

RHO = 0.05  # Wang's: the probability that the ridge is too small
_TIES = 1e-10  # relative; two equal estimates have no box between them


def adassp(
    X: Floats, y: Floats, norm: float, bound: float, epsilon: float, delta: float,
    rng: np.random.Generator, *, ridge: bool = True,
) -> Floats:  # fmt: skip
    """Return the coefficients, shape (d,).

    X: shape (n, d), each row at most `norm` long; y: at most `bound`; ridge: False for plain least
    squares from noisy sums (the budget is then for X'X and X'y alone)
    """
    d, parts = X.shape[1], 3 if ridge else 2
    unit = math.sqrt(parts) / gaussian_mu(epsilon, delta)
    square, product = norm**2 * unit, norm * bound * unit  # standard deviations
    noise = np.triu(square * rng.normal(size=(d, d)))
    XX = X.T @ X + noise + np.triu(noise, 1).T
    Xy = X.T @ y + product * rng.normal(size=d)
    if not ridge:
        return np.asarray(np.linalg.lstsq(XX, Xy, rcond=None)[0])
    least = float(np.linalg.eigvalsh(X.T @ X)[0]) + square * rng.normal()
    least = max(least - square * math.sqrt(math.log(6 / delta)), 0.0)
    added = max(0.0, square * math.sqrt(d * math.log(2 * d**2 / RHO)) - least)
    return np.asarray(np.linalg.solve(XX + added * np.eye(d), Xy))


def tukey_em(
    X: Floats, y: Floats, models: int, epsilon: float, delta: float, rng: np.random.Generator
) -> Floats | None:
    """Return the coefficients, shape (d,), or None if the check fails.

    X: shape (n, d) with n >= models * d
    """
    parts = np.array_split(rng.permutation(len(y)), models)
    fits = np.array([np.linalg.lstsq(X[i], y[i], rcond=None)[0] for i in parts])
    return chosen_by_depth(fits, epsilon, delta, rng)


def chosen_by_depth(
    fits: Floats, epsilon: float, delta: float, rng: np.random.Generator
) -> Floats | None:
    """Return a point of large approximate Tukey depth, or None if the check fails.

    fits: shape (m, d)
    """
    m = len(fits)
    S = np.sort(fits + _TIES * fits.std(axis=0) * rng.random(size=fits.shape), axis=0)
    half, t = m // 2, m // 4
    boxes = S[::-1][:half] - S[:half]  # row i - 1: the sides of the region of depth at least i
    volumes = np.log(boxes).sum(axis=0 if boxes.ndim == 1 else 1)
    distance = distance_to_unsafety(volumes, epsilon / 2, delta, t)
    if distance + rng.laplace(scale=2 / epsilon) <= math.log(1 / (2 * delta)) / (epsilon / 2):
        return None
    # the exponential mechanism: depth i >= t has the probability (V_i - V_(i+1)) e^(i epsilon / 2)
    inner = np.append(volumes[t:], -np.inf)
    terms = volumes[t - 1 :] + np.log1p(-np.exp(inner - volumes[t - 1 :]))
    terms += epsilon / 2 * np.arange(t, half + 1)
    depth = t + int(np.argmax(terms + rng.gumbel(size=len(terms))))
    return _of_depth(S, depth, rng)


def distance_to_unsafety(volumes: Floats, epsilon: float, delta: float, t: int) -> int:
    """Return the largest k for which, with some g > 0,

        V_(t-k-1) / V_(t+k+g+1)  e^(-epsilon g / 2)  <=  delta / (8 e^epsilon),

    or -1 if there is none; volumes: log V_1, log V_2, ...
    """
    limit = math.log(delta / 8) - epsilon
    for k in range(t - 2, -1, -1):
        later = volumes[t + k + 1 :]  # g = 1, 2, ...
        if not len(later):
            continue
        g = np.arange(1, len(later) + 1)
        if np.min(volumes[t - k - 2] - later - epsilon / 2 * g) <= limit:
            return k
    return -1


def _of_depth(S: Floats, depth: int, rng: np.random.Generator) -> Floats:
    """Return a uniform point of exactly this depth: in the box of depth, not in the next one."""
    m, d = S.shape
    low, high = S[depth - 1], S[m - depth]
    outer = high - low
    if 2 * (depth + 1) > m:  # no deeper box
        return np.asarray(rng.uniform(low, high))
    inner_low, inner_high = S[depth], S[m - depth - 1]
    inside = inner_high - inner_low
    # the first dimension outside the next box: those before are inside it, those after anywhere
    with np.errstate(divide="ignore"):
        before = np.concatenate([[0.0], np.cumsum(np.log(inside))[:-1]])
        after = np.concatenate([np.cumsum(np.log(outer)[::-1])[::-1][1:], [0.0]])
        terms = before + np.log(outer - inside) + after
    first = int(np.argmax(terms + rng.gumbel(size=d)))
    point = np.asarray(rng.uniform(low, high))
    point[:first] = rng.uniform(inner_low[:first], inner_high[:first])
    left, right = inner_low[first] - low[first], high[first] - inner_high[first]
    u = rng.uniform(0, left + right)
    point[first] = low[first] + u if u < left else inner_high[first] + u - left
    return point
