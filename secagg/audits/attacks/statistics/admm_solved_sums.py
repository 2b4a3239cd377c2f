"""Recover every site's covariance matrix from the sums of linear NOTEARS-ADMM.

Ng and Zhang (AISTATS 2022), equations (4), (7) and (10), in the notation of
`secagg.models.notears_admm.linear_site`. Each round's sum is a known function of all sites'
covariance matrices S_k. Enough rounds give more equations than there are unknowns, and nonlinear
least squares (Gauss-Newton steps with a trust region) solves them. With
P_k = (S_k + rho2 I)^-1 and T_k = rho2 (J - W) + beta_k, a site's answer and its derivative in a
direction D of S_k are

    V_k = S_k P_k T_k,      dV_k = rho2 P_k D P_k T_k + S_k P_k dbeta_k,                        (a)

where dbeta_k is dV_k of the round before (0 in the first), because all parties know W. V_k has no
differences of large numbers, even if rho2 is large.

The attacker is a coordinator that follows the protocol. It knows W and rho2 of every round, the
number of sites, and each round's sum over sites. It does not see the message of a single site.

What the result means. The attack finds S_k = X'X / n of each site's centred records, in any order:
the sums do not say which matrix belongs to which site. The attacker can compute `misfit`; a small
one confirms the solution, if the sums determine it (`secagg.audits.attacks.statistics.admm_sums`).
`smallest_singular_value` needs the true matrices, so it is for the auditor: if it is clearly above
zero, the sums determine the matrices locally, and the attack can fail only because its search does.
On real records of three or four hospitals with three variables, the largest error is 1e-9 of a
matrix's largest entry. With four hospitals and four variables, one search in ten or more succeeds.
On simulated records of two or three sites with two or three variables, it is one in two to twenty.
The others end in another minimum, with a misfit of 1e-10 or more. With two to five rounds, other
minima have misfits down to 1e-36.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from secagg.core.arrays import Array

SOLVED = 1e-19  # half a sum of squares: 1e-21 by rounding, 1e-9 and more in other minima
_STEPS = 400  # largest number of steps of a search; those that succeed take 20 to 320
_FREEDOMS = (200, 0)  # of the Wishart matrices beyond d, in turn: similar sites, different sites


class AdmmRound(NamedTuple):
    """The coordinator's knowledge of a round: W (q, d), rho2, and the sum of V_k (q, d)."""

    W: Array
    rho2: float
    total: Array


class Recovered(NamedTuple):
    """covariances (K, q, q); misfit: half the sum of squared differences between the sums."""

    covariances: Array
    misfit: float


def upper_triangles(covariances: Array) -> Array:
    """Return the unknowns of the equations: the upper triangles of all matrices in one vector."""
    return covariances[:, *np.triu_indices(covariances.shape[1])].ravel()


