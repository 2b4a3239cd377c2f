"""Recover every site's X'X and X'y from the sums of FedLin's HM2, prior "normal".

Yue, Al Kontar and Estrada Gomez (2022), example 4.1. Given the variances tau between sites, a
site's likelihood of the common mean is a normal density. Its precision and shift are known
functions of the site's X'X and X'y: equation (1) of
`secagg.models.fedlin.posterior.importance_points`. Nonlinear least squares solves sums of these at
enough points tau.

The attacker is the coordinator, who knows all sums over sites. With the setting `points`, the sums
of an honest run are enough (`sums_at_points`). Without it, the coordinator departs from the
protocol (`query_sites`): it invents sums that make the density q narrow around a point tau of its
choice. Sites see only that q is a density, so they cannot detect it.

What the result means. The attack finds X'X / sigma^2 and X'y / sigma^2 of each site, in any order,
with as many digits as the fixed-point encoding has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import least_squares

from secagg.audits.site_statistics import error_bounds
from secagg.audits.views import AskSites
from secagg.contracts import Body, PublicFacts
from secagg.core.arrays import Array
from secagg.models.fedlin.base import ROUNDS
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.fedlin.posterior.importance_points import quasi_random_points
from secagg.models.numerics.natural_gaussian import Natural, symmetric, triangle

_STEPS = 100  # largest number of steps of a search; one that succeeds takes about 50
SOLVED = 1e-12  # half a sum of squares: 1e-14 by rounding, 1e-6 and more in other minima


@dataclass(frozen=True)
class PointSums:
    """Sums at n points tau: SUM (A_k^-1 + T)^-1, and of that times A_k^-1 c_k, T = diag(tau).

    A_k = X'X / sigma^2, c_k = X'y / sigma^2; tau (n, d), precision (n, d, d), shift (n, d)
    """

    tau: Array
    precision: Array
    shift: Array


class Moments(NamedTuple):
    """A (K, d, d) and c (K, d) of all sites.

    misfit: half the sum of squared differences between the sums
    errors: by site, how far A may be from the truth if the sums have errors with half the sum of
        squares `SOLVED`, to first order, over its largest entry; infinite if other A fit too
    """

    A: Array
    c: Array
    misfit: float
    errors: Array


def sums_at_points(q: Natural, total: Mapping[str, Array]) -> PointSums:
    """Return the sums of an honest run's stage "points"; q is the density that chose the points."""
    d, n = len(q.r) // 2, len(total["level"])
    rows = total["precision"].reshape(n, -1)
    return PointSums(
        np.exp(quasi_random_points(q, n).T),
        np.array([symmetric(row, d) for row in rows]),
        total["shift"].reshape(n, d),
    )


def query_sites(
    method: FedLinHm2, public: PublicFacts, ask: AskSites, sites: int, points: Sequence[Array]
) -> tuple[PointSums, int]:
    """Return sums at points log tau (d,) of the coordinator's choice, and the number of rounds.

    The coordinator invents sums that make q narrow around a point. It raises q's precision less
    than tenfold a round, which the method accepts without damping.
    """
    d, state = len(points[0]), method.initial_state(public)
    while state["status"] != ROUNDS:
        stage, message = _request(method, state)
        state = method.aggregate(state, ask(stage, message), sites)
    precision, narrow = np.diagonal(symmetric(state["Q"], 2 * d)), np.repeat([1e5, 1e10], d)
    densities: list[Natural] = []
    while not np.array_equal(precision, narrow):
        precision = np.minimum(9.9 * precision, narrow)
        densities.append(_density_at(points[0], precision))
    before = len(densities) - 1
    densities += [_density_at(point, narrow) for point in points[1:]]
    factors, totals = Natural(np.zeros(2 * d), np.zeros((2 * d, 2 * d))), list[Natural]()
    for next_q in [*densities, None]:
        stage, message = _request(method, state)
        summed, q = ask(stage, message), Natural(state["r"], symmetric(state["Q"], 2 * d))
        factors = factors + Natural(summed["r"], symmetric(summed["Q"], 2 * d))
        totals.append(factors)
        if next_q is not None:
            change = next_q - q
            invented = {**summed, "r": change.r, "Q": triangle(change.Q)}
            state = method.aggregate(state, invented, sites)
    at_points = totals[before + 1 :]
    slopes = [
        total.r - total.Q @ np.concatenate([np.zeros(d), point])
        for total, point in zip(at_points, points, strict=True)
    ]
    precisions = np.array([total.Q[:d, :d] for total in at_points])
    return PointSums(np.exp(np.array(points)), precisions, np.array(slopes)[:, :d]), len(totals)


