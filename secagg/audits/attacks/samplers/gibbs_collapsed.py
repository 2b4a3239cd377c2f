"""A site's X'X and least squares from its contributions to the step `collapsed`.

In a round the site sends, for each chain, P, r and c of `secagg.models.sparse_bayes.horseshoe`. If
X'X = G is regular, Woodbury's formula gives for (8) there, with W = diag(w) and b = G^-1 X'y,

    P^-1 = W + s G^-1,    r = P b.                                                               (1)

So one contribution gives the least squares b = P^-1 r, although P and r contain random s and w. The
off-diagonal entries of P^-1 are those of s G^-1. They are the same in all rounds, up to s: with
s = u s_1,

    P^-1 = W + u A,   A = s_1 G^-1,   A_ij known for i != j,   u known in each round.            (2)

Unknown are the q entries A_jj. Since w > 0, A_jj is below P^-1_jj / u in each round, and the
smallest of these is an estimate: w is often small. A better one is maximum likelihood. The draws of
a sweep, with w = P^-1_jj - u A_jj and v = t / (c w), are (3) to (6) of `horseshoe`. With theta_kj
integrated out of (5), and mu, h the mean and variance of theta_kj - theta_j by (3),

    p(w) ~ w^-2 exp(-a / w) (w / (w + h))^1/2 exp(-mu^2 / (2 (w + h))) (a + (m^2 + g) / 2)       (3)
    p(c) = (1 + w / t) exp(-c (1 + w / t)),                                                      (4)

a = t / v with v of the round before, g = h w / (w + h), m = mu w / (w + h). (3) is multiplied over
j as if coefficients were independent (a composite likelihood). With more than one sweep in a round
the draws in between are not seen, so only (4) and w > 0 are used.

The scale s_1 is not identified: if G, s and y'y are multiplied by a number, only the prior of s
changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize

from secagg.audits.attacks.samplers.gibbs_view import Series
from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import times

_REGULAR = 1e-8  # smallest eigenvalue of P, relative; below it, the inverse is rounding
_PRECISE = 1e-3  # standard error of u, relative
_MOST_DRAWS = 1000  # in the likelihood; more take long and add little to the smallest P^-1_jj / u


@dataclass(frozen=True)
class _Inverses:
    """D: diagonals of P^-1 (T, q); u (T,), NaN where rounding hides it; and the round's series."""

    D: Array
    u: Array
    series: Series

    def first(self, rounds: int) -> _Inverses:
        """Return the first rounds."""
        return _Inverses(self.D[:rounds], self.u[:rounds], self.series.first(rounds))


def least_squares(chains: Sequence[Series]) -> Array:
    """Return b of (1), from the contribution whose P is the largest and so the least rounded."""
    P = np.concatenate([one.sent["P"] for one in chains])
    r = np.concatenate([one.sent["r"] for one in chains])
    best = int(np.argmax(np.linalg.eigvalsh(P)[:, 0]))
    return np.asarray(np.linalg.pinv(P[best], rcond=_REGULAR, hermitian=True) @ r[best])


