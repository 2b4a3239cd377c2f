"""Recover every site's covariance matrix from the sums of linear NOTEARS-ADMM.

Ng and Zhang (AISTATS 2022), equations (4), (7) and (10), in the notation of
`secagg.models.notears_admm.linear_site`. Each round's sum is a known function of all sites'
covariance matrices S_k. Enough rounds give more equations than there are unknowns, and nonlinear
least squares solves them.

The attacker is a coordinator that follows the protocol. It knows W and rho2 of every round, the
number of sites, and each round's sum over sites. It does not see the message of a single site.

What the result means. The attack finds S_k = X'X / n of each site's centred records, in any order:
the sums do not say which matrix belongs to which site. The attacker can compute `misfit`; a small
one confirms the solution. `smallest_singular_value` needs the true matrices, so it is for the
auditor: if it is clearly above zero, the sums determine the matrices locally, and the attack can
fail only because its search does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from secagg.core.arrays import Array

_STEP = 1e-6  # of a central difference, whose error is then some 1e-10
_ROUNDING = 1e-20  # half a sum of squares: 1e-28 by rounding, 1e-3 in other minima


class AdmmRound(NamedTuple):
    """The coordinator's knowledge of a round: W (d, d), rho2, and the sum of V_k (d, d)."""

    W: Array
    rho2: float
    total: Array


class Recovered(NamedTuple):
    """covariances (K, d, d); misfit: half the sum of squared differences between the sums."""

    covariances: Array
    misfit: float


def upper_triangles(covariances: Array) -> Array:
    """Return the unknowns of the equations: the upper triangles of all matrices in one vector."""
    return covariances[:, *np.triu_indices(covariances.shape[1])].ravel()


def predicted_sums(unknown: Array, rounds: Sequence[AdmmRound], sites: int) -> Array:
    """Return the sums of all rounds over sites whose matrices have these upper triangles."""
    d = len(rounds[0].W)
    S = _matrices(unknown, d, sites)
    beta, totals = np.zeros_like(S), []
    next_weights = [each.W for each in rounds[1:]] + [rounds[-1].W]
    for (W, rho2, _), next_W in zip(rounds, next_weights, strict=True):
        B = np.linalg.solve(S + rho2 * np.eye(d), rho2 * W - beta + S)
        V = beta + rho2 * (B - W)
        totals.append(V.sum(axis=0))
        beta = V + rho2 * (W - next_W)
    return np.concatenate([total.ravel() for total in totals])


def smallest_singular_value(covariances: Array, rounds: Sequence[AdmmRound]) -> float:
    """Return that of the sums' Jacobian; above zero, the matrices are locally unique."""
    unknown, sites = upper_triangles(covariances), len(covariances)

    def slope(direction: Array) -> Array:
        ahead, behind = (
            predicted_sums(unknown + sign * _STEP * direction, rounds, sites) for sign in (1, -1)
        )
        return (ahead - behind) / (2 * _STEP)

    slopes = np.array([slope(direction) for direction in np.eye(len(unknown))])
    return float(np.linalg.svd(slopes, compute_uv=False)[-1])


def recover_covariances(rounds: Sequence[AdmmRound], sites: int, starts: int = 8) -> Recovered:
    """Solve the sums for all matrices; starts: largest number of searches.

    Each search starts at the pooled covariance matrix S, divided at random among the sites. The
    last round gives S nearly, because B_k is then close to W, and the sum close to S (I - W).
    """
    target = np.concatenate([each.total.ravel() for each in rounds])
    W, _, total = rounds[-1]
    d, rng = len(W), np.random.default_rng(0)
    pooled = np.linalg.solve((np.eye(d) - W).T, total.T).T[np.triu_indices(d)]

    def misfits(unknown: Array) -> Array:
        difference: Array = predicted_sums(unknown, rounds, sites) - target
        return difference

    best = None
    for _ in range(starts):
        start = (rng.dirichlet(np.full(sites, 5.0))[:, None] * pooled).ravel()
        start *= rng.uniform(0.8, 1.2, len(start))
        fit = least_squares(misfits, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, x_scale="jac")
        best = fit if best is None or fit.cost < best.cost else best
        if best.cost < _ROUNDING:
            break
    assert best is not None
    return Recovered(_matrices(best.x, d, sites), float(best.cost))


def _matrices(unknown: Array, d: int, sites: int) -> Array:
    S = np.zeros((sites, d, d))
    S[:, *np.triu_indices(d)] = unknown.reshape(sites, -1)
    return S + np.triu(S, 1).transpose(0, 2, 1)
