"""How well the sums of a sampler determine the sites' statistics, at least.

Let x be the statistics of all sites, near the truth, with variance 1 before the run. The
coordinator's messages are held at those of the run. For any vector T of functions of the sums, with
mean mu(x), J = d mu / d x and covariance matrix S, and for any weights G, the linear estimate G (T
- mu) of x has the mean squared error

    V = (I - G J) (I - G J)' + G S G'                                                            (1)

and G = (I + F)^-1 J' S^-1 with F = J' S^-1 J makes it smallest, V = (I + F)^-1. F is a lower bound
of the Fisher information of the sums, so 1 - tr(V) / q is at most the share that they identify.

T has the means of each number of the sums over batches of `_BATCH` rounds, and of (P + I)^-1 r,
nearly the round's pooled least squares; for step `paper`, of log(1/l), d and d^2 instead, because
1/l has no variance. Chains and regressions draw independently, so S has a block for each. Batches
are taken as independent, an approximation. Then F adds over blocks and batches. For more rounds
than are simulated it is taken as proportional to their number.

mu and S are found by simulation: M replicates of each site's draws. J is computed with the same
random numbers before and after a change of the statistics (`secagg.audits.site_statistics`, central
differences). A Gibbs draw is a smooth function of them. Error in J would look like information. So
G is computed from some replicates, and (1) from others: there the mean over pairs m != m' of (I - G
J_m) (I - G J_m')' has no bias, for any G. The share is then, in the mean, not above that of the
best G. For G, the variance of the error of J is added to S.

Round 0, with the columns' squares, has no random numbers: its J is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from secagg.audits.attacks.samplers.gibbs_view import sparse_method
from secagg.audits.site_statistics import changed, directions, flat, resolutions
from secagg.audits.views import View
from secagg.contracts import SiteRecords, State, Update
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.base import DRAWS, RECORDS
from secagg.models.sparse_bayes.linear_rounds import SparseLinear
from secagg.models.sparse_bayes.sums import full

_BATCH = 10
_STEP = 1e-3
_KNOWN = 1e-5  # no number counts as known better than this, relative to its standard deviation
_MOST_CONTRIBUTIONS = 60_000  # some 10 seconds
_FEWEST_REPLICATES, _FOLDS = 24, 6


@dataclass(frozen=True)
class Simulated:
    """Statistics T of the sums, (M, batches, blocks, dim), and J, (..., statistics of all sites).

    exact: J of round 0 over its resolution; blocks: by site, its columns of J
    rounds: of the run; simulated: of them, those that were simulated
    """

    T: Array
    J: Array
    exact: Array
    blocks: list[slice]
    rounds: int
    simulated: int

    def shares(self, rounds: int) -> Array:
        """Return the identified share of each site after so many rounds, (folds, sites)."""
        M, batches, blocks = self.T.shape[:3]
        per_batch = self.simulated / batches
        used = max(1, min(batches, int(rounds / per_batch)))
        repeat = rounds / (used * per_batch)
        one, known = np.eye(self.J.shape[-1]), self.exact.T @ self.exact
        found = []
        for other in np.array_split(np.arange(M), _FOLDS):
            own = np.setdiff1d(np.arange(M), other)
            F, noise = np.zeros_like(one), np.zeros_like(one)
            C = np.zeros((len(other), *one.shape))
            for at in np.ndindex(used, blocks):
                T, J = self.T[:, *at], self.J[:, *at]
                f, c, n = _weighed(T[own], J[own], T[other], J[other], repeat)
                F, C, noise = F + f, C + c, noise + n
            V = np.linalg.inv(one + repeat * F + known)
            left = one - V @ (repeat * C + known)
            both, m = left.sum(axis=0), len(other)
            pairs = (both @ both.T - np.einsum("mij,mkj->ik", left, left)) / (m * (m - 1))
            error = np.diag(pairs + V @ (repeat * noise + known) @ V)
            found.append([1 - np.mean(error[b]) if b.stop > b.start else 0.0 for b in self.blocks])
        return np.array(found)


def affordable(view: View) -> bool:
    """Return whether at least one batch can be simulated."""
    return _plan(view)[1] >= _BATCH


def _plan(view: View) -> tuple[int, int]:
    """Return M and the number of rounds to simulate."""
    method, public = sparse_method(view), view.planned.public
    assert method is not None
    q, p = method.shape(public)[1], len(method.columns(public))
    dim = 3 * q if method.step == "paper" else q * (q + 1) // 2 + 3 * q
    M = max(_FEWEST_REPLICATES, 3 * dim)
    each = M * (1 + p * (p + 1)) * len(view.sites)
    rounds = sum(seen.stage == DRAWS for seen in view.rounds)
    most = _MOST_CONTRIBUTIONS // each // _BATCH * _BATCH
    return M, rounds if rounds <= most else most


def simulate(view: View, sites: Mapping[str, SiteRecords]) -> Simulated:
    """Simulate the contributions of the sites of a view, at the true records and near them."""
    method = sparse_method(view)
    assert method is not None
    M, simulated = _plan(view)
    used = [int(j) for j in method.columns(view.planned.public)]
    variants, blocks, at = list[list[SiteRecords]](), list[slice](), 0
    for site in view.sites:
        rows = sites[site]
        spread = [each for each in directions(rows, used) if each[1].any()]
        ahead, behind = ([changed(rows, used, d, h) for d in spread] for h in (_STEP, -_STEP))
        variants.append([rows, *ahead, *behind])
        blocks.append(slice(at, at + len(spread)))
        at += len(spread)
    draws = [seen for seen in view.rounds if seen.stage == DRAWS]
    # The site's own posterior takes time and is not sent.
    method = replace(method, warmup=method.rounds)
    memories: list[list[State]] = [[{}] * (M * len(each)) for each in variants]
    sums, slopes = list[Array](), list[Array]()
    for r, seen in enumerate(draws[:simulated]):
        sent = []
        for k, each in enumerate(variants):
            seeds = [np.random.default_rng([k, r, m]).bytes(16) for m in range(M)]
            random = [lambda _, seed=seed: seed for seed in seeds for _ in each]
            answers = method.contribute_batched(
                DRAWS, each * M, seen.message, memories[k], view.planned.public, random
            )
            memories[k] = [memory for _, memory in answers]
            sent.append(_stacked([update for update, _ in answers], M))
        total = {name: np.sum([one[name][:, 0] for one in sent], axis=0) for name in sent[0]}
        sums.append(_statistics(total))
        slopes.append(np.concatenate([_slopes(total, one) for one in sent], axis=-1))
    cut = range(0, simulated, min(_BATCH, simulated))
    T, J = (np.stack([np.mean(x[i : i + _BATCH], axis=0) for i in cut], 1) for x in (sums, slopes))
    exact = _exact(view, method, variants)
    return Simulated(T, J, exact, blocks, len(draws), simulated)


def _stacked(updates: list[Update], M: int) -> dict[str, Array]:
    """Return each field as (M, variants, chains x regressions, numbers)."""
    found = {}
    for name in updates[0]:
        values = np.array([update[name] for update in updates])
        found[name] = values.reshape(M, -1, values.shape[1] * values.shape[2], values.shape[3])
    return found


def _statistics(total: Mapping[str, Array]) -> Array:
    """Return T of a round's sums; leading axes are kept."""
    if "one" in total:
        one = np.maximum(total["one"], 1e-12)
        return np.concatenate([np.log(one), total["d"] / one, total["dd"]], axis=-1)
    P = full(total["P"], total["r"].shape[-1])
    b = np.linalg.solve(P + np.eye(P.shape[-1]), total["r"][..., None])[..., 0]
    numbers = np.concatenate([total["P"], total["r"], total["c"], b], axis=-1)
    return np.asarray(numbers, dtype=np.float64)