def cross_products(chains: Sequence[Series], sweeps: int, step: float) -> Array | None:
    """Return G up to a factor; None if it cannot be found, as with a singular G.

    step: of the fixed-point numbers
    """
    q = chains[0].theta.shape[1]
    A, seen = np.zeros((q, q)), list[_Inverses]()
    if q > 1:
        values = np.linalg.eigvalsh(np.concatenate([one.sent["P"] for one in chains]))
        if np.all(values[:, 0] <= _REGULAR * values[:, -1]):
            return None
        A, seen = _off_diagonal(chains, step)
    if not any(np.any(np.isfinite(each.u)) for each in seen):
        return None
    b = least_squares(chains)
    highest = np.nanmin(np.concatenate([each.D / each.u[:, None] for each in seen]), axis=0)

    seen = [each.first(_MOST_DRAWS // len(chains)) for each in seen]

    def cost(gap: Array) -> float:
        """Return minus the log-likelihood. gap: log(highest - A_jj)"""
        trial = A + np.diag(highest - np.exp(np.minimum(gap, np.log(highest))))
        if np.linalg.eigvalsh(trial)[0] <= 0:
            return 1e300
        return -sum(_log_likelihood(trial, each, b, sweeps) for each in seen)

    start = np.log(highest * 1e-2)
    options: Any = {"maxfev": 100 * q, "adaptive": True}
    gap = minimize(cost, start, method="Nelder-Mead", options=options).x
    whole = A + np.diag(highest - np.exp(np.minimum(gap, start + 4)))
    return np.asarray(np.linalg.inv(whole), dtype=np.float64)


def _off_diagonal(chains: Sequence[Series], step: float) -> tuple[Array, list[_Inverses]]:
    """Return A of (2) without its diagonal, and u in all rounds."""
    inverses = [np.linalg.pinv(one.sent["P"], hermitian=True) for one in chains]
    q = chains[0].theta.shape[1]
    upper = np.triu_indices(q, 1)
    found = np.concatenate(inverses)
    D = np.abs(np.diagonal(found, axis1=1, axis2=2))
    values = found[:, upper[0], upper[1]]
    error = step * D[:, upper[0]] * D[:, upper[1]]  # of P^-1, by the rounding of P
    first = int(np.argmin(np.sqrt(np.sum(error**2, axis=1)) / np.linalg.norm(values, axis=1)))
    a, u, good = values[first], np.zeros(len(values)), np.zeros(len(values), dtype=np.bool_)
    for _ in range(3):  # alternating weighted least squares of values = u a
        size = np.sum((a / error) ** 2, axis=1)
        u = np.sum(values * a / error**2, axis=1) / size
        good = (u > 0) & (1 / np.sqrt(size) < _PRECISE * u)
        weight = (u[good, None] / error[good]) ** 2
        a = np.sum(weight * values[good] / u[good, None], axis=0) / np.sum(weight, axis=0)
    A = np.zeros((q, q))
    A[upper] = a
    u = np.where(good, u, np.nan)
    at = np.cumsum([0, *(len(each) for each in inverses)])
    parts = [slice(i, j) for i, j in pairwise(at.tolist())]
    return A + A.T, [_Inverses(D[p], u[p], s) for p, s in zip(parts, chains, strict=True)]


def _log_likelihood(A: Array, seen: _Inverses, b: Array, sweeps: int) -> float:
    """Return the logarithm of (3) and (4) over the rounds in which u is known."""
    theta, t, c = seen.series.theta, seen.series.t, np.maximum(seen.series.sent["c"], 1e-12)
    w = seen.D - seen.u[:, None] * np.diag(A)
    known = np.isfinite(seen.u)
    if np.any(w[known] <= 0):
        return -1e300
    share = 1 + w / t
    total = float(np.sum((np.log(share) - c * share)[known]))
    pair = known[1:] & known[:-1]
    if sweeps > 1 or not np.any(pair):
        return total
    w0, w1 = w[:-1][pair], w[1:][pair]
    a = (t[1:] / t[:-1])[pair] * c[:-1][pair] * w0
    gram = np.linalg.inv(A) / seen.u[:-1][pair][:, None, None]  # G / s
    C = np.linalg.inv(gram + np.einsum("ti,ij->tij", 1 / w0, np.eye(len(b))))
    mu = times(C @ gram, b - theta[1:][pair])
    h = np.diagonal(C, axis1=1, axis2=2)
    both = w1 + h
    m, g = mu * w1 / both, h * w1 / both
    logs = (
        -2 * np.log(w1) - a / w1 + np.log(w1 / both) / 2 - mu**2 / (2 * both)
        + np.log(a + (m**2 + g) / 2)
    )  # fmt: skip
    return total + float(np.sum(logs))
