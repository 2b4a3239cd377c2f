"""Exact moments as missing data: a site's regressions under noise that it adds once.

Bernstein and Sheldon ("Differentially private Bayesian linear regression", NeurIPS 2019) treat the
exact moments as missing data and draw them together with the parameters. Here the site has noisy
moments M + E of z = (1, x, y), with E's entries independent normal of known variance
(`secagg.sessions.site_moments`). Given its coefficients beta and its error variance s, the records'
model determines how y enters M. Let LL' = M be the Cholesky factorisation. Its block of the
predictors, about their means, is L_x, its last row is (l_0, l, l_yy), and m_0 - 1 is the number of
records less one, for the intercept. For q predictors,

    l ~ N(L_x' beta, s I),    l_yy^2 ~ s chi^2 with m_0 - 1 - q degrees of freedom               (1)

independently (theorem of Cochran; nothing is approximated, as it is in that paper, whose moments
are normal only for many records). l_0, which the intercept determines, has a flat density, and so
have the number of records and the predictors' sums. The predictors' scatter matrix L_x L_x' has the
prior that the sites learn together: `secagg.models.numerics.site_covariances`, equation (1).

A site's round is a Gibbs sampler: a sweep of `secagg.models.sparse_bayes.horseshoe` given M, then
one trajectory of Hamiltonian Monte Carlo for M given beta and s. If there is much noise, beta and
the sums of products c = sum y x (about the means) hold each other back. So beta moves by delta and
l by L_x' delta together, with a density (2), and once in a round theta, every site's beta and its c
move along a line, (3): docs/math/latent-moments.md. Every chain of every regression has moments of
its own.

Not included: that the number of records is a whole number, and the noise in the degrees of freedom
of (1), which use the released number. Fewer records than coefficients: the degrees of freedom are
at least 1, here and where s is drawn, so M is treated as positive definite, which it is not.

All of this is post-processing of the noisy moments, and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from secagg.contracts import NoisyMatrix, State
from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import dot, factor, normal_draw, times, transpose
from secagg.models.numerics.noise_posterior import (
    FIRST_STEP,
    JITTER,
    NoisyFactor,
    adapted,
    factor_of,
    move,
    starts,
)
from secagg.models.numerics.site_covariances import SharedCovariance
from secagg.models.sparse_bayes.horseshoe import Regression, SiteDraw
from secagg.models.sparse_bayes.sums import Design

_STEPS = 10
"""Of a trajectory. All sites of a call share the number, so that it cannot depend on any."""


class GivenCoefficients(NoisyFactor):
    """The log density of X given beta, s and the prior; all arrays have a first axis of chains.

    beta: shape (chains, q), s: (chains,), in the scaled units of the release
    dof: degrees of freedom of (1), shape (chains,)
    n: number of records less one, shape (chains,)
    """

    def __init__(self, released: Array, variance: Array, beta: Array, s: Array, dof: Array,
                 n: Array, prior: SharedCovariance) -> None:  # fmt: skip
        m = released.shape[-1]
        nu = prior.degrees(n)
        # L to n, sums, A: its Wishart density in the predictors' L_jj
        pivots = nu[:, None] + 1.0 - np.arange(m)
        pivots[:, 0], pivots[:, -1] = m, dof
        super().__init__(released, variance, pivots)
        self.beta, self.s = beta, s
        self.inverse_scale = prior.precision * (nu / n)[:, None, None]

    def added(self, X: Array, L: Array) -> tuple[Array, Array, Array]:
        """Return the log density of (1) and the prior, without the powers of L_jj."""
        L_x = L[:, 1:-1, 1:-1]
        error = L[:, -1, 1:-1] - np.einsum("cij,ci->cj", L_x, self.beta)
        pivot, scaled = L[:, -1, -1], error / self.s[:, None]
        weighted = self.inverse_scale @ L_x
        value = -((error * scaled).sum(axis=1) + pivot**2 / self.s) / 2
        value = value - (weighted * L_x).sum(axis=(1, 2)) / 2
        by_L = np.zeros_like(L)
        by_L[:, 1:-1, 1:-1] = self.beta[:, :, None] * scaled[:, None, :] - weighted
        by_L[:, -1, 1:-1] = -scaled
        by_L[:, -1, -1] = -pivot / self.s
        return value, by_L, np.zeros(L.shape[:2])


def begin_latent(noisy: NoisyMatrix, design: Design, chains: int) -> State:
    """Return the first moments of every chain and regression, spread wider than the noise.

    noisy: of the columns analysed; every entry of the result has first axes (chains, regressions)
    """
    order = _orders(design)
    released = noisy.matrix[order[:, :, None], order[:, None, :]]
    variance = noisy.variance[order[:, :, None], order[:, None, :]]
    shape = (chains, *released.shape)
    rng = np.random.default_rng(0)  # the draws protect nobody
    X, scale = np.empty(shape), np.empty(shape)
    for i, (one, of) in enumerate(zip(released, variance, strict=True)):
        X[:, i], scale[:, i] = starts(np.repeat(one[None], chains, axis=0), of, rng)
    return {
        "X": X,
        "scale": scale,
        "step": np.full(shape[:2], FIRST_STEP),
        "released": released,
        "variance": variance,
    }


def latent_regression(latents: Sequence[State], factors: Sequence[Array], design: Design,
                      largest: float) -> Regression:  # fmt: skip
    """Return X'X, X'y and y'y of the sites' current moments, each (sites, chains, regressions, ..).

    factors: d of each site: a column analysed is its scaled variable, centred, times d
    largest: the largest sum of squares of a column that is possible; columns that have more are
        made smaller
    """
    X = np.array([latent["X"] for latent in latents])
    L = factor_of(X)[..., 1:, 1:] * _in_order(factors, design)[:, None, :, :, None]
    squares = (L * L).sum(axis=-1)
    L = L * np.sqrt(np.minimum(largest / np.maximum(squares, largest), 1.0))[..., None]
    gram = L @ transpose(L)
    return Regression(
        np.ascontiguousarray(gram[..., :-1, :-1]),
        np.ascontiguousarray(gram[..., :-1, -1]),
        np.ascontiguousarray(gram[..., -1, -1]),
    )


def predictor_scatters(latents: Sequence[State]) -> Array:
    """Return L_x L_x' of the sites' current moments, (sites, chains, regressions, q, q)."""
    L_x = factor_of(np.array([latent["X"] for latent in latents]))[..., 1:-1, 1:-1]
    return L_x @ transpose(L_x)


def shift_latent(latents: Sequence[State], factors: Sequence[Array], design: Design,
                 shift: Array) -> list[State]:  # fmt: skip
    """Return the sites' moments for coefficients that all move by `shift`, as (3) says.

    shift: shape (chains, regressions, q), in the units analysed
    """
    X = np.array([latent["X"] for latent in latents])
    L_x, _, delta = _moves(X, factors, design, shift)
    X[..., -1, 1:-1] += times(transpose(L_x), delta)
    return [{**latent, "X": X[k]} for k, latent in enumerate(latents)]


def line_terms(latents: Sequence[State], factors: Sequence[Array], design: Design,
               direction: Array) -> Array:  # fmt: skip
    """Return c_1 to c_5 of `line_move` for (3), shape (sites, chains, regressions, 5).

    direction: u, shape (chains, regressions, q), in the units analysed
    """
    released = np.array([latent["released"] for latent in latents])[:, None]
    variance = np.array([latent["variance"] for latent in latents])[:, None]
    L_x, L, u = _moves(np.array([latent["X"] for latent in latents]), factors, design, direction)
    excess = released[..., -1, :] - (L @ transpose(L))[..., -1, :]
    moved, of_y = times(L_x, times(transpose(L_x), u)), variance[..., -1, -1]
    e, p = excess[..., -1], 2 * dot(L[..., -1, 1:-1], times(transpose(L_x), u))
    w, weighted = dot(u, moved), moved / variance[..., -1, 1:-1]
    terms = (
        dot(excess[..., 1:-1], weighted) + e * p / of_y,
        -dot(moved, weighted) / 2 - p**2 / (2 * of_y),
        -p * w / of_y,
        -(w**2) / (2 * of_y),
        e * w / of_y,
    )
    return np.stack(terms, axis=-1)


def _moves(X: Array, factors: Sequence[Array], design: Design,
           shift: Array) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return L_x, L, and the shift in the scaled units of the release."""
    L = factor_of(X)
    return L[..., 1:-1, 1:-1], L, _unit(factors, design) * shift


