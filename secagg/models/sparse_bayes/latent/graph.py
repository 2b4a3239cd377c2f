"""Exact moments as missing data: a site's graph with normal errors, under noise added once.

As in `secagg.models.sparse_bayes.latent.moments` (Bernstein and Sheldon, NeurIPS 2019), a site
draws its exact moments M = SUM z z', z = (1, u), together with its parameters, given noisy moments
M + E with E's entries independent normal of known variance. Given the graph Theta and the error
variances s, the scatter S about the means has a Wishart distribution with nu = n - 1 degrees of
freedom and precision Omega, (2) of `secagg.models.sparse_bayes.normal_graph`; n and the columns'
sums have flat densities. In the coordinates L_jk, log L_jj of LL' = M, with L_S the block of the p
columns, the log density given M + E is

    SUM_(i=0..p-1) (nu - i) log L_S,ii - |B L_S|^2 / 2 + (m + 1) log L_00 + normal density of E  (1)

with B = diag(s)^-1/2 (I - Theta) in the units of u, and m = p + 1. There is no other prior of M,
since the model describes all columns.

A round draws M by one trajectory of Hamiltonian Monte Carlo in (1), then moves graph and moments
together, by (2) and (3) of docs/math/latent-moments.md, then sweeps given M.

Not included: that n is a whole number, and its noise in nu. nu is at least p, so that S is positive
definite: with so few records the noise hides them in any case. A column without variation in the
noisy moments has no unit (`scale = "site"`); there the second step is left out.

All of this is post-processing of the noisy moments, and costs no privacy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import NoisyMatrix, State
from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import clip_variance
from secagg.models.numerics.noise_posterior import (
    FIRST_STEP,
    JITTER,
    NoisyFactor,
    adapted,
    factor_of,
    move,
    starts,
)
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    Order,
    allowed_entries,
    entry_positions,
    is_ordered,
    matrices,
)
from secagg.models.sparse_bayes.metropolis.entries import adapted as adapted_reach
from secagg.models.sparse_bayes.metropolis.entries import is_stable, step_sizes

_STEPS = 10  # of a trajectory
_LEAST_PIVOT = 1e-150  # whose logarithm and square are finite


class GivenGraph(NoisyFactor):
    """The log density (1); all arrays have a first axis of chains.

    rows: B, shape (chains, p, p), in the scaled units of the release; freedom: nu
    """

    def __init__(self, released: Array, variance: Array, rows: Array, freedom: float) -> None:
        p = rows.shape[-1]
        super().__init__(released, variance, np.append(p + 2.0, freedom - np.arange(p)))
        self.rows = rows

    def added(self, X: Array, L: Array) -> tuple[Array, Array, Array]:
        """Return -|B L_S|^2 / 2 and its derivatives."""
        T = self.rows @ L[:, 1:, 1:]
        by_L = np.zeros_like(L)
        by_L[:, 1:, 1:] = -np.swapaxes(self.rows, 1, 2) @ T
        return -(T * T).sum(axis=(1, 2)) / 2, by_L, np.zeros(L.shape[:2])


def begin_latent_graph(noisy: NoisyMatrix, shape: tuple[int, int]) -> State:
    """Return the first moments of every chain, spread wider than the noise.

    noisy: of the columns analysed; shape: of theta, (chains, entries)
    """
    chains = shape[0]
    released = np.repeat(noisy.matrix[None], chains, axis=0)
    X, scale = starts(released, noisy.variance, np.random.default_rng(0))  # they protect nobody
    p = len(noisy.matrix) - 1
    return {
        "X": X,
        "scale": scale,
        "step": np.full(chains, FIRST_STEP),
        # of the second step: of theta_jh, and of log b_j
        "reach": np.full(shape, 0.1),
        "reach_b": np.full((chains, p), 0.1),
        "released": noisy.matrix,
        "variance": noisy.variance,
    }


def latent_columns(latent: State, factors: Array) -> Array:
    """Return F of the current moments, (chains, p, p), F F' = S in the units analysed.

    factors: a column analysed is its scaled variable, centred, times its factor
    """
    return factor_of(latent["X"])[:, 1:, 1:] * factors[:, None]


def draw_latent_graph(
    latent: State,
    factors: Array,
    freedom: float,
    draw: GraphDraw,
    theta: Array,
    t: Array,
    prior: NoisePrior,
    rng: np.random.Generator,
    *,
    warmup: int,
    ordered: Order | None = None,
) -> tuple[State, GraphDraw]:
    """Return the next moments, and graph and b moved with them: what comes before a sweep.

    factors: as for `latent_columns`; freedom: nu; theta, t: from the coordinator
    warmup: number of this round, counted from 1; 0 after warmup
    """
    p = draw.b.shape[-1]
    known = is_ordered(theta, p) if ordered is None else ordered
    graph = matrices(draw.theta, p, known)
    latent = _move_moments(latent, factors, freedom, graph, draw.b, rng, warmup=warmup > 0)
    square = clip_variance(2 * t / draw.v)
    latent, graph, b = _move_together(
        latent, factors, graph, draw.b, theta, square, prior, rng, warmup, allowed_entries(p, known)
    )
    moved = np.ascontiguousarray(graph[:, *entry_positions(p, ordered=known)])
    return latent, replace(draw, theta=moved, b=b)


def _move_moments(
    latent: State,
    factors: Array,
    freedom: float,
    graph: Array,
    b: Array,
    rng: np.random.Generator,
    *,
    warmup: bool,
) -> State:
    """Return the next moments, given Theta (chains, p, p) and b = root(s), (chains, p)."""
    chains, p = b.shape
    rows = (np.eye(p) - graph) / b[..., None] * factors
    target = GivenGraph(latent["released"], latent["variance"], rows, freedom)
    scale = latent["scale"].copy()
    # the model, too, limits how far L_S can move: by the diagonal of Omega, and by nu
    squares, at = (rows * rows).sum(axis=1), np.arange(1, p + 1)
    below = 1 / np.sqrt(scale[:, 1:, 1:] ** -2.0 + squares[..., None])
    pivots = 1 / np.sqrt(scale[:, at, at] ** -2.0 + 2 * target.pivots[1:])
    scale[:, 1:, 1:], scale[:, at, at] = below, pivots
    jump = (latent["step"] * rng.uniform(*JITTER, chains))[:, None, None] * scale
    momentum = rng.standard_normal(latent["X"].shape) * target.lower
    uniform = rng.random((chains,))
    with np.errstate(all="ignore"):  # a trajectory that diverges is rejected
        point = (latent["X"], *target(latent["X"]))
        (X, _, _), probability = move(target, point, jump, momentum, _STEPS, uniform)
    step = latent["step"] * adapted(probability) if warmup else latent["step"]
    return {**latent, "X": X, "step": step}


def _move_together(
    latent: State,
    factors: Array,
    graph: Array,
    b: Array,
    theta: Array,
    square: Array,
    prior: NoisePrior,
    rng: np.random.Generator,
    warmup: int,
    allowed: NDArray[np.bool_],
) -> tuple[State, Array, Array]:
    """Return moments, Theta and b after the second step.

    theta, square: mean and squared scale of the entries' Cauchy prior, (chains, p (p - 1))
    """
    p = b.shape[-1]
    if not np.all(factors > 0):
        return latent, graph, b
    L, unit = factor_of(latent["X"]), np.outer(factors, factors)
    F = L[:, 1:, 1:] * factors[:, None]
    released = (latent["released"][..., 1:, 1:] - L[:, 1:, :1] * L[:, None, 1:, 0]) * unit
    # a sum over all entries counts each entry off the diagonal twice
    weight = 1 / (latent["variance"][1:, 1:] * unit**2) / (4.0 - 2 * np.eye(p))
    graph, b = graph.copy(), b.copy()
    steps = step_sizes(latent["reach"], square) * rng.standard_normal(square.shape)
    chance = -rng.standard_exponential(square.shape)
    turns = step_sizes(latent["reach_b"], np.full(b.shape, np.inf)) * rng.standard_normal(b.shape)
    chance_b = -rng.standard_exponential(b.shape)
    moved, moved_b, i = np.zeros(square.shape, bool), np.zeros(b.shape, bool), 0

    def loss_of(columns: Array) -> Array:
        E = columns @ np.swapaxes(columns, 1, 2) - released
        return np.asarray((weight * E * E).sum(axis=(1, 2)))

    def shifted(c: Array, g: Array, row: Array) -> Array:
        """Return F after (2) or (3): its scatter is that of F + c g row."""
        return F + (c[:, None] * g)[:, :, None] * row[:, None, :]

    with np.errstate(all="ignore"):  # what is not finite is rejected
        loss = loss_of(F)
        for j in range(p):
            g: Array = np.asarray(np.linalg.inv(np.eye(p) - graph)[:, :, j], dtype=np.float64)
            for h in np.flatnonzero(allowed[j]).tolist():
                d, old = steps[:, i], graph[:, j, h]
                new, kept = old + d, 1 - d * g[:, h]  # 0 or below is not stable
                c = d / np.where(kept > 0, kept, np.inf)
                other = shifted(c, g, F[:, h])
                new_loss, wide, mean = loss_of(other), square[:, i], theta[:, i]
                gain = loss - new_loss
                gain -= np.log((wide + (new - mean) ** 2) / (wide + (old - mean) ** 2))
                accept = (gain > chance[:, i]) & (kept > 0)
                changed = graph[accept]
                changed[:, j, h] = new[accept]
                accept[accept] = is_stable(changed)
                graph[:, j, h] = np.where(accept, new, old)
                g = np.where(accept[:, None], g / kept[:, None], g)
                F, loss = (
                    np.where(accept[:, None, None], other, F),
                    np.where(accept, new_loss, loss),
                )
                moved[:, i], i = accept, i + 1
            f, s = np.exp(turns[:, j]), b[:, j] ** 2
            other = shifted(f - 1, g, F[:, j] - (graph[:, j, None] @ F)[:, 0])
            new_loss = loss_of(other)
            gain = loss - new_loss - 2 * prior.shape * turns[:, j]
            gain -= prior.scale * (1 / (s * f * f) - 1 / s)
            accept = gain > chance_b[:, j]
            b[:, j] *= np.where(accept, f, 1.0)
            F, loss = np.where(accept[:, None, None], other, F), np.where(accept, new_loss, loss)
            moved_b[:, j] = accept
    reach, reach_b = latent["reach"], latent["reach_b"]
    if warmup:
        reach, reach_b = (
            adapted_reach(reach, moved, warmup),
            adapted_reach(reach_b, moved_b, warmup),
        )
    X = _with_block(latent["X"], F / factors[:, None])
    return {**latent, "X": X, "reach": reach, "reach_b": reach_b}, graph, b


def _with_block(X: Array, F: Array) -> Array:
    """Return X with the coordinates of the lower triangular L_S, L_S L_S' = F F'."""
    R = np.linalg.qr(np.swapaxes(F, 1, 2), mode="r")
    pivots = np.diagonal(R, axis1=1, axis2=2)
    block = np.tril(np.swapaxes(R * np.where(pivots < 0, -1.0, 1.0)[..., None], 1, 2), -1)
    at = np.arange(F.shape[-1])
    block[:, at, at] = np.log(np.maximum(np.abs(pivots), _LEAST_PIVOT))
    X = X.copy()
    X[:, 1:, 1:] = block
    return X
