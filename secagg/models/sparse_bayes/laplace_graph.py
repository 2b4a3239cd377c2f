"""A site's part of federated sparse directed graphs: draws of its own graph, cycles allowed.

Kidd, Wang, Xu and Ni ("Federated learning for sparse Bayesian models", PSB 2023), section 2.4. At
site k, for records Y_i of p columns, and theta_jh and t_jh = tau_jh^2 from the coordinator,

    Y_i = mu_k + Theta_k Y_i + e_i,  e_ij ~ Laplace(b_kj),  b_kj ~ IG(a_s, b_s)                  (1)
    theta_kjh ~ N(theta_jh, w_kjh), as in (2) of `secagg.models.sparse_bayes.horseshoe`          (2)

theta_kjh is the effect of h on j, and there is none of j on itself. With A = I - Theta_k and
m = A mu_k the likelihood is, up to constants,

    |det A|^(n_k - 1) PROD_j b_kj^-n_k exp(-SUM_i |e_ij| / b_kj)  if rho(Theta_k) < 1, else 0    (3)

with rho the spectral radius. One sweep draws m (4); each theta_kjh by a Metropolis step with b_kj
and w_kjh integrated out (5); b_kj (6); rotations of two rows of A into one another (7); w, v (8).

docs/math/laplace-graph.md derives these steps.

Theta_k's p (p - 1) entries stand in one row, row j after row j - 1 (`places`). Arrays have one
leading axis of chains; the records may have it too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import within
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.laplace_location import draw_location
from secagg.models.sparse_bayes.metropolis_entries import move_entries, step_sizes
from secagg.models.sparse_bayes.metropolis_rotations import rotate_rows

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class GraphDraw:
    """A site's parameters: theta_k, w_k, v_k of shape (chains, p (p - 1)), b_k of (chains, p).

    No sweep begins with w_k; the sums that leave the site are made of it.
    """

    theta: Array
    b: Array
    w: Array
    v: Array


@dataclass(frozen=True)
class GraphNoise:
    """Standard variates of one sweep.

    location: of (4), uniform, (2, chains, p)
    move, chance: of (5), N(0, 1) and log uniform, (chains, p (p - 1))
    gamma: of (6), Gamma(a_s + n_k, 1), (chains, p)
    pairs: of (7), p pairs of rows, the same for all chains, (p, 2)
    angle, turn: of (7), uniform on +-pi/2 and log uniform, (chains, p)
    w, v: of (8), Exp(1), (chains, p (p - 1))
    """

    location: Array
    move: Array
    chance: Array
    gamma: Array
    pairs: Indices
    angle: Array
    turn: Array
    w: Array
    v: Array


def places(p: int) -> tuple[Indices, Indices]:
    """Return row j and column h of each entry of Theta that is not on its diagonal."""
    rows, columns = np.nonzero(~np.eye(p, dtype=bool))
    return rows, columns


def matrices(entries: Array, p: int) -> Array:
    """Return matrices (chains, p, p) of entries (chains, p (p - 1)), zero on the diagonal."""
    made = np.zeros((len(entries), p, p))
    made[:, *places(p)] = entries
    return made


def draw_graph_noise(
    chains: int, p: int, records: int, prior: NoisePrior, rng: np.random.Generator
) -> GraphNoise:
    """Draw the variates of one sweep at a site with so many records."""
    entries, rows = (chains, p * (p - 1)), (chains, p)
    return GraphNoise(
        location=rng.random((2, *rows)),
        move=rng.standard_normal(entries),
        chance=-rng.standard_exponential(entries),
        gamma=rng.standard_gamma(prior.shape + records, rows),
        pairs=np.array(places(p)).T[rng.integers(p * (p - 1), size=p)],
        angle=rng.uniform(-np.pi / 2, np.pi / 2, rows),
        turn=-rng.standard_exponential(rows),
        w=rng.standard_exponential(entries),
        v=rng.standard_exponential(entries),
    )


def sweep_graph(
    Y: Array,
    draw: GraphDraw,
    reach: Array,
    theta: Array,
    t: Array,
    prior: NoisePrior,
    noise: GraphNoise,
) -> tuple[GraphDraw, NDArray[np.bool_], NDArray[np.bool_]]:
    """Draw (4) to (8) once; return also which moves and turns were taken.

    Y: (p, n_k) or (chains, p, n_k), a column a record
    theta, t: from the coordinator, (chains, p (p - 1)), as is reach: see `step_sizes`
    Moves are (chains, p (p - 1)), turns (chains, p). All graphs in `draw` have a spectral radius
    below 1, and so they have in what is returned.
    """
    p = Y.shape[-2]
    graph = matrices(draw.theta, p)
    errors = Y - graph @ Y
    errors -= draw_location(errors, draw.b, noise.location)[..., None]
    square = within(2 * t / draw.v)
    steps = step_sizes(reach, square) * noise.move
    away = draw.theta - theta
    toll = noise.chance + np.log((square + (away + steps) ** 2) / (square + away**2))
    moved, size = move_entries(Y, graph, errors, steps, toll, prior)
    b = (prior.scale + size) / noise.gamma
    means, squares = matrices(theta, p), matrices(square, p) + np.eye(p)
    ways = (noise.pairs, noise.angle, noise.turn)
    turned = rotate_rows(graph, errors, b, means, squares, prior, *ways)
    mine = np.ascontiguousarray(graph[:, *places(p)])
    w = within((t / draw.v + (mine - theta) ** 2 / 2) / noise.w)
    return GraphDraw(mine, b, w, (1 + t / w) / noise.v), moved, turned