def draw_latent(
    latents: Sequence[State],
    factors: Sequence[Array],
    design: Design,
    records: Sequence[float],
    draw: SiteDraw,
    theta: Array,
    prior: SharedCovariance,
    rngs: Sequence[np.random.Generator],
    *,
    warmup: bool,
) -> tuple[list[State], SiteDraw]:
    """Return the sites' next moments, given their parameters, and parameters that moved with them.

    records: numbers of records less one for the intercept
    draw: the sites' parameters, with first axes (sites, chains, regressions); theta: the common
        coefficients
    """
    sites, chains, R, q = draw.theta.shape
    m = q + 2
    of_y = _of_y(_in_order(factors, design))
    unit = np.broadcast_to(_unit(factors, design), draw.theta.shape).reshape(-1, q)
    beta = draw.theta.reshape(-1, q) * unit
    s = (draw.s / of_y[..., 0] ** 2).reshape(-1)
    dof = np.repeat([max(n - q, 1.0) for n in records], chains * R)
    n = np.repeat(np.maximum(records, 1.0), chains * R)
    of_all = SharedCovariance(
        np.tile(prior.precision.reshape(-1, q, q), (sites, 1, 1)),
        np.tile(prior.share.ravel(), sites),
    )

    def stacked(name: str) -> Array:
        each = np.array([latent[name] for latent in latents])
        if name in ("released", "variance"):
            each = np.repeat(each[:, None], chains, axis=1)
        return each.reshape(-1, *each.shape[3:])

    def drawn(of: Callable[[np.random.Generator], Array]) -> Array:
        each = np.array([of(rng) for rng in rngs])
        return each.reshape(-1, *each.shape[2:])

    many = chains * R
    momentum = drawn(lambda rng: rng.standard_normal((many, m, m)))
    jitter = drawn(lambda rng: rng.uniform(*JITTER, many))
    uniform = drawn(lambda rng: rng.random((many, 2)))
    normal = drawn(lambda rng: rng.standard_normal((many, q)))
    released, variance = stacked("released"), stacked("variance")
    target = GivenCoefficients(released, variance, beta, s, dof, n, of_all)
    scale, step = stacked("scale"), stacked("step")
    # the model and the prior, too, limit how far L can move: Bartlett's decomposition of (1) there
    root = np.asarray(np.linalg.cholesky(np.linalg.inv(target.inverse_scale)), dtype=np.float64)
    below = np.diagonal(root, axis1=1, axis2=2)
    j, k = np.tril_indices(q, -1)
    scale[:, 1 + j, 1 + k] = _harmonic(scale[:, 1 + j, 1 + k], below[:, j])
    x = np.arange(1, q + 1)
    scale[:, x, x] = _harmonic(scale[:, x, x], 1 / np.sqrt(2 * of_all.degrees(n))[:, None])
    scale[:, -1, 1:-1] = _harmonic(scale[:, -1, 1:-1], np.sqrt(s)[:, None])
    scale[:, -1, -1] = _harmonic(scale[:, -1, -1], 1 / np.sqrt(2 * dof))
    with np.errstate(all="ignore"):  # a trajectory that diverges is rejected
        X = stacked("X")
        jump = (step * jitter)[:, None, None] * scale
        momentum *= target.lower
        (X, _, _), probability = move(
            target, (X, *target(X)), jump, momentum, _STEPS, uniform[:, 0]
        )
    common = np.broadcast_to(theta, draw.theta.shape).reshape(-1, q) * unit
    root = np.sqrt(draw.w).reshape(-1, q) * unit
    X, delta = _slide(X, released, variance, beta, common, root, normal, uniform[:, 1])
    if warmup:
        step = step * adapted(probability)
    X, step = X.reshape(sites, chains, R, m, m), step.reshape(sites, chains, R)
    moved = np.divide(delta, unit, out=np.zeros_like(delta), where=unit > 0)
    moved_draw = replace(draw, theta=draw.theta + moved.reshape(draw.theta.shape))
    return [{**latent, "X": X[k], "step": step[k]} for k, latent in enumerate(latents)], moved_draw


