"""A site's part of federated sparse directed graphs: draws of its own graph, cycles allowed.

Kidd, Wang, Xu and Ni ("Federated learning for sparse Bayesian models", PSB 2023), section 2.4. At
site k, for records Y_i of p columns, and theta_jh and t_jh = tau_jh^2 from the coordinator,

    Y_i = mu_k + Theta_k Y_i + e_i,  e_ij ~ Laplace(b_kj),  b_kj ~ IG(a_s, b_s)                  (1)
    theta_kjh ~ N(theta_jh, w_kjh), as in (2) of `secagg.models.sparse_bayes.horseshoe`          (2)

theta_kjh is the effect of h on j; j has no effect on itself. With A = I - Theta_k and m = A mu_k
the likelihood is, up to constants,

    |det A|^(n_k - 1) PROD_j b_kj^-n_k exp(-SUM_i |e_ij| / b_kj)  if rho(Theta_k) < 1, else 0    (3)

with rho the spectral radius. One sweep draws m (4); each theta_kjh by a Metropolis step with b_kj
and w_kjh integrated out (5); b_kj (6); rotations of two rows of A into one another (7); the values
of columns that the site lacks (`secagg.models.sparse_bayes.latent.lacking`); w, v (8).

docs/math/laplace-graph.md derives these steps.

The p (p - 1) entries of Theta_k are in one row, row j after row j - 1 (`entry_positions`). If the
order of the columns is known, there are only the p (p - 1) / 2 with h before j, and no step (7). A
job can also rule out other entries, by tiers or one by one: `Order`. They are no parameters.
Step (7) then has only rows that may act on each other and have their other entries in common.
Arrays have a leading axis of chains; the records may have one too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.numerics.gaussian_draws import MIN_GAMMA, clip_variance
from secagg.models.numerics.laplace_location import Locations
from secagg.models.sparse_bayes.horseshoe import NoisePrior
from secagg.models.sparse_bayes.metropolis.entries import ErrorLaw, move_entries, step_sizes
from secagg.models.sparse_bayes.metropolis.rotations import rotate_rows

Indices = NDArray[np.int64]
Order = bool | NDArray[np.bool_]
"""Which effects are possible: those on later columns (True), all (False), or those marked, (p, p),
in row j and column h for that of h on j."""
Redraw = Callable[[Array, Array, Array, Array, Array, Array], None]
"""`secagg.models.sparse_bayes.latent.lacking.Lacking.redraw`."""


@dataclass(frozen=True)
class GraphDraw:
    """A site's parameters: theta_k, w_k, v_k of shape (chains, p (p - 1)), b_k of (chains, p).

    A sweep does not read w_k; the sums that leave the site depend on it.
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
    gamma: of (6), Gamma(a_s + n_k, 1), (chains, p); for normal errors Gamma(a_s + (n_k - 1) / 2, 1)
    angle, turn: of (7), uniform on +-pi/2 and log uniform, (chains, p)
    w, v: of (8), Exp(1), (chains, p (p - 1))
    """

    location: Array
    move: Array
    chance: Array
    gamma: Array
    angle: Array
    turn: Array
    w: Array
    v: Array


def allowed_entries(p: int, ordered: Order) -> NDArray[np.bool_]:
    """Return which entries of Theta may differ from 0, (p, p)."""
    if isinstance(ordered, np.ndarray):
        return ordered
    return np.tri(p, k=-1, dtype=bool) if ordered else ~np.eye(p, dtype=bool)


def entry_positions(p: int, *, ordered: Order = False) -> tuple[Indices, Indices]:
    """Return row j and column h of each entry of Theta that may differ from 0."""
    rows, columns = np.nonzero(allowed_entries(p, ordered))
    return rows, columns


def columns_of(entries: int, *, ordered: Order) -> int:
    """Return p of a graph with this many entries."""
    if isinstance(ordered, np.ndarray):
        return len(ordered)
    return round((1 + math.sqrt(1 + (8 if ordered else 4) * entries)) / 2)


def is_ordered(entries: Array, p: int) -> bool:
    """Return whether entries (chains, ...) are those of a graph in which each column acts on later
    ones only: half as many.
    """
    return bool(entries.shape[-1] < p * (p - 1))


def matrices(entries: Array, p: int, ordered: Order | None = None) -> Array:
    """Return matrices (chains, p, p) of entries (chains, p (p - 1)), zero elsewhere.

    ordered: if it is None, the number of entries says whether the order is known
    """
    known = is_ordered(entries, p) if ordered is None else ordered
    filled = np.zeros((len(entries), p, p))
    filled[:, *entry_positions(p, ordered=known)] = entries
    return filled


def rotation_pairs(p: int, number: int, *, ordered: Order) -> Indices:
    """Return p pairs of rows for the sweep of this number; an ordered graph has no rotations.

    They do not depend on data, and all chains and sites have the same ones. After a rotation both
    rows have the entries of either: so rows must be allowed the same ones, and each other.
    """
    allowed = allowed_entries(p, ordered)
    either = allowed | np.eye(p, dtype=bool)
    alike = (either[:, None] == either).all(axis=-1) & ~np.eye(p, dtype=bool)
    positions = np.argwhere(alike)
    rng = np.random.default_rng([p, number])
    return positions[rng.integers(max(len(positions), 1), size=p if len(positions) else 0)]


def draw_graph_noise(
    chains: int,
    p: int,
    law: ErrorLaw,
    prior: NoisePrior,
    rng: np.random.Generator,
    *,
    ordered: Order = False,
) -> GraphNoise:
    """Draw the variates of one sweep at a site."""
    rows, entries = (chains, p), (chains, len(entry_positions(p, ordered=ordered)[0]))
    return GraphNoise(
        location=rng.random((2, *rows)),
        move=rng.standard_normal(entries),
        chance=-rng.standard_exponential(entries),
        gamma=np.maximum(rng.standard_gamma(law.shape(prior), rows), MIN_GAMMA),
        angle=rng.uniform(-np.pi / 2, np.pi / 2, rows),
        turn=-rng.standard_exponential(rows),
        w=rng.standard_exponential(entries),
        v=rng.standard_exponential(entries),
    )


def joined_noise(parts: Sequence[GraphNoise]) -> GraphNoise:
    """Return the variates of several sites, whose chains are one site's after another's."""
    return GraphNoise(
        **{
            field.name: np.concatenate(
                [getattr(part, field.name) for part in parts], axis=int(field.name == "location")
            )
            for field in fields(GraphNoise)
        }
    )


def redrawn_scales(
    Y: Array,
    draw: GraphDraw,
    prior: NoisePrior,
    law: ErrorLaw,
    rng: np.random.Generator,
    ordered: Order | None = None,
) -> GraphDraw:
    """Return the draw with b_k drawn given normal errors, after moves with b_k integrated out."""
    size = law.size(Y - matrices(draw.theta, Y.shape[-2], ordered) @ Y)
    gamma = np.maximum(rng.standard_gamma(law.shape(prior), size.shape), MIN_GAMMA)
    s = clip_variance(law.row_powers * (prior.scale + size) / gamma)
    return replace(draw, b=s ** (1 / law.degree))


def sweep_graph(
    Y: Array,
    draw: GraphDraw,
    reach: Array,
    theta: Array,
    t: Array,
    prior: NoisePrior,
    law: ErrorLaw,
    noise: GraphNoise,
    pairs: Indices,
    redraw: Redraw | None = None,
    ordered: Order | None = None,
) -> tuple[GraphDraw, NDArray[np.bool_], NDArray[np.bool_]]:
    """Draw (4) to (8) once; return also which moves and rotations were accepted.

    Y: (p, n_k) or (chains, p, n_k), one record per column; for normal errors any columns with the
        same sums of squares and products about the means
    theta, t: from the coordinator, (chains, p (p - 1)); reach, of the same shape: see `step_sizes`
    pairs: of (7), the rows of each rotation, (turns, 2), see `rotation_pairs`
    redraw: draws the columns that the site lacks, before (8); it changes Y, too
    Moves are (chains, p (p - 1)), rotations (chains, p). All graphs in `draw` must have a spectral
    radius below 1; the returned graphs have one too.
    """
    p = Y.shape[-2]
    known = is_ordered(theta, p) if ordered is None else ordered
    graph = matrices(draw.theta, p, known)
    errors = Y - graph @ Y
    if law.degree == 1 and law.records:
        power = np.broadcast_to(law.shape(prior), draw.b.shape)
        errors -= Locations(errors, prior.scale).draw(power, noise.location)[..., None]
    square = clip_variance(2 * t / draw.v)
    steps = step_sizes(reach, square) * noise.move
    deviation = draw.theta - theta
    threshold = noise.chance + np.log((square + (deviation + steps) ** 2) / (square + deviation**2))
    allowed = allowed_entries(p, known)
    moved, size = move_entries(Y, graph, errors, steps, threshold, prior, law, allowed)
    scale = law.row_powers * (prior.scale + size)
    b = clip_variance(scale / noise.gamma) ** (1 / law.degree)
    means, squares = matrices(theta, p, known), matrices(square, p, known) + ~allowed
    turned = rotate_rows(
        graph, errors, b, means, squares, prior, law, pairs, noise.angle, noise.turn,
        allowed.sum(axis=1),
    )  # fmt: skip
    if redraw is not None:
        redraw(Y, graph, errors, b, means, squares)
    own = np.ascontiguousarray(graph[:, *entry_positions(p, ordered=known)])
    w = clip_variance((t / draw.v + (own - theta) ** 2 / 2) / noise.w)
    return GraphDraw(own, b, w, (1 + t / w) / noise.v), moved, turned
