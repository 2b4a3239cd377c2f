"""A site's X'X and least squares from its contributions to the step `paper`.

With l = lambda_k^2, the site sends 1/l, d/l and d^2/l with d = (theta_k - theta) / t^1/2. So a
contribution shows theta_k and, above its floor, lambda_k. With one sweep in a round, (3) of
`secagg.models.sparse_bayes.horseshoe` is the law of theta_k given the round before:

    theta_k ~ N(C h, C),  C = (A / f + W^-1)^-1,  h = g / f + W^-1 theta,  w_j = l_j t_j         (1)

with A = X'X / s0, g = X'y / s0, s = f s0. If f is known, (1) is an exponential family in (A, g):
its log-likelihood is concave, and at its maximum, over all rounds and chains,

    SUM (C + C h h' C) / f = SUM theta_k theta_k' / f,   SUM C h / f = SUM theta_k / f           (2)

Newton's method solves (2). By (4) of `horseshoe`, the mean of s is nearly proportional to the
residual sum of squares at the theta_k before. So f is replaced by

    f = 1 + (theta_k - b)' A (theta_k - b) / n,   b = A^-1 g, n the mean number of records       (3)

in turn with (2). The deviations of s from this mean, about (2 / n)^1/2, are neglected.

A is X'X up to s0. The sampler is that of Kidd, Wang, Xu and Ni (PSB 2023, section 2.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from secagg.audits.attacks.samplers.gibbs_view import Series
from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import clip_variance, dot, times

_PRECISE = 2.0**-20  # smallest 1/l from which theta_k is computed; steps are 2^-40
_ALTERNATIONS, _NEWTON_STEPS = 6, 30


class _Draws(NamedTuple):
    """theta_k of the round before and theta_k (own), theta, W, each (T, q)."""

    before: Array
    own: Array
    theta: Array
    W: Array


def solve_draws(chains: Sequence[Series], records: float) -> tuple[Array, Array]:
    """Return A and b. records: of one site, about

    Raises `LinAlgError` if there are too few draws, or numbers that are no draws.
    """
    draws = _Draws(*(np.concatenate(each) for each in zip(*map(_draws, chains), strict=True)))
    if len(draws.own) < draws.own.shape[1]:
        raise np.linalg.LinAlgError("fewer draws than coefficients")
    middle = np.median(draws.own, axis=0)
    unit = 1.5 * np.median(np.abs(draws.own - middle), axis=0) + 1e-9
    draws = _Draws(draws.before / unit, draws.own / unit, draws.theta / unit, draws.W / unit**2)
    A: Array = np.eye(len(unit))
    b: Array = middle / unit
    g = A @ b
    for _ in range(_ALTERNATIONS):
        away = draws.before - b
        f = 1 + dot(away, times(A, away)) / records
        A, g = _newton(draws, f, A, g)
        b = np.asarray(np.linalg.solve(A, g), dtype=np.float64)
    return A / np.outer(unit, unit), b * unit


def _newton(draws: _Draws, f: Array, A: Array, g: Array) -> tuple[Array, Array]:
    """Return the maximum of the log-likelihood (1) given f (T,)."""
    q = len(g)
    upper = np.triu_indices(q)
    value, score, information = _likelihood(draws, f, A, g)
    for _ in range(_NEWTON_STEPS):
        step = np.linalg.lstsq(information, score, rcond=None)[0]
        share = 1.0
        while True:
            dA = np.zeros((q, q))
            dA[upper] = share * step[:-q]
            tried = A + dA + np.triu(dA, 1).T, g + share * step[-q:]
            if np.linalg.eigvalsh(tried[0])[0] > 0:
                found = _likelihood(draws, f, *tried)
                if found[0] > value:
                    break
            share /= 2
            if share < 1e-6:
                return A, g
        gain, (A, g), (value, score, information) = found[0] - value, tried, found
        if gain < 1e-9:
            break
    return A, g


def _likelihood(draws: _Draws, f: Array, A: Array, g: Array) -> tuple[float, Array, Array]:
    """Return the log-likelihood, its slope by (A's upper triangle, g), and minus the curvature.

    x = theta_k - theta is used: it is small where W is, and large numbers do not cancel.
    """
    T, q = draws.own.shape
    upper = np.triu_indices(q)
    twice = np.where(upper[0] == upper[1], 1.0, 2.0)
    x, root = draws.own - draws.theta, np.sqrt(draws.W)
    K = np.eye(q) + root[:, :, None] * A * root[:, None, :] / f[:, None, None]
    C = np.asarray(root[:, :, None] * np.linalg.inv(K) * root[:, None, :], dtype=np.float64)
    h = (g - draws.theta @ A) / f[:, None]
    m = times(C, h)
    value = dot(x, h - times(A, x) / f[:, None] / 2) - dot(h, m) / 2
    value = value + np.linalg.slogdet(K)[1] / 2
    own, mean = draws.own, draws.theta + m
    by = 1 / f[:, None]
    second = (mean * by).T @ mean + np.tensordot(1 / f, C, 1) - (own * by).T @ own
    score = np.concatenate([(second[upper] * twice) / 2, ((own - mean) * by).sum(axis=0)])
    flat, scaled = C.reshape(T, -1), C.reshape(T, -1) / f[:, None] ** 2
    outer = (mean[:, :, None] * mean[:, None, :]).reshape(T, -1)
    CC, MC = ((each.T @ scaled).reshape(q, q, q, q) for each in (flat, outer))  # [i, k, j, l]
    pairs = CC + MC + MC.transpose(2, 3, 0, 1)
    pairs = pairs + pairs.transpose(0, 3, 2, 1)
    i, j = upper
    block = pairs[i[:, None], i[None, :], j[:, None], j[None, :]] * np.outer(twice, twice) / 4
    mixed = np.einsum("ti,tjk->ijk", mean, C / f[:, None, None] ** 2)
    cross = -(mixed[i, j] + mixed[j, i]) * twice[:, None] / 2
    last = np.tensordot(1 / f**2, C, 1)
    return float(value.sum()), score, np.block([[block, cross], [cross.T, last]])


def _draws(series: Series) -> tuple[Array, Array, Array, Array]:
    """Return `_Draws` of the rounds that show them."""
    one, d = series.sent["one"], series.sent["d"]
    shown = np.all(one > _PRECISE, axis=1)
    used = shown[1:] & shown[:-1]
    with np.errstate(all="ignore"):
        own = series.theta + d / one * np.sqrt(series.t)
        W = clip_variance(series.t[1:] / one[:-1])
    return own[:-1][used], own[1:][used], series.theta[1:][used], W[used]