def _slide(
    X: Array,
    released: Array,
    variance: Array,
    beta: Array,
    common: Array,
    root: Array,
    normal: Array,
    uniform: Array,
) -> tuple[Array, Array]:
    """Return X and delta after the move (2); common: beta_0, root: W's standard deviations."""
    L = factor_of(X)
    L_x, M = L[:, 1:-1, 1:-1], L @ transpose(L)
    S, precision = L_x @ transpose(L_x), 1 / variance[:, -1, 1:-1]
    weighted = S * precision[:, None, :]
    gram = weighted @ S
    gram = (gram + transpose(gram)) / 2
    excess = released[:, -1] - M[:, -1]
    slope = times(weighted, excess[:, 1:-1]) + times(gram, beta - common)
    delta = common - beta + root * normal_draw(*factor(root, gram), root * slope, normal)
    moved = L[:, -1, 1:-1] + times(transpose(L_x), delta)
    after = excess[:, -1] + dot(L[:, -1, 1:-1], L[:, -1, 1:-1]) - dot(moved, moved)
    gain = (excess[:, -1] ** 2 - after**2) / (2 * variance[:, -1, -1])
    accepted = (uniform < np.exp(np.minimum(gain, 0.0)))[:, None]
    X = X.copy()
    X[:, -1, 1:-1] = np.where(accepted, moved, L[:, -1, 1:-1])
    return X, np.where(accepted, delta, 0.0)


def _harmonic(a: Array, b: Array) -> Array:
    """Return the standard deviation of a product of two normal densities with these."""
    return 1 / np.sqrt(a**-2.0 + b**-2.0)


def _orders(design: Design) -> np.ndarray:
    """Return each regression's order of the noisy moments' rows: constant, predictors, outcome."""
    first = np.zeros((len(design.outcomes), 1), dtype=np.int64)
    return np.hstack([first, 1 + design.predictors, 1 + design.outcomes[:, None]])


def _in_order(factors: Sequence[Array], design: Design) -> Array:
    """Return d in the order of each regression, shape (sites, regressions, q + 1)."""
    return np.array(factors)[:, _orders(design)[:, 1:] - 1]


def _of_y(d: Array) -> Array:
    """Return d of the outcome, (sites, 1, regressions, 1); 1 for one that does not vary."""
    return np.where(d[..., -1:] > 0, d[..., -1:], 1.0)[:, None]


def _unit(factors: Sequence[Array], design: Design) -> Array:
    """Return what a coefficient in the units analysed is multiplied by in those of the release."""
    d = _in_order(factors, design)
    return d[:, None, :, :-1] / _of_y(d)
