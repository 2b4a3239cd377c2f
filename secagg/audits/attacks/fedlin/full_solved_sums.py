"""Recover every site's X'X and X'y from the sums of `fedlin_full`.

`secagg.models.fedlin.full.site_sums` has the sums. With A_k = X'X / sigma^2, least squares b_k, and
A_kt = (I + A_k Sigma_t)^-1 A_k, a round t at (mu_t, G_t, Sigma_t) has the sums over sites of A_kt,
A_kt b_k and A_kt [(b_k - mu_t)(b_k - mu_t)' + G_t] A_kt. The agreement sums have those of A_k, A_k
b_k, b_k' A_k b_k, and for each coefficient j of w_kj = 1 / (A_k^-1)_jj, w_kj b_kj and w_kj b_kj^2.
Nonlinear least squares solves all equations together for the K d (d + 3) / 2 unknowns.

What the result means. The attack finds A_k and A_k b_k of each site, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from secagg.audits.attacks.fedlin.hm2_solved_sums import SOLVED, Moments
from secagg.audits.site_statistics import error_bounds
from secagg.audits.views import SeenRound
from secagg.contracts import Update
from secagg.core.arrays import Array
from secagg.models.numerics.natural_gaussian import symmetric, triangle

_STEPS, _STARTS = 150, 40


class FullEquations:
    """The equations of rounds and agreement sums; noise: the error variance, as sent."""

    def __init__(self, rounds: Sequence[SeenRound], agreed: Update, noise: float) -> None:
        d = len(rounds[0].total["slope"])
        self.d, self.noise = d, noise
        self.mu = np.array([each.message["mu"] for each in rounds])
        self.spread = np.array([symmetric(each.message["spread"], d) for each in rounds])
        self.Sigma = np.array([symmetric(each.message["Sigma"], d) for each in rounds])
        self.between = symmetric(rounds[-1].message["Sigma"], d)
        self.pooled = symmetric(agreed["gram"], d) / noise
        self.common = np.linalg.solve(self.pooled, agreed["cross"] / noise)
        seen = [
            np.concatenate([each.total[name] for name in ("precision", "slope", "scatter")])
            for each in rounds
        ]
        agreement = ("gram", "cross", "explained", "weights", "weighted", "weighted_squares")
        parts = [agreed[name] / noise for name in agreement]
        self.seen = np.concatenate([*seen, *parts])
        blocks = [each.total[name] for each in rounds for name in ("precision", "slope", "scatter")]
        self.unit = np.concatenate(
            [
                np.full(len(block), max(float(np.max(np.abs(block))), 1e-9))
                for block in blocks + parts
            ]
        )

    def sums(self, A: Array, b: Array) -> Array:
        """Return the sums of sites' A (K, d, d) and b (K, d)."""
        found = []
        rows, columns = np.triu_indices(self.d)
        for mu, G, Sigma in zip(self.mu, self.spread, self.Sigma, strict=True):
            At = np.linalg.solve(np.eye(self.d) + A @ Sigma, A)
            off = (At @ (b - mu)[:, :, None])[:, :, 0]
            scatter = off.T @ off + np.sum(At @ G @ np.swapaxes(At, 1, 2), axis=0)
            slope = np.sum((At @ b[:, :, None])[:, :, 0], axis=0)
            found += [At.sum(axis=0)[rows, columns], slope, scatter[rows, columns]]
        cross = (A @ b[:, :, None])[:, :, 0]
        w = 1 / np.diagonal(np.linalg.inv(A), axis1=1, axis2=2)
        found += [triangle(A.sum(axis=0)), cross.sum(axis=0), np.array([np.sum(cross * b)])]
        found += [w.sum(axis=0), (w * b).sum(axis=0), (w * b**2).sum(axis=0)]
        return np.concatenate(found)

    def solve(self, sites: int) -> Moments:
        """Return A and A b that fit best, in any order; see `Moments`."""
        rng, best = np.random.default_rng(0), None

        def misfits(unknown: Array) -> Array:
            off = self.sums(*self._sites(unknown, sites)) - self.seen
            return np.asarray(off / self.unit, dtype=np.float64)

        for _ in range(_STARTS):
            fit = least_squares(
                misfits, self._start(sites, rng),
                jac="3-point", x_scale="jac", xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=_STEPS,
            )  # fmt: skip
            best = fit if best is None or fit.cost < best.cost else best
            if best.cost < SOLVED:
                break
        assert best is not None
        A, b = self._sites(best.x, sites)
        errors = self._errors(best.x, np.asarray(best.jac, dtype=np.float64), sites)
        relative = errors / np.max(np.abs(A), axis=(1, 2))
        return Moments(A, (A @ b[:, :, None])[:, :, 0], float(best.cost), relative)

    def _start(self, sites: int, rng: np.random.Generator) -> Array:
        """Return X'X divided at random among the sites, and coefficients about the common ones."""
        start = []
        spread = np.linalg.cholesky(self.between + sites * np.linalg.inv(self.pooled))
        for share in rng.dirichlet(np.full(sites, 3.0)):
            L = np.linalg.cholesky(share * self.pooled)
            L[range(self.d), range(self.d)] = np.log(np.diagonal(L))
            at = L[np.tril_indices(self.d)] + 0.2 * rng.standard_normal(
                len(np.tril_indices(self.d)[0])
            )
            start.append(np.concatenate([at, self.common + spread @ rng.standard_normal(self.d)]))
        return np.concatenate(start)

    def _sites(self, unknown: Array, sites: int) -> tuple[Array, Array]:
        by_site, entries = unknown.reshape(sites, -1), self.d * (self.d + 1) // 2
        L = np.zeros((sites, self.d, self.d))
        L[:, *np.tril_indices(self.d)] = by_site[:, :entries]
        diagonal = range(self.d)
        L[:, diagonal, diagonal] = np.exp(np.clip(L[:, diagonal, diagonal], -50, 50))
        return L @ L.transpose(0, 2, 1), by_site[:, entries:]

    def _errors(self, unknown: Array, slopes: Array, sites: int) -> Array:
        """Return the largest error of an entry of each site's A, to first order."""
        step = 1e-6
        moved = [
            (self._sites(unknown + e, sites)[0] - self._sites(unknown - e, sites)[0]) / (2 * step)
            for e in step * np.eye(len(unknown))
        ]
        by_unknown = np.array(moved).reshape(len(unknown), -1)
        bounds = error_bounds(slopes, float(np.sqrt(2 * SOLVED)), by_unknown)
        return np.asarray(np.max(bounds.reshape(sites, -1), axis=1))
