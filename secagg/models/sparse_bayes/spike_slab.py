"""The coordinator's part of federated sparse regression: draws of the common coefficients.

Kidd, Wang, Xu and Ni ("Federated learning for sparse Bayesian models", PSB 2023), section 2.2. Over
the sites' coefficients theta_kj ~ N(theta_j, w_kj) of `secagg.models.sparse_bayes.horseshoe`,

    theta_j ~ N(0, e_j),  e_j = eta_j c0^(1 - g_j)                                               (1)
    g_j ~ Bernoulli(rho),  rho ~ Beta(a_r, b_r),  eta_j ~ IG(a_e, b_e)                           (2)
    w_kj = lambda_kj^2 t_j,  t_j = tau_j^2,  tau_j ~ C+(0, 1)                                    (3)

g_j = 1 is the slab, g_j = 0 the spike. There are two ways to draw theta and t, from two kinds of
sums over sites:

* `collapsed`, (4) to (6): sums of P_k, r_k and c_kj, all bounded; theta_k is integrated out;
* `paper`, (7) to (9): sums of 1/l, d/l and d^2/l, with l_kj = lambda_kj^2 and d = theta_kj -
  theta_j. Two scales of the printed algorithm are corrected.

Both then draw eta (10), g and rho (11). Results have the means of P(g_j = 1).

docs/math/spike-and-slab.md has the equations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit

from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import clip_variance, factor, inverse_gamma, normal_draw
from secagg.models.sparse_bayes.marginal_slabs import draw_slabs

SPIKE_SHARE = 0.1
"""The calibrated spike's variance, as a share of the variance 1 / n of a least squares coefficient
(Narisetty and He 2014, "Bayesian variable selection with shrinking and diffusing priors")."""
SPREAD_SCALE = 0.05
"""Scale of the calibrated half-Cauchy prior of tau, in standard deviations of the outcome."""


@dataclass(frozen=True)
class SpikeSlab:
    """The prior's constants.

    ratio: c0, variance of the spike divided by that of the slab
    a_e, b_e, a_r, b_r: as in (2); own: one eta for each coefficient
    spike: variance of the spike if it is fixed; if None, the ratio times that of the slab
    spread: scale A of tau_j ~ C+(0, A)
    """

    ratio: float = 0.01
    a_e: float = 1.0
    b_e: float = 1.0
    a_r: float = 1.0
    b_r: float = 1.0
    own: bool = False
    spike: float | None = None
    spread: float = 1.0

    def narrow(self, eta: Array) -> Array:
        """Return the spike's variance."""
        return self.ratio * eta if self.spike is None else np.full_like(eta, self.spike)


def calibrated(paper: SpikeSlab, records: int) -> SpikeSlab:
    """Return the calibrated prior of docs/math/spike-and-slab.md; records: at all sites."""
    return replace(paper, spike=SPIKE_SHARE / records, spread=SPREAD_SCALE)


@dataclass(frozen=True)
class Common:
    """The coordinator's draw: theta, t, x, eta, g, inclusion (P_j) of shape (..., q), rho (...).

    With a common eta, all entries along its last axis are equal.
    """

    theta: Array
    t: Array
    x: Array
    eta: Array
    g: Array
    rho: Array
    inclusion: Array


def begin_common(shape: tuple[int, ...], rng: np.random.Generator) -> Common:
    """Return first draws, different in every chain."""
    tau = np.abs(rng.standard_cauchy(shape))
    return Common(
        theta=rng.standard_normal(shape),
        t=clip_variance(tau**2),
        x=np.ones(shape),
        eta=np.ones(shape),
        g=np.round(rng.random(shape)),
        rho=rng.random(shape[:-1]),
        inclusion=np.full(shape, 0.5),
    )


