"""Sums over sites solved for single sites', by a coordinator of FedLin: what tests of leaks use.

A coordinator sees the sums and knows what it sent. HM1's are taken apart by linear algebra, HM2's
by least squares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from support.fedlin import Tables, bounds, fedlin_job

from secagg.contracts import State, Update
from secagg.core.randomness import expanded
from secagg.core.ring import total
from secagg.jobs.job import parse_job
from secagg.models.numerics.natural_gaussian import symmetric
from secagg.runtime.fixed_point import decode, encode, plan_sum
from secagg.runtime.parties import rows_of
from secagg.runtime.planned_job import plan_job

Array = NDArray[np.float64]
Asked = tuple[Mapping[str, Any], Update]
"""A message, and the sum that answers it."""
_ROUNDING = 1e-12  # half a sum of squares: 1e-14 by rounding, 1e-6 and more in other minima


class Sites:
    """Sites, of which a coordinator gets sums only."""

    def __init__(self, method: Mapping[str, Any], tables: Tables) -> None:
        planned = plan_job(parse_job(fedlin_job(method, bounds(tables))), tables)
        self.method: Any = planned.method
        self.public = planned.public
        self.rows = [rows_of(planned, name) for name in tables]
        self.randoms = [expanded(bytes([k + 1]) * 32) for k in range(len(tables))]
        self.memories: list[State] = [{} for _ in tables]
        stages = self.method.stages(self.public)
        self.plans = {stage.name: plan_sum(stage.spec, len(tables)) for stage in stages}

    def ask(self, stage: str, message: Mapping[str, Any]) -> Update:
        """Return the sum over sites of what they answer."""
        answers = [
            self.method.contribute(stage, rows, message, memory, self.public, random)
            for rows, memory, random in zip(self.rows, self.memories, self.randoms, strict=True)
        ]
        self.memories = [memory for _, memory in answers]
        plan = self.plans[stage]
        vectors = [encode(plan, update) for update, _ in answers]
        summed, clipped = decode(plan, total(vectors, plan.length, plan.ring_bits))
        assert not clipped.any()
        return summed

    def truth(self, name: str) -> Array:
        """Return what the sites keep of their records by that name, one row a site."""
        return np.array([memory["site"][name] for memory in self.memories])


# --- HM1 ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Separated:
    """HM1's sites from round `first` on, each up to its sign and in any order.

    apart: by how much they were told apart; a (K,); theta (rounds, K, d), as sent; v (rounds, K, m)
    """

    first: int
    apart: float
    a: Array
    theta: Array
    v: Array


def separations(rounds: Sequence[Asked], alpha: float, sites: int) -> Iterator[Separated]:
    """Take HM1's sums apart by those of any two rounds: (5) of
    `secagg.models.fedlin.site_covariance`.

    The first of two has a round before it and the second one after it.
    """
    d, m = rounds[0][1]["S"].shape
    for t in range(1, len(rounds) - 2):
        U, c = rounds[t + 1][0]["U"], (1 - alpha) ** t
        one = U @ symmetric(rounds[t][1]["G"], m) @ U.T
        other = symmetric(rounds[t + 1][1]["G"], m)[: m - d, : m - d] / (1 - alpha)
        size, vectors = np.linalg.eigh(one)
        if size[-sites] <= 1e-15 * size[-1]:
            continue  # histories are not yet independent
        root = vectors[:, -sites:] / np.sqrt(size[-sites:])
        ratio, turned = np.linalg.eigh(root.T @ other @ root)
        with np.errstate(all="ignore"):  # where rounding leaves nothing
            a = c * (1 - ratio * (1 - alpha)) / (ratio - 1)
        if np.all(np.isfinite(a) & (a > 0)):
            apart = float(np.min(np.diff(ratio)) * np.sqrt(size[-sites] / size[-1]))
            yield Separated(t + 1, apart, a, *_sites(rounds, alpha, t, root @ turned, a))


def _sites(
    rounds: Sequence[Asked], alpha: float, t: int, X: Array, a: Array
) -> tuple[Array, Array]:
    """Return theta and v from round t + 1 on; X (m - d, K) is orthogonal to all sites but one."""
    d, m = rounds[0][1]["S"].shape
    X, mine = np.vstack([X, np.zeros((d, len(a)))]), np.sqrt((1 - alpha) * ((1 - alpha) ** t + a))
    theta, v = [], []
    for s in range(t + 1, len(rounds)):
        message, sums = rounds[s]
        if s > t + 1:
            X = np.vstack([message["U"] @ X / np.sqrt(1 - alpha), np.zeros((d, len(a)))])
        weight = ((1 - alpha) ** s + a) / mine  # b_k / x_k'v_k
        theta.append((sums["S"] @ X * weight).T)
        v.append((symmetric(sums["G"], m) @ X * weight).T)
    return np.array(theta), np.array(v)


def shrunk_again(found: Separated, s: int, M: Array, alpha: float) -> Array:
    """Return the coefficients (K, d) after the shrinkage that followed round s."""
    theta, v = found.theta[s - found.first], found.v[s - found.first]
    r = (found.a / ((1 - alpha) ** s + found.a))[:, None]
    moved: Array = theta - r * (theta - v @ M.T)
    return moved


# --- HM2, prior "normal" --------------------------------------------------------------------------


@dataclass(frozen=True)
class Quadratics:
    """Sums at n points tau: SUM (A_k^-1 + T)^-1, and of that times A_k^-1 c_k, T = diag(tau).

    A_k = X'X / sigma^2, c_k = X'y / sigma^2; tau (n, d), precision (n, d, d), shift (n, d)
    """

    tau: Array
    precision: Array
    shift: Array

    def solved(self, sites: int, starts: int) -> tuple[Array, Array]:
        """Return A (K, d, d) and c (K, d) that fit, in the order of A's traces.

        Starts, at most so many: the sum where tau is smallest, shared out at random. Sums are in
        fixed point: the first that fits to rounding is it, and other minima are far from that.
        """
        n, d = self.tau.shape
        upper = np.triu_indices(d)
        many = len(upper[0])
        diagonal = np.einsum("nii->ni", self.precision)
        unit = np.sqrt(diagonal[:, :, None] * diagonal[:, None, :])
        least = np.linalg.solve(self.precision, self.shift[:, :, None])[:, :, 0]
        size = np.sqrt(diagonal) * np.sqrt(np.abs(np.sum(self.shift * least, axis=1)))[:, None]

        def read(unknown: Array) -> tuple[Array, Array]:
            each = unknown.reshape(sites, -1)
            L = np.zeros((sites, d, d))
            L[:, upper[1], upper[0]] = each[:, :many]
            L[:, range(d), range(d)] = np.exp(L[:, range(d), range(d)])
            A = L @ L.transpose(0, 2, 1)
            return A, np.einsum("kij,kj->ki", A, each[:, many:])

        def off(unknown: Array) -> Array:
            A, c = read(unknown)
            both = np.concatenate([A, c[:, :, None]], axis=2)
            N = np.eye(d) + A * self.tau[:, None, None, :]
            told = np.linalg.solve(N, np.broadcast_to(both, (n, *both.shape))).sum(axis=1)
            wrong = ((told[:, :, :d] - self.precision) / unit)[:, *upper]
            return np.concatenate([wrong.ravel(), ((told[:, :, d] - self.shift) / size).ravel()])

        rng, first = np.random.default_rng(0), int(np.argmax(diagonal.sum(axis=1)))
        best = None
        for _ in range(starts):
            L = np.linalg.cholesky(self.precision[first])
            L[range(d), range(d)] = np.log(np.diagonal(L))
            start = np.tile(np.concatenate([L[upper[1], upper[0]], least[first]]), (sites, 1))
            share = np.log(rng.dirichlet(np.full(sites, 3.0))) / 2
            start[:, :many][:, upper[0] == upper[1]] += share[:, None]
            start += 0.3 * rng.standard_normal(start.shape)
            found = least_squares(
                off, start.ravel(), xtol=1e-15, ftol=1e-15, gtol=1e-15, x_scale="jac", max_nfev=300
            )
            best = found if best is None or found.cost < best.cost else best
            if best.cost < _ROUNDING:
                break
        assert best is not None
        A, c = read(best.x)
        order = np.argsort(np.trace(A, axis1=1, axis2=2))
        return A[order], c[order]