def _slopes(total: Mapping[str, Array], sent: Mapping[str, Array]) -> Array:
    """Return the derivatives of T by the statistics of one site, on a last axis.

    sent: the contributions of the site at the truth, after each change ahead, and behind
    """
    changes = {name: total[name][:, None] + one - one[:, :1] for name, one in sent.items()}
    T = _statistics(changes)[:, 1:]
    count = T.shape[1] // 2
    return np.moveaxis((T[:, :count] - T[:, count:]) / (2 * _STEP), 1, -1)


def _weighed(
    T: Array, J: Array, T_other: Array, J_other: Array, repeat: float
) -> tuple[Array, Array, Array]:
    """Return F, G J and G S G' of one block, without the factor (I + F)^-1 of G.

    T (M, dim) and J (M, dim, statistics) determine the weights; G J is by other replicate
    """
    M, dim = T.shape
    scale = T.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    J, J_other = J / scale[:, None], J_other / scale[:, None]
    total = J.sum(axis=0)
    away = J - total / M
    S = np.cov((T / scale).T).reshape(dim, dim) + _KNOWN**2 * np.eye(dim)
    S += repeat * np.einsum("mds,mes->de", away, away) / (M * (M - 1))
    G = total.T @ np.linalg.inv(S) / M
    F = G @ total / M
    z = G @ ((T_other - T_other.mean(axis=0)) / scale).T
    return F, G @ J_other, z @ z.T / (len(T_other) - 1) + _KNOWN**2 * G @ G.T


def _exact(view: View, method: SparseLinear, variants: list[list[SiteRecords]]) -> Array:
    """Return J of round 0, over the resolution of its sums and the error of differences."""
    first = next(seen for seen in view.rounds if seen.stage == RECORDS)
    columns = []
    for each in variants:
        y = np.array([
            flat(method.contribute(RECORDS, rows, first.message, {}, view.planned.public, bytes)[0])
            for rows in each
        ])  # fmt: skip
        count = (len(each) - 1) // 2
        columns.append((y[1 : 1 + count] - y[1 + count :]).T / (2 * _STEP))
    J = np.hstack(columns)
    resolution = np.hypot(
        resolutions(view, RECORDS, len(view.sites)), _KNOWN * np.max(np.abs(J), initial=0.0)
    )
    return np.asarray(J / resolution[:, None])