def collapsed(
    now: Common,
    P: Array,
    r: Array,
    c: Array,
    sites: int,
    prior: SpikeSlab,
    rng: np.random.Generator,
) -> Common:
    """Draw (4) to (6), then (10) and (11); P (..., q, q), r and c (..., q) are sums over sites."""
    if prior.spike is not None:
        narrow = prior.narrow(now.eta)
        g, inclusion = draw_slabs(now.g, now.rho, P, r, now.eta, narrow, rng)
        now = replace(now, g=g, inclusion=inclusion)
    root = np.sqrt(spread(now, prior))  # Q^-1 = R K^-1 R, with K = I + R (SUM P_k) R
    theta = root * normal_draw(*factor(root, P), root * r, rng.standard_normal(r.shape))
    t = clip_variance(rng.standard_gamma((sites + 1) / 2, size=c.shape) / (now.x + c / now.t))
    x = rng.standard_gamma(1.0, size=t.shape) / (prior.spread**2 + t)
    return _draw_slabs(replace(now, theta=theta, t=t, x=x), prior, rng)


def paper(
    now: Common,
    one: Array,
    d: Array,
    dd: Array,
    sites: int,
    prior: SpikeSlab,
    rng: np.random.Generator,
) -> Common:
    """Draw (7) to (11); one, d and dd (..., q) are the sums of 1/l, d/l and d^2/l."""
    x = inverse_gamma(1.0, prior.spread**-2 + 1 / now.t, rng)
    t = clip_variance(inverse_gamma((sites + 1) / 2, 1 / x + dd / 2, rng))
    precision = 1 / spread(now, prior) + one / t
    mean = (now.theta * one + d) / t / precision
    theta = mean + rng.standard_normal(mean.shape) / np.sqrt(precision)
    return _draw_slabs(replace(now, theta=theta, t=t, x=x), prior, rng)


def _draw_slabs(now: Common, prior: SpikeSlab, rng: np.random.Generator) -> Common:
    """Draw (10) and (11)."""
    q = now.theta.shape[-1]
    if prior.spike is not None:
        return _draw_fixed_spike(now, prior, rng)
    scaled = now.theta**2 / (2 * np.where(now.g > 0, 1.0, prior.ratio))
    if prior.own:
        eta = inverse_gamma(prior.a_e + 0.5, prior.b_e + scaled, rng)
    else:
        one = inverse_gamma(prior.a_e + q / 2, prior.b_e + scaled.sum(axis=-1), rng)
        eta = np.broadcast_to(one[..., None], scaled.shape).copy()
    slab = np.log(now.rho)[..., None] - now.theta**2 / (2 * eta)
    spike = np.log1p(-now.rho)[..., None] - now.theta**2 / (2 * prior.ratio * eta)
    inclusion: Array = expit(slab - spike + np.log(prior.ratio) / 2)
    g = (rng.random(inclusion.shape) < inclusion).astype(np.float64)
    return replace(now, eta=eta, g=g, rho=_draw_rho(g, prior, rng), inclusion=inclusion)


def _draw_fixed_spike(now: Common, prior: SpikeSlab, rng: np.random.Generator) -> Common:
    """Draw (13), and rho of (11); g has been drawn with theta integrated out."""
    squares = now.g * now.theta**2 / 2
    if prior.own:
        eta = inverse_gamma(prior.a_e + now.g / 2, prior.b_e + squares, rng)
    else:
        shape = prior.a_e + now.g.sum(axis=-1) / 2
        one = inverse_gamma(shape, prior.b_e + squares.sum(axis=-1), rng)
        eta = np.broadcast_to(one[..., None], squares.shape).copy()
    return replace(now, eta=eta, rho=_draw_rho(now.g, prior, rng))


def _draw_rho(g: Array, prior: SpikeSlab, rng: np.random.Generator) -> Array:
    """Return rho of (11)."""
    slabs = g.sum(axis=-1)
    rho = rng.beta(prior.a_r + slabs, prior.b_r + (g.shape[-1] - slabs))
    limits = np.finfo(np.float64)
    within: Array = np.clip(rho, limits.tiny, 1 - limits.epsneg)  # for the logs
    return within


def spread(now: Common, prior: SpikeSlab) -> Array:
    """Return e of (1)."""
    return np.where(now.g > 0, now.eta, prior.narrow(now.eta))
