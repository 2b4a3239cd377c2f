"""A site's part of federated sparse regression: draws of its own coefficients.

Kidd, Wang, Xu and Ni ("Federated learning for sparse Bayesian models", PSB 2023), section 2.2. At
site k, for n_k records and coefficients j = 1..q, with theta_j and t_j = tau_j^2 from the
coordinator,

    y_k ~ N(X_k theta_k, s_k I),  s_k ~ IG(a_s, b_s)                                             (1)
    theta_kj ~ N(theta_j, w_kj),  w_kj = lambda_kj^2 t_j,  lambda_kj ~ C+(0, 1)                  (2)

(IG has shape and scale; C+ is half-Cauchy.) The paper does not print its Algorithm 2, the local
update; this is the Gibbs sampler of (1) and (2). A half-Cauchy is two inverse gammas (Makalic and
Schmidt 2016), w | v ~ IG(1/2, t / v) and v ~ IG(1/2, 1), so all conditionals are known. One sweep
draws, in this order,

    theta_k  ~ N(C (X'y / s + theta / w), C),  C = (X'X / s + 1 / w)^-1                          (3)
    s_k      ~ IG(a_s + n_k / 2, b_s + |y - X theta_k|^2 / 2)                                    (4)
    w_kj     ~ IG(1, t_j / v_kj + (theta_kj - theta_j)^2 / 2)                                    (5)
    v_kj     ~ IG(1, 1 + t_j / w_kj)                                                             (6)

from standard variates drawn before (`SweepNoise`). A sweep is thus a function of its arguments, and
the sweeps of several sites can be computed together: no number depends on the other sites.

The records enter only through X'X, X'y, y'y and n_k. A site stores nothing else about them.

The state is w. (In the paper it is lambda^2 = w / t.) Given the sites' parameters and w_k, t_j and
theta are independent, so the coordinator can draw both after one sum
(`secagg.models.sparse_bayes.spike_slab`). The posterior is the same.

Numerics. With R = diag(sqrt(w)), (3) is

    theta_k = theta + R z,  z ~ N(K^-1 R (...), K^-1),  K = I + R (X'X / s) R >= I               (7)

A huge w causes a numerical error only if X'X is singular. Eigenvalues of K are then raised to 1,
and w is kept within [1e-30, 1e30] (docs/math/spike-and-slab.md).

All arrays may have leading axes: chains, regressions, sites. Shapes are (..., q) and (..., q, q).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import (
    MIN_GAMMA,
    clip_variance,
    dot,
    factor,
    normal_draw,
    times,
    transpose,
)


@dataclass(frozen=True)
class Regression:
    """The statistics of a site's records for a sweep: X'X (..., q, q), X'y (..., q), y'y (...)."""

    gram: Array
    cross: Array
    square: Array


@dataclass(frozen=True)
class NoisePrior:
    """IG(shape, scale) of the sites' error variances s_k."""

    shape: float = 1.0
    scale: float = 1.0


@dataclass(frozen=True)
class SiteDraw:
    """A site's parameters: theta_k, w_k, v_k of shape (..., q), s_k of shape (...)."""

    theta: Array
    s: Array
    w: Array
    v: Array


@dataclass(frozen=True)
class SweepNoise:
    """Standard variates of one sweep: of (3) and (5), (6) of shape (..., q), of (4) of shape (...).

    normal: N(0, 1); gamma: Gamma(a_s + n_k / 2, 1); w, v: Exp(1)
    """

    normal: Array
    gamma: Array
    w: Array
    v: Array


def draw_noise(
    shape: tuple[int, ...], records: float, prior: NoisePrior, rng: np.random.Generator
) -> SweepNoise:
    """Draw the variates of one sweep at a site with this many records; shape: (..., q)."""
    return SweepNoise(
        rng.standard_normal(shape),
        np.maximum(rng.standard_gamma(prior.shape + records / 2, shape[:-1]), MIN_GAMMA),
        rng.standard_exponential(shape),
        rng.standard_exponential(shape),
    )


def sweep(
    data: Regression,
    draw: SiteDraw,
    theta: Array,
    t: Array,
    prior: NoisePrior,
    noise: SweepNoise,
) -> SiteDraw:
    """Draw (3) to (6) once, given the coordinator's theta and t, shape (..., q)."""
    root = np.sqrt(draw.w)
    gram = data.gram / draw.s[..., None, None]
    slope = root * (data.cross / draw.s[..., None] - times(gram, theta))
    own = theta + root * normal_draw(*factor(root, gram), slope, noise.normal)
    residual = data.square - 2 * dot(own, data.cross) + dot(own, times(data.gram, own))
    half = np.maximum(residual, 0.0) / 2  # below 0 by rounding only
    s = clip_variance((prior.scale + half) / noise.gamma)
    w = clip_variance((t / draw.v + (own - theta) ** 2 / 2) / noise.w)
    return SiteDraw(own, s, w, (1 + t / w) / noise.v)


def marginal(data: Regression, draw: SiteDraw) -> tuple[Array, Array]:
    """Return P_k (..., q, q) and r_k (..., q) of the likelihood of theta without theta_k.

    With theta_k integrated out of (1) and (2), y ~ N(X theta, V), V = s I + X R^2 X', and

        P_k = X' V^-1 X,  r_k = X' V^-1 y                                                        (8)

    Since V >= s I, P_k <= X'X / s_k, |P_kij| <= |X_i| |X_j| / s_k and |r_kj| <= |X_j| |y| / s_k.
    Computed as P_k = X'X/s - H'H and r_k = X'y/s - H'h with H = K^-1/2 R X'X/s (Woodbury).
    """
    root = np.sqrt(draw.w)
    gram, cross = data.gram / draw.s[..., None, None], data.cross / draw.s[..., None]
    inverse = np.asarray(np.linalg.inv(factor(root, gram)[1]), dtype=np.float64)
    H = inverse @ (root[..., :, None] * gram)
    h = times(inverse, root * cross)
    return gram - transpose(H) @ H, cross - times(transpose(H), h)
