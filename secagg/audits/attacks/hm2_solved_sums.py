"""Recover every site's X'X and X'y from the sums of FedLin's HM2, prior "normal".

Yue, Al Kontar and Estrada Gomez (2022), example 4.1. Given the variances tau between sites, what a
site's records say of the common mean is a normal density, whose precision and shift are known
functions of its X'X and X'y: equation (1) of `secagg.models.fedlin.posterior.importance_points`.
Sums of these at enough points tau are solved by nonlinear least squares.

The attacker is the coordinator, who knows all sums over sites. With the setting `points`, it only
has to look: the points' sums of an honest run are enough (`sums_at_points`). Without, it departs
from the protocol (`query_sites`): it invents sums that leave the density q close about a point tau
of its choice. Sites see only that q is a density, so they cannot detect it.

What the result means. The attack finds X'X / sigma^2 and X'y / sigma^2 of each site, in any order,
with as many digits as the fixed point carries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from secagg.contracts import PublicFacts, Update
from secagg.core.arrays import Array
from secagg.models.fedlin.base import ROUNDS
from secagg.models.fedlin.hm2 import FedLinHm2
from secagg.models.fedlin.posterior.importance_points import quasi_random_points
from secagg.models.numerics.natural_gaussian import Natural, symmetric, triangle

AskSites = Callable[[str, Mapping[str, Any]], Update]
"""Sends a message of a stage to all sites and returns the sum of their answers."""
_ROUNDING = 1e-12  # half a sum of squares: 1e-14 by rounding, 1e-6 and more in other minima


@dataclass(frozen=True)
class PointSums:
    """Sums at n points tau: SUM (A_k^-1 + T)^-1, and of that times A_k^-1 c_k, T = diag(tau).

    A_k = X'X / sigma^2, c_k = X'y / sigma^2; tau (n, d), precision (n, d, d), shift (n, d)
    """

    tau: Array
    precision: Array
    shift: Array


def sums_at_points(q: Natural, total: Update) -> PointSums:
    """Read the sum of an honest run's stage "points", for which q chose the points."""
    d, many = len(q.r) // 2, len(total["level"])
    rows = total["precision"].reshape(many, -1)
    return PointSums(
        np.exp(quasi_random_points(q, many).T),
        np.array([symmetric(row, d) for row in rows]),
        total["shift"].reshape(many, d),
    )


def query_sites(
    method: FedLinHm2, public: PublicFacts, ask: AskSites, sites: int, points: Sequence[Array]
) -> tuple[PointSums, int]:
    """Return sums at points log tau (d,) of the coordinator's choice, and how many rounds it took.

    The coordinator invents sums that leave q close about a point. It raises q's precision less than
    tenfold a round, which the method accepts without damping.
    """
    d, state = len(points[0]), method.initial_state(public)
    while state["status"] != ROUNDS:
        stage, message = _request(method, state)
        state = method.aggregate(state, ask(stage, message), sites)
    precision, close = np.diagonal(symmetric(state["Q"], 2 * d)), np.repeat([1e5, 1e10], d)
    chosen: list[Natural] = []
    while not np.array_equal(precision, close):
        precision = np.minimum(9.9 * precision, close)
        chosen.append(_density_about(points[0], precision))
    before = len(chosen) - 1
    chosen += [_density_about(point, close) for point in points[1:]]
    factors, totals = Natural(np.zeros(2 * d), np.zeros((2 * d, 2 * d))), list[Natural]()
    for following in [*chosen, None]:
        stage, message = _request(method, state)
        summed, q = ask(stage, message), Natural(state["r"], symmetric(state["Q"], 2 * d))
        factors = factors + Natural(summed["r"], symmetric(summed["Q"], 2 * d))
        totals.append(factors)
        if following is not None:
            change = following - q
            invented = {**summed, "r": change.r, "Q": triangle(change.Q)}
            state = method.aggregate(state, invented, sites)
    at = np.array(points)
    last = totals[before + 1 :]
    slopes = [
        each.r - each.Q @ np.concatenate([np.zeros(d), point])
        for each, point in zip(last, points, strict=True)
    ]
    sums = PointSums(
        np.exp(at), np.array([each.Q[:d, :d] for each in last]), np.array(slopes)[:, :d]
    )
    return sums, len(totals)


def recover_moments(sums: PointSums, sites: int, starts: int) -> tuple[Array, Array]:
    """Return A (K, d, d) and c (K, d) that fit the sums, in the order of A's traces.

    At most so many searches. Each starts at the sum where tau is smallest, divided at random among
    the sites. Sums are in fixed point: the first that fits to rounding is the solution, and other
    minima are far from that.
    """
    n, d = sums.tau.shape
    upper = np.triu_indices(d)
    many = len(upper[0])
    diagonal = np.einsum("nii->ni", sums.precision)
    unit = np.sqrt(diagonal[:, :, None] * diagonal[:, None, :])
    least = np.linalg.solve(sums.precision, sums.shift[:, :, None])[:, :, 0]
    size = np.sqrt(diagonal) * np.sqrt(np.abs(np.sum(sums.shift * least, axis=1)))[:, None]

    def moments(unknown: Array) -> tuple[Array, Array]:
        each = unknown.reshape(sites, -1)
        L = np.zeros((sites, d, d))
        L[:, upper[1], upper[0]] = each[:, :many]
        L[:, range(d), range(d)] = np.exp(L[:, range(d), range(d)])
        A = L @ L.transpose(0, 2, 1)
        return A, np.einsum("kij,kj->ki", A, each[:, many:])

    def misfits(unknown: Array) -> Array:
        A, c = moments(unknown)
        both = np.concatenate([A, c[:, :, None]], axis=2)
        N = np.eye(d) + A * sums.tau[:, None, None, :]
        total = np.linalg.solve(N, np.broadcast_to(both, (n, *both.shape))).sum(axis=1)
        wrong = ((total[:, :, :d] - sums.precision) / unit)[:, *upper]
        return np.concatenate([wrong.ravel(), ((total[:, :, d] - sums.shift) / size).ravel()])

    rng, first = np.random.default_rng(0), int(np.argmax(diagonal.sum(axis=1)))
    best = None
    for _ in range(starts):
        L = np.linalg.cholesky(sums.precision[first])
        L[range(d), range(d)] = np.log(np.diagonal(L))
        start = np.tile(np.concatenate([L[upper[1], upper[0]], least[first]]), (sites, 1))
        share = np.log(rng.dirichlet(np.full(sites, 3.0))) / 2
        start[:, :many][:, upper[0] == upper[1]] += share[:, None]
        start += 0.3 * rng.standard_normal(start.shape)
        found = least_squares(
            misfits, start.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15, x_scale="jac", max_nfev=300
        )
        best = found if best is None or found.cost < best.cost else best
        if best.cost < _ROUNDING:
            break
    assert best is not None
    A, c = moments(best.x)
    order = np.argsort(np.trace(A, axis1=1, axis2=2))
    return A[order], c[order]


def _request(method: FedLinHm2, state: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    request = method.next_request(dict(state))
    assert request is not None
    return request


def _density_about(log_tau: Array, precision: Array) -> Natural:
    """Return a normal density of phi about mu = 0 and log tau, without covariances."""
    return Natural(precision * np.concatenate([0 * log_tau, log_tau]), np.diag(precision))
