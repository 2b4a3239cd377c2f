"""Columns that a site lacks, as missing data: draws of their values in the sweeps of its graph.

Kidd, Wang, Xu and Ni (PSB 2023), section 2.4: "some variables may not be measured in certain sites
[...] one can impute these missing variables under the missing at random assumption". They give no
algorithm. Here a site draws all values of the columns L that it lacks, in each sweep, given its
graph, constants and scales (data augmentation: Tanner and Wong 1987). Given the values, all other
steps are those of a site with all columns (`secagg.models.sparse_bayes.laplace_graph`), so the
draws are from the posterior given the columns that the site has; docs/math/laplace-graph.md argues
why, and why a lacking column's constant does no harm.

Values. With Laplace errors, value i of column h has the log density

    -SUM_j beta_j |A_jh| |y - r_ij| / b_j,   r_ij = y_ih - e_ij / A_jh                           (1)

which is linear between the r_ij of its record: it is drawn by two inversions, of the piece and of
the place in it. With normal errors only the scatter S = F F' is drawn. With Omega = A' diag(beta_j
/ s_j) A, nu = n - 1 and F_O the columns that the site has,

    F_L = (C F_O + Z, R),  C = -Omega_LL^-1 Omega_LO,  R R' ~ Wishart(nu - |O|, Omega_LL^-1)     (2)

where the columns of Z are N(0, Omega_LL^-1).

Scales and effects. Given n values, b_h and the effects on h hardly move, but nothing is known about
them beyond the prior and what the columns affected by h say. So they also move with the errors, and
not the values, of h held (interweaving: Yu and Meng 2011, "To center or not to center"):

    b_h -> g b_h,  e_h -> g e_h:    the values change by (g - 1) e_h                             (3)
    theta_hj -> theta_hj + d:       the values change by d Y_j                                   (4)

Both are Metropolis steps with symmetric proposals of log g and d. Their density is the prior of b_h
or theta_hj times the likelihood of the errors of all other columns and |det A|^(beta nu). The
errors e_h / b_h have a law without parameters.

In copies of a chain in which the records count less, the rows of L keep the power 1
(`ErrorLaw.full`): values that count less would be values of nothing, and have no proper law. With
several columns of L that act on each other in a cycle, this is not enough (the law of the values
has the determinant of A_LL to the power n), and the job is refused.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import PublicFacts
from secagg.core.arrays import Array
from secagg.errors import JobError
from secagg.models.numerics.gaussian_draws import clip_variance
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw, is_stable

Indices = NDArray[np.int64]

_SCALES = np.array([0.1, 0.3, 1.0, 3.0])  # standard deviations of log g


def first_values(shape: tuple[int, int, int]) -> Array:
    """Return values (chains, columns, n) before the first sweep: centred, of variance about 1."""
    drawn = np.random.default_rng(0).standard_normal(shape)  # they protect nobody
    return np.asarray(drawn - drawn.mean(axis=-1, keepdims=True)) if shape[-1] else drawn


def check_lacking(
    public: PublicFacts,
    columns: Indices,
    allowed: NDArray[np.bool_],
    copies: int,
    scale: str,
) -> None:
    """Raise `JobError` if a job asks for what cannot be drawn for columns that sites lack.

    columns: the variables of the graph; allowed: which effects are possible, (p, p); copies: of
        each chain
    """
    names = [public.variables[i].column for i in columns]
    if not any(name in public.partial for name in names):
        return
    if public.site_moments:
        what = f"the sites must have all of {', '.join(n for n in names if n in public.partial)}"
        advice = "Leave them out of method.variables, or leave out [privacy]."
        raise JobError("method.variables", f"under noise once at the site, {what}", advice)
    if scale != "pooled":
        what = "must be 'pooled', because a site has no deviation of a column that it lacks"
        raise JobError("method.scale", what, "Leave it out.")
    for site in public.sites if copies > 1 else ():
        without = public.lacked_by(site)
        lacked = [i for i, name in enumerate(names) if name in without]
        reached = np.linalg.matrix_power(allowed[np.ix_(lacked, lacked)].astype(float), len(lacked))
        if lacked and reached.any():  # a path with as many arrows as columns has a cycle
            shown = ", ".join(names[i] for i in lacked)
            what = f"must be 1, because site {site!r} lacks {shown}, which may act on each other"
            raise JobError("method.temperatures", what, "Set it to 1, or set tiers.")


@dataclass(frozen=True)
class Lacking:
    """The steps of a sweep for the columns that a site lacks.

    columns: their positions; allowed: whether theta_jh may differ from 0, (p, p)
    """

    columns: Indices
    allowed: NDArray[np.bool_]
    law: ErrorLaw
    prior: NoisePrior
    rng: np.random.Generator

    def redraw(
        self, Y: Array, graph: Array, errors: Array, b: Array, mean: Array, square: Array
    ) -> None:
        """Draw (1) or (2), then (3) and (4); all but mean and square are changed in place.

        Y, errors: (chains, p, n); graph: (chains, p, p); b: (chains, p)
        mean, square: mean and squared scale of the entries' Cauchy prior, (chains, p, p)
        """
        if not self.law.records:
            return
        if self.law.degree == 2:
            draw_scatter(Y, graph, b, self.columns, self.law, self.rng)
            errors[:] = Y - graph @ Y
        for h in self.columns.tolist():
            if self.law.degree == 1:
                self._draw_values(Y, graph, errors, b, h)
            self._move_scale(Y, graph, errors, b, h)
            for j in np.flatnonzero(self.allowed[h]).tolist():
                self._move_effect(Y, graph, errors, b, mean, square, h, j)

    def _draw_values(self, Y: Array, graph: Array, errors: Array, b: Array, h: int) -> None:
        A = np.eye(len(self.allowed))[:, h] - graph[:, :, h]
        weights = self.law.row_powers * np.abs(A) / b
        with np.errstate(divide="ignore", invalid="ignore"):
            knots = Y[:, h, None] - errors / A[..., None]
        # a column on which h has no effect says nothing about its values
        at = (weights > 0)[..., None] & np.isfinite(knots)
        knots = np.where(at, knots, knots[:, h, None])
        values = draw_piecewise(knots, np.where(at[..., 0], weights, 0.0), self.rng)
        errors += A[..., None] * (values - Y[:, h])[:, None]
        Y[:, h] = values - values.mean(axis=-1, keepdims=True)  # the constants take the mean

    def _likelihood_of_others(self, errors: Array, b: Array, h: int) -> Array:
        """Return the log likelihood of the errors of all columns but h, (chains,)."""
        terms = self.law.row_powers * self.law.size(errors) / b**self.law.degree
        terms[:, h] = 0.0
        return np.asarray(-terms.sum(axis=-1))

    def _move_scale(self, Y: Array, graph: Array, errors: Array, b: Array, h: int) -> None:
        chains, r = len(b), self.law.degree
        log_g = self.rng.choice(_SCALES, chains) * self.rng.standard_normal(chains)
        g, old = np.exp(log_g), b[:, h] ** r
        A = np.eye(len(self.allowed))[:, h] - graph[:, :, h]
        change = (g - 1)[:, None] * errors[:, h]
        changed = errors + A[..., None] * change[:, None]
        gain = self._likelihood_of_others(changed, b, h) - self._likelihood_of_others(errors, b, h)
        gain -= r * self.prior.shape * log_g + self.prior.scale * (1 / g**r - 1) / old
        taken = gain > -self.rng.standard_exponential(chains)
        b[taken, h] = clip_variance(old * g**r)[taken] ** (1 / r)
        errors[taken], Y[taken, h] = changed[taken], (Y[:, h] + change)[taken]
        self._centre(Y, h)

    def _move_effect(
        self,
        Y: Array,
        graph: Array,
        errors: Array,
        b: Array,
        mean: Array,
        square: Array,
        h: int,
        j: int,
    ) -> None:
        chains, p, _ = graph.shape
        d = np.sqrt(square[:, h, j]) * self.rng.standard_cauchy(chains)
        made = graph.copy()
        made[:, h, j] += d
        change = d[:, None] * Y[:, j]
        changed = errors - graph[:, :, h, None] * change[:, None]  # not its own: theta_hh is 0
        gain = self._likelihood_of_others(changed, b, h) - self._likelihood_of_others(errors, b, h)
        far = (made[:, h, j] - mean[:, h, j]) ** 2, (graph[:, h, j] - mean[:, h, j]) ** 2
        gain -= np.log((square[:, h, j] + far[0]) / (square[:, h, j] + far[1]))
        # a graph whose radius is not below 1 is not taken, whatever its determinant
        volumes = [np.linalg.slogdet(np.eye(p) - each)[1] for each in (made, graph)]
        gain += self.law.powers * self.law.contrasts * (volumes[0] - volumes[1])
        taken = gain > -self.rng.standard_exponential(chains)
        taken[taken] = is_stable(made[taken])
        graph[taken, h, j] = made[taken, h, j]
        errors[taken], Y[taken, h] = changed[taken], (Y[:, h] + change)[taken]
        self._centre(Y, h)

    def _centre(self, Y: Array, h: int) -> None:
        if self.law.degree == 1:  # columns of a scatter have no mean
            Y[:, h] -= Y[:, h].mean(axis=-1, keepdims=True)


def draw_piecewise(knots: Array, weights: Array, rng: np.random.Generator) -> Array:
    """Return draws of densities proportional to exp(-SUM_j w_j |y - r_j|), (chains, n).

    knots: r, (chains, p, n); weights: w, at least 0 and not all 0, (chains, p)
    """
    order = np.argsort(knots, axis=1)
    r = np.take_along_axis(knots, order, axis=1)
    w = np.take_along_axis(np.broadcast_to(weights[..., None], knots.shape), order, axis=1)
    total, below = w.sum(axis=1, keepdims=True), np.cumsum(w, axis=1)
    slopes = np.concatenate([total, total - 2 * below], axis=1)  # before, between, after knots
    slopes[:, -1] = -total[:, 0]  # not a sum with rounding errors
    gaps = np.diff(r, axis=1)
    rises = slopes[:, 1:-1] * gaps
    heights = np.concatenate([np.zeros_like(total * r[:, :1]), np.cumsum(rises, axis=1)], axis=1)
    tops = np.concatenate(
        [heights[:, :1], np.maximum(heights[:, :-1], heights[:, 1:]), heights[:, -1:]], axis=1
    )
    fall = np.abs(rises)
    with np.errstate(divide="ignore", invalid="ignore"):
        width = np.where(fall > 1e-12, -np.expm1(-fall) / fall, 1.0) * gaps
        width = np.concatenate([1 / slopes[:, :1], width, -1 / slopes[:, -1:]], axis=1)
        log_mass = np.log(width) + tops
    piece = np.argmax(log_mass + rng.gumbel(size=log_mass.shape), axis=1)[:, None]

    def of_piece(values: Array) -> Array:
        return np.asarray(np.take_along_axis(values, piece, axis=1)[:, 0])

    # a piece falls from its higher end, away from which it has an exponential law, cut at the gap
    slope, endless = of_piece(slopes), np.full_like(total * r[:, :1], np.inf)
    gap = of_piece(np.concatenate([endless, gaps, endless], axis=1))
    left = of_piece(np.concatenate([r[:, :1], r], axis=1))
    right = of_piece(np.concatenate([r, r[:, -1:]], axis=1))
    u, rate = rng.random(slope.shape), np.abs(slope)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = np.where(rate * gap > 1e-12, -np.log1p(u * np.expm1(-rate * gap)) / rate, u * gap)
    return np.where(slope > 0, right - far, left + far)


def draw_scatter(
    F: Array, graph: Array, b: Array, lacked: Indices, law: ErrorLaw, rng: np.random.Generator
) -> None:
    """Draw (2): the rows `lacked` of F (chains, p, p), in place.

    The other rows have zeros in the last columns, as many as there are lacked ones.
    """
    chains, p = b.shape
    m, own = len(lacked), np.delete(np.arange(p), lacked)
    rows = (np.eye(p) - graph) * (np.sqrt(law.row_powers) / b)[..., None]
    Omega = np.swapaxes(rows, 1, 2) @ rows
    lower = np.linalg.cholesky(Omega[:, lacked[:, None], lacked])
    root = np.swapaxes(np.linalg.inv(lower), 1, 2)  # root root' = Omega_LL^-1
    slope = -root @ np.swapaxes(root, 1, 2) @ Omega[:, lacked[:, None], own]
    nu = law.contrasts
    Z = rng.standard_normal((chains, m, len(own)))
    Z[..., : max(len(own) - nu, 0)] = 0.0  # S_OO has rank nu, and its largest columns are the last
    T = np.tril(rng.standard_normal((chains, m, m)), -1)
    left = max(nu - len(own), 0)  # Bartlett (1933); of a singular one, the first `left` columns
    degrees = np.maximum(left - np.arange(m), 0)
    T[:, np.arange(m), np.arange(m)] = np.sqrt(
        np.where(degrees > 0, 2 * rng.standard_gamma(np.maximum(degrees, 1) / 2, (chains, m)), 0.0)
    )
    T[..., left:] = 0.0
    F[:, lacked] = np.concatenate([slope @ F[:, own, : len(own)] + root @ Z, root @ T], axis=-1)


def own_scatter(own: Array, lacked: Indices) -> Array:
    """Return F of (2) with F_L = 0, (p, p); own: F_O without zeros."""
    p = len(own) + len(lacked)
    F = np.zeros((p, p))
    F[np.delete(np.arange(p), lacked), : len(own)] = own
    return F
