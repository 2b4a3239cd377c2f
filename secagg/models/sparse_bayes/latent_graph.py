"""Exact moments as missing data: a site's graph with normal errors, under noise added once.

As in `secagg.models.sparse_bayes.latent_moments` (Bernstein and Sheldon, NeurIPS 2019), a site
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
together, then sweeps given M. With much noise, M and the graph hold each other back, and the second
step makes up for it (Yu and Meng 2011). It keeps T = B L_S, whose distribution does not depend on
the graph, and moves one parameter after another by Metropolis steps; S becomes B^-1 T T' B^-1'. With
g = A^-1 e_j, a move of theta_jh by d and one of s_j by the factor f^2 change S by

    c (g S_h' + S_h g') + c^2 S_hh g g',  c = d / (1 - d g_h)                                    (2)
    c (g q' + q g') + c^2 q_j g g',  c = f - 1,  q = S a_j',  q_j = a_j S a_j'                   (3)

and the step compares the normal density of E and the priors, where rho(Theta) < 1.

Not included: that n is a whole number, and its noise in nu. nu is at least p, so that S is positive
definite: with so few records the noise hides them in any case. A column without variation in the
noisy moments has no unit (`scale = "site"`); there the second step is left out.

All of this is post-processing of the noisy moments, and costs no privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import NoisyMatrix, State
from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import clip_variance
from secagg.models.numerics.noise_posterior import (
    FIRST_STEP,
    JITTER,
    Target,
    adapted,
    move,
    starts,
)
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_graph import (
    GraphDraw,
    entry_positions,
    is_ordered,
    matrices,
)
from secagg.models.sparse_bayes.metropolis_entries import adapted as adapted_reach
from secagg.models.sparse_bayes.metropolis_entries import is_stable, step_sizes

_STEPS = 10  # of a trajectory


class GivenGraph(Target):
    """The log density (1); all arrays have a first axis of chains.

    rows: B, shape (chains, p, p), in the scaled units of the release; freedom: nu
    """

    def __init__(self, released: Array, variance: Array, rows: Array, freedom: float) -> None:
        super().__init__(released, variance)
        p = rows.shape[-1]
        # no prior of the correlations
        self.excess, self.log_weight, self.squares = np.zeros(1), np.zeros(1), np.zeros(p)
        self.pivots = np.append(p + 2.0, freedom - np.arange(p))
        self.rows = rows

    def likelihood(self, L: Array) -> tuple[Array, Array]:
        """Return -|B L_S|^2 / 2 and its derivative."""
        T = self.rows @ L[:, 1:, 1:]
        by_L = np.zeros_like(L)
        by_L[:, 1:, 1:] = -np.swapaxes(self.rows, 1, 2) @ T
        return -(T * T).sum(axis=(1, 2)) / 2, by_L


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
    return _factor(latent["X"])[:, 1:, 1:] * factors[:, None]


def _factor(X: Array) -> Array:
    L = np.tril(X)
    diagonal = np.arange(X.shape[-1])
    L[:, diagonal, diagonal] = np.exp(X[:, diagonal, diagonal])
    return L


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
) -> tuple[State, GraphDraw]:
    """Return the next moments, and graph and b moved with them: what comes before a sweep.

    factors: as for `latent_columns`; freedom: nu; theta, t: from the coordinator
    warmup: number of this round, counted from 1; 0 after warmup
    """
    p = draw.b.shape[-1]
    graph = matrices(draw.theta, p)
    latent = _move_moments(latent, factors, freedom, graph, draw.b, rng, warmup=warmup > 0)
    square = clip_variance(2 * t / draw.v)
    latent, graph, b = _move_together(
        latent, factors, graph, draw.b, theta, square, prior, rng, warmup
    )
    ordered = is_ordered(theta, p)
    moved = np.ascontiguousarray(graph[:, *entry_positions(p, ordered=ordered)])
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
    uniform = rng.random(chains)
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
) -> tuple[State, Array, Array]:
    """Return moments, Theta and b after the second step.

    theta, square: mean and squared scale of the entries' Cauchy prior, (chains, p (p - 1))
    """
    chains, p = b.shape
    if not np.all(factors > 0):
        return latent, graph, b
    L, unit = _factor(latent["X"]), np.outer(factors, factors)
    S = (L[:, 1:, 1:] @ np.swapaxes(L[:, 1:, 1:], 1, 2)) * unit
    sums = L[:, 1:, :1] * L[:, None, 1:, 0]
    E = (S / unit + sums - latent["released"][..., 1:, 1:]) * unit
    # a sum over all entries counts each entry off the diagonal twice
    weight = 1 / (latent["variance"][1:, 1:] * unit**2) / (4.0 - 2 * np.eye(p))
    graph, b = graph.copy(), b.copy()
    steps = step_sizes(latent["reach"], square) * rng.standard_normal(square.shape)
    chance = -rng.standard_exponential(square.shape)
    turns = step_sizes(latent["reach_b"], np.full(b.shape, np.inf)) * rng.standard_normal(b.shape)
    chance_b = -rng.standard_exponential(b.shape)
    moved = np.zeros(square.shape, dtype=bool)
    moved_b = np.zeros(b.shape, dtype=bool)
    loss, i, full = (weight * E * E).sum(axis=(1, 2)), 0, square.shape[1] == p * (p - 1)

    def proposed(c: Array, g: Array, q: Array, q_j: Array) -> tuple[Array, Array]:
        change = c[:, None, None] * (g[:, :, None] * q[:, None, :] + q[:, :, None] * g[:, None, :])
        change += (c * c * q_j)[:, None, None] * (g[:, :, None] * g[:, None, :])
        new = E + change
        return change, (weight * new * new).sum(axis=(1, 2))

    def keep(accept: NDArray[np.bool_], change: Array, new_loss: Array) -> Array:
        change[~accept] = 0.0
        np.add(S, change, out=S)
        np.add(E, change, out=E)
        return np.where(accept, new_loss, loss)

    for j in range(p):
        g = np.linalg.inv(np.eye(p) - graph)[:, :, j]
        for h in range(p if full else j):
            if h == j:
                continue
            d, old = steps[:, i], graph[:, j, h]
            new = old + d
            kept = 1 - d * g[:, h]  # the determinant's ratio; 0 or below is not stable
            c = d / np.where(kept > 0, kept, np.inf)
            change, new_loss = proposed(c, g, S[:, h], S[:, h, h])
            gain = loss - new_loss - np.log(
                (square[:, i] + (new - theta[:, i]) ** 2) / (square[:, i] + (old - theta[:, i]) ** 2)
            )
            accept = (gain > chance[:, i]) & (kept > 0)
            changed = graph[accept]
            changed[:, j, h] = new[accept]
            accept[accept] = is_stable(changed)
            graph[:, j, h] = np.where(accept, new, old)
            loss = keep(accept, change, new_loss)
            g = np.where(accept[:, None], g * (1 + c * g[:, h])[:, None], g)
            moved[:, i] = accept
            i += 1
        a = -graph[:, j]
        a[:, j] = 1.0
        q = (S @ a[..., None])[..., 0]
        f, s = np.exp(turns[:, j]), b[:, j] ** 2
        change, new_loss = proposed(f - 1, g, q, (a * q).sum(axis=1))
        gain = loss - new_loss - 2 * prior.shape * turns[:, j]
        gain -= prior.scale * (1 / (s * f * f) - 1 / s)
        accept = gain > chance_b[:, j]
        b[:, j] *= np.where(accept, f, 1.0)
        loss = keep(accept, change, new_loss)
        moved_b[:, j] = accept
    X = latent["X"].copy()
    X[:, 1:, 1:] = np.linalg.cholesky(S / unit)
    at = np.arange(1, p + 1)
    X[:, at, at] = np.log(X[:, at, at])
    reach, reach_b = latent["reach"], latent["reach_b"]
    if warmup:
        reach, reach_b = adapted_reach(reach, moved, warmup), adapted_reach(reach_b, moved_b, warmup)
    return {**latent, "X": X, "reach": reach, "reach_b": reach_b}, graph, b