def predicted_sums(unknown: Array, rounds: Sequence[AdmmRound]) -> tuple[Array, Array]:
    """Return the sums of all rounds over sites whose matrices have these upper triangles.

    Also returns their derivatives with respect to these numbers, a column for each of them.
    """
    q, d = rounds[0].W.shape
    S, directions = _matrices(unknown, q), _matrices(np.eye(q * (q + 1) // 2), q)
    eye, J = np.eye(q), np.eye(q, d)
    beta, slopes = np.zeros((len(S), q, d)), np.zeros((len(S), len(directions), q, d))
    totals, jacobian = [], []
    next_weights = [each.W for each in rounds[1:]] + [rounds[-1].W]
    for (W, rho2, _), next_W in zip(rounds, next_weights, strict=True):
        P = np.linalg.inv(S + rho2 * eye)
        PT = P @ (rho2 * (J - W) + beta)
        V = S @ PT
        slopes = rho2 * P[:, None] @ directions @ PT[:, None] + (S @ P)[:, None] @ slopes
        totals.append(V.sum(axis=0).ravel())
        jacobian.append(slopes.reshape(len(unknown), q * d).T)
        beta = V + rho2 * (W - next_W)
    return np.concatenate(totals), np.concatenate(jacobian)


def smallest_singular_value(covariances: Array, rounds: Sequence[AdmmRound]) -> float:
    """Return that of the sums' derivatives; above zero, the matrices are locally unique."""
    _, jacobian = predicted_sums(upper_triangles(covariances), rounds)
    return float(np.linalg.svd(jacobian, compute_uv=False)[-1])


def recover_covariances(
    rounds: Sequence[AdmmRound], sites: int, rng: np.random.Generator, starts: int = 30
) -> Recovered:
    """Solve the sums of a static graph (q = d) for all matrices; starts: most searches.

    Each search starts at the pooled covariance matrix S, divided at random among the sites. The
    last round gives S nearly, because B_k is then close to W, and the sum close to S (I - W). With
    independent Wishart matrices M_k, the parts are S^1/2 M^-1/2 M_k M^-1/2 S^1/2, where M is their
    sum: they differ in all directions. The unknowns are Cholesky factors, so that all matrices stay
    covariance matrices. Late rounds depend on the matrices 10^6 times as much as early ones, which
    tell the sites apart; so each round is divided by the root of the size of its derivatives.
    """
    target = np.concatenate([each.total.ravel() for each in rounds])
    W, _, total = rounds[-1]
    d = len(W)
    pooled = np.linalg.solve((np.eye(d) - W).T, total.T).T
    root = np.linalg.cholesky(_positive((pooled + pooled.T) / 2))
    lower, best = np.tril_indices(d), Recovered(np.empty(0), np.inf)
    for _, freedom in zip(range(starts), cycle(_FREEDOMS), strict=False):
        parts = root @ _random_parts(sites, d, d + freedom, rng) @ root.T
        start = np.asarray(np.linalg.cholesky(parts), dtype=np.float64)
        size = np.linalg.norm(_slopes(start, rounds).reshape(len(rounds), -1), axis=1)
        weight = np.repeat(1 / np.sqrt(size), d * d)

        def misfits(x: Array, weight: Array = weight) -> Array:
            L = _factors(x, d)
            S = L @ L.transpose(0, 2, 1)
            difference: Array = predicted_sums(upper_triangles(S), rounds)[0] - target
            return difference * weight

        def slopes(x: Array, weight: Array = weight) -> Array:
            return _slopes(_factors(x, d), rounds) * weight[:, None]

        fit = least_squares(
            misfits,
            start[:, *lower].ravel(),
            jac=slopes,
            xtol=1e-15,
            ftol=1e-15,
            gtol=None,  # first rounds depend little on the matrices, so gradients are small
            x_scale="jac",
            max_nfev=_STEPS,
        )
        L = _factors(fit.x, d)
        misfit = float(np.sum((fit.fun / weight) ** 2) / 2)
        if misfit < best.misfit:
            best = Recovered(L @ L.transpose(0, 2, 1), misfit)
        if best.misfit < SOLVED:
            break
    return best


def _random_parts(sites: int, d: int, freedom: int, rng: np.random.Generator) -> Array:
    """Return random positive definite matrices (K, d, d) whose sum is the identity."""
    G = rng.normal(size=(sites, d, freedom))
    M = rng.dirichlet(np.full(sites, 5.0))[:, None, None] * (G @ G.transpose(0, 2, 1))
    root = np.linalg.inv(np.linalg.cholesky(M.sum(axis=0)))
    return np.asarray(root @ M @ root.T)


def _positive(S: Array) -> Array:
    """Return the matrix with its eigenvalues raised to a small part of the largest."""
    size, vectors = np.linalg.eigh(S)
    return np.asarray(vectors * np.maximum(size, 1e-9 * size[-1]) @ vectors.T)


def _factors(lower: Array, d: int) -> Array:
    """Return the lower triangular matrices (K, d, d) with these entries."""
    rows = lower.reshape(-1, d * (d + 1) // 2)
    L = np.zeros((len(rows), d, d))
    L[:, *np.tril_indices(d)] = rows
    return L


def _slopes(L: Array, rounds: Sequence[AdmmRound]) -> Array:
    """Return the derivatives of all sums with respect to the entries of S_k's factors L_k."""
    K, d = L.shape[:2]
    slopes = predicted_sums(upper_triangles(L @ L.transpose(0, 2, 1)), rounds)[1]
    i, j = np.tril_indices(d)
    E = np.zeros((len(i), d, d))
    E[range(len(i)), i, j] = 1.0
    half = E @ L.transpose(0, 2, 1)[:, None]  # d(L L') = half + half'
    inner = (half + half.transpose(0, 1, 3, 2))[:, :, *np.triu_indices(d)]
    by_site = slopes.reshape(len(slopes), K, -1)
    return np.asarray(np.einsum("nka,kba->nkb", by_site, inner).reshape(len(slopes), -1))


def _matrices(upper: Array, d: int) -> Array:
    """Return symmetric matrices (..., d, d) with these upper triangles, one after the other."""
    rows = upper.reshape(-1, d * (d + 1) // 2)
    S = np.zeros((len(rows), d, d))
    S[:, *np.triu_indices(d)] = rows
    return S + np.triu(S, 1).transpose(0, 2, 1)
