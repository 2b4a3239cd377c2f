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
one confirms the solution. `smallest_singular_value` needs the true matrices, so it is for the
auditor: if it is clearly above zero, the sums determine the matrices locally, and the attack can
fail only because its search does. On real records of three hospitals with three variables the
largest error is about 1e-10 of a matrix's largest entry, and on those of four hospitals with four
variables 1e-9 (`tests/attacks/test_notears_admm.py`). On simulated records of four sites, some
searches end in another minimum, with errors of about 10 % and a misfit of 1e-10 or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from secagg.core.arrays import Array

SOLVED = 1e-19  # half a sum of squares: 1e-21 by rounding, 1e-9 and more in other minima
_STEPS = 1000  # largest number of steps of a search


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


def recover_covariances(rounds: Sequence[AdmmRound], sites: int, starts: int = 8) -> Recovered:
    """Solve the sums of a static graph (q = d) for all matrices; starts: most searches.

    Each search starts at the pooled covariance matrix S, divided at random among the sites. The
    last round gives S nearly, because B_k is then close to W, and the sum close to S (I - W).
    """
    target = np.concatenate([each.total.ravel() for each in rounds])
    W, _, total = rounds[-1]
    d, rng = len(W), np.random.default_rng(0)
    pooled = np.linalg.solve((np.eye(d) - W).T, total.T).T[np.triu_indices(d)]

    def misfits(unknown: Array) -> Array:
        difference: Array = predicted_sums(unknown, rounds)[0] - target
        return difference

    def slopes(unknown: Array) -> Array:
        return predicted_sums(unknown, rounds)[1]

    best = None
    for _ in range(starts):
        start = (rng.dirichlet(np.full(sites, 5.0))[:, None] * pooled).ravel()
        start *= rng.uniform(0.8, 1.2, len(start))
        fit = least_squares(
            misfits,
            start,
            jac=slopes,
            xtol=1e-15,
            ftol=1e-15,
            gtol=None,  # first rounds depend little on the matrices, so gradients are small
            x_scale="jac",
            max_nfev=_STEPS,
        )
        best = fit if best is None or fit.cost < best.cost else best
        if best.cost < SOLVED:
            break
    assert best is not None
    return Recovered(_matrices(best.x, d), float(best.cost))


def _matrices(upper: Array, d: int) -> Array:
    """Return symmetric matrices (..., d, d) with these upper triangles, one after the other."""
    rows = upper.reshape(-1, d * (d + 1) // 2)
    S = np.zeros((len(rows), d, d))
    S[:, *np.triu_indices(d)] = rows
    return S + np.triu(S, 1).transpose(0, 2, 1)