def recover_moments(sums: PointSums, sites: int, starts: int) -> Moments:
    """Return A and c that fit the sums, in any order.

    starts: largest number of searches. Each starts at the sum with the smallest tau, divided at
        random among the sites. Sums have fixed-point rounding: the first fit that is exact up to
        rounding is the solution, and other minima are far from that.
    """
    n, d = sums.tau.shape
    upper = np.triu_indices(d)
    entries = len(upper[0])
    diagonal = np.einsum("nii->ni", sums.precision)
    unit = np.sqrt(diagonal[:, :, None] * diagonal[:, None, :])
    means = np.linalg.solve(sums.precision, sums.shift[:, :, None])[:, :, 0]
    size = np.sqrt(diagonal) * np.sqrt(np.abs(np.sum(sums.shift * means, axis=1)))[:, None]

    def moments(unknown: Array) -> tuple[Array, Array, Array]:
        by_site = unknown.reshape(sites, -1)
        L = np.zeros((sites, d, d))
        L[:, upper[1], upper[0]] = by_site[:, :entries]
        L[:, range(d), range(d)] = np.exp(L[:, range(d), range(d)])
        return L, L @ L.transpose(0, 2, 1), by_site[:, entries:]

    def shrunk(A: Array) -> Array:
        N = np.eye(d) + A * sums.tau[:, None, None, :]
        return np.asarray(np.linalg.inv(N), dtype=np.float64)  # (n, K, d, d)

    def misfits(unknown: Array) -> Array:
        _, A, m = moments(unknown)
        precisions = shrunk(A) @ A
        shifts = np.einsum("nkij,kj->ni", precisions, m)
        precision_misfit = ((precisions.sum(axis=1) - sums.precision) / unit)[:, *upper]
        return np.concatenate([precision_misfit.ravel(), ((shifts - sums.shift) / size).ravel()])

    def slopes(unknown: Array) -> Array:
        """With F = (I + A T)^-1, F A has the differential F dA F' (of a symmetric matrix)."""
        L, A, m = moments(unknown)
        F = shrunk(A)
        moved = np.einsum("nkij,ekjl,nkml->nkeim", F, _changes(L), F, optimize=True)
        of_shift = np.concatenate(
            [np.einsum("nkeij,kj->nkei", moved, m), (F @ A).transpose(0, 1, 3, 2)], axis=2
        )
        of_precision = np.zeros((n, sites, entries + d, entries))
        of_precision[:, :, :entries] = (moved / unit[:, None, None])[..., *upper]
        of_shift /= size[:, None, None]
        rows = (of_precision.transpose(0, 3, 1, 2), of_shift.transpose(0, 3, 1, 2))
        return np.concatenate([each.reshape(-1, len(unknown)) for each in rows])

    rng, first = np.random.default_rng(0), int(np.argmax(diagonal.sum(axis=1)))
    best = None
    for _ in range(starts):
        L = np.linalg.cholesky(sums.precision[first])
        L[range(d), range(d)] = np.log(np.diagonal(L))
        start = np.tile(np.concatenate([L[upper[1], upper[0]], means[first]]), (sites, 1))
        share = np.log(rng.dirichlet(np.full(sites, 3.0))) / 2
        start[:, :entries][:, upper[0] == upper[1]] += share[:, None]
        start += 0.3 * rng.standard_normal(start.shape)
        fit = least_squares(
            misfits,
            start.ravel(),
            jac=slopes,
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            x_scale="jac",
            max_nfev=_STEPS,
        )
        best = fit if best is None or fit.cost < best.cost else best
        if best.cost < SOLVED:
            break
    assert best is not None
    L, A, m = moments(best.x)
    errors = _errors(L, slopes(best.x)) / np.max(np.abs(A), axis=(1, 2))
    return Moments(A, np.einsum("kij,kj->ki", A, m), float(best.cost), errors)


def _changes(L: Array) -> Array:
    """Return the derivatives of A = L L' (entries, K, d, d) with respect to the entries of L.

    The unknowns are the logarithms of the entries on the diagonal, and the other entries.
    """
    sites, d, _ = L.shape
    upper = np.triu_indices(d)
    entries = len(upper[0])
    dL = np.zeros((entries, sites, d, d))
    dL[range(entries), :, upper[1], upper[0]] = np.where(
        upper[0] == upper[1], L[:, upper[0], upper[0]], 1.0
    ).T
    return np.asarray(dL @ L.transpose(0, 2, 1) + L @ dL.transpose(0, 1, 3, 2))


def _errors(L: Array, slopes: Array) -> Array:
    """Return the largest error of an entry of each site's A (`Moments.errors`), not relative."""
    changes = _changes(L)
    entries, sites, d, _ = changes.shape
    of_A = np.zeros((sites, entries + d, sites, d * d))
    for k in range(sites):
        of_A[k, :entries, k] = changes[:, k].reshape(entries, d * d)
    by_unknown = of_A.reshape(slopes.shape[1], -1)
    bounds = error_bounds(slopes, float(np.sqrt(2 * SOLVED)), by_unknown)
    return np.asarray(np.max(bounds.reshape(sites, -1), axis=1))


def _request(method: FedLinHm2, state: Mapping[str, Any]) -> tuple[str, Body]:
    request = method.next_request(dict(state))
    assert request is not None
    return request


def _density_at(log_tau: Array, precision: Array) -> Natural:
    """Return a normal density of phi with mean (0, log tau) and without covariances."""
    return Natural(precision * np.concatenate([0 * log_tau, log_tau]), np.diag(precision))
