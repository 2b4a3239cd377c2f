"""Graphs without cycles whose order is not known: each chain has an order of its columns.

Given an order, a column acts only on later ones, so det A is 1, and the rows are independent
regressions: the sampler of `ordered` graphs. The prior of the order is uniform over all p! orders,
and that of the p (p - 1) / 2 entries of the graph is the same for each. So the prior of a graph of
slabs without cycles is proportional to the number of orders that it agrees with (Koivisto and Sood
2004, "Exact Bayesian structure discovery in Bayesian networks").

A chain's arrays have all p (p - 1) entries, by the names of the columns, and 0 where a column would
act on an earlier one. Steps of `ordered` graphs read them by positions: `Orders.inner`.

A round has an alternative for each of some pairs of neighbours in the order, no column in two of
them: for j and then h, with the effect y of j on h, the graph in which h is before j and has the
effect x on it. With A = I - Theta and r = b_j / b_h, the rotation of the rows of j and h that makes
the effect of j on h 0,

    W_j' = cos(a) W_j - sin(a) W_h,  W_h' = sin(a) W_j + cos(a) W_h,  W_j = A_j / b_j,
    u = y r,  tan(a) = u,  r' = r / (1 + u^2),  x = u r'                                         (1)

keeps the law of records with normal errors (Grzegorczyk and Husmeier 2008, "Improving the structure
MCMC sampler for Bayesian networks by introducing a new edge reversal move"). The effects of some
earlier columns only are rotated: of all, of none, or of a random half. All that belongs to an entry
of rows j and h, and to the arrow between them, is kept: the differences of sites, t, x and g.

log r is drawn from f, normal about the logarithm of the ratio of the standard deviations of the
errors with which each column has variance 1. (1) keeps b_j b_h and the volume of the rotated
effects. u stays, and log r' = log r - log(1 + u^2), so (y, log r) have the volume r r'. Back from
(x, -log r') leads the same step, so a reversal has the weight

    r r' f'(-log r') / f(log r)                                                                  (2)

Other reversals: `secagg.models.sparse_bayes.joint.direction_means`.

Pairs are chosen independently, as the likelihood is a product over rows. f depends on the pair's
rows and on those before it only: that is as if the last pair were chosen first.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Update
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.joint.common_moves import Alternative
from secagg.models.sparse_bayes.laplace_graph import GraphDraw, entry_positions, matrices
from secagg.models.sparse_bayes.metropolis.alternatives import MAX_PAIRS
from secagg.models.sparse_bayes.spike_slab import Common

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

_SPREAD = 0.1  # standard deviation of log r
_SHARES = np.array([0.0, 0.5, 1.0, 1.0])  # of earlier columns that are rotated
_LEAST = 0.05  # of an error's variance
_ABSENT = {"theta": 0.0, "t": 1.0, "x": 1.0, "g": 0.0, "inclusion": 0.0, "w": 1.0, "v": 1.0}
"""What is stored for an entry that a graph does not have. Nothing reads it."""


def neighbours(p: int, number: int) -> Indices:
    """Return the pairs of positions (pairs, 2) of a round, which all parties know."""
    start = number % 2 if p > 2 else 0
    first = start + 2 * np.arange((p - start) // 2)
    count = min(max((p - 1) // 2, 1), MAX_PAIRS)
    chosen = np.sort(np.random.default_rng([p, number]).permutation(first)[:count])
    return np.stack([chosen, chosen + 1], axis=1)


@dataclass(frozen=True)
class Orders:
    """The orders of all chains.

    columns: the column at each position, (chains, p)
    """

    columns: Indices

    @property
    def p(self) -> int:
        return int(self.columns.shape[1])

    @cached_property
    def places(self) -> Indices:
        """Which of all p (p - 1) entries the entries of the graph are, (chains, p (p - 1) / 2)."""
        rows, sources = entry_positions(self.p, ordered=True)
        return self._place(self.columns[:, rows], self.columns[:, sources])

    def places_after(self, pairs: Indices, reversal: Flags) -> Indices:
        """Return `places` with the arrow between the columns of these pairs reversed."""
        rows, sources = entry_positions(self.p, ordered=True)
        found = self.places.copy()
        for (i, k), flags in zip(pairs, reversal.T, strict=True):
            at = np.flatnonzero((rows == k) & (sources == i))[0]
            found[flags, at] = self._place(self.columns[flags, i], self.columns[flags, k])
        return found

    def after(self, pairs: Indices, reversal: Flags) -> Orders:
        """Return the orders in which the columns of these pairs have changed places."""
        found = self.columns.copy()
        for (i, k), flags in zip(pairs, reversal.T, strict=True):
            found[flags, i], found[flags, k] = self.columns[flags, k], self.columns[flags, i]
        return Orders(found)

    def in_pairs(self, pairs: Indices, taken: Flags) -> Flags:
        """Return which of all entries are in a row of a pair taken, (chains, p (p - 1))."""
        positions, columns = (np.zeros(self.columns.shape, dtype=bool) for _ in range(2))
        positions[:, pairs] = taken[..., None]
        np.put_along_axis(columns, self.columns, positions, axis=1)
        return columns[:, entry_positions(self.p)[0]]

    def present(self) -> Array:
        """Return 1 for each of all entries that the graph has, otherwise 0."""
        return outer(np.ones(self.places.shape), self.places, self.p)

    def by_position(self, values: Array) -> Array:
        """Return values of columns (chains, p, ...) by position."""
        at = self.columns.reshape(*self.columns.shape, *[1] * (values.ndim - 2))
        return np.take_along_axis(values, at, axis=1)

    def graphs_by_position(self, entries: Array) -> Array:
        """Return graphs (chains, p, p) by position, from all entries."""
        rows = self.by_position(matrices(entries, self.p))
        return np.swapaxes(self.by_position(np.swapaxes(rows, 1, 2)), 1, 2)

    def inner_draw(self, draw: GraphDraw) -> GraphDraw:
        """Return a site's draw by position."""
        theta, w, v = (inner(each, self.places) for each in (draw.theta, draw.w, draw.v))
        return GraphDraw(theta, self.by_position(draw.b), w, v)

    def outer_draw(self, draw: GraphDraw) -> GraphDraw:
        """Return a site's draw by position, with all entries and by column."""
        b = np.take_along_axis(draw.b, np.argsort(self.columns, axis=1), axis=1)
        theta, w, v = (
            outer(getattr(draw, name), self.places, self.p, _ABSENT[name])
            for name in ("theta", "w", "v")
        )
        return GraphDraw(theta, b, w, v)

    def inner_round(
        self, now: Common, sums: Update, other: Alternative, pairs: Indices
    ) -> tuple[Common, Update, Alternative]:
        """Return the coordinator's draws, its sums and an alternative, by position.

        An arrow and the reversed one have the same position: no entry changes its place.
        """
        common = {
            name: each if name == "rho" else inner(each, self.places)
            for name, each in vars(now).items()
        }
        theta = inner(other.theta, self.places_after(pairs, other.reversal))
        nothing = np.zeros_like(other.reversal)
        sums = {name: inner(values, self.places) for name, values in sums.items()}
        return Common(**common), sums, replace(other, theta=theta, reversal=nothing)

    def alternative(
        self, other: Array, draw: GraphDraw, theta: Array, pairs: Indices, reversal: Flags
    ) -> tuple[Array, Array, Array]:
        """Return a site's entries and v of an alternative, and its graph (chains, p, p).

        other: the common alternative, and what is returned: all entries; draw, theta: the site's
            and the common one, and the graph: by position, before the reversals
        """
        places = self.places_after(pairs, reversal)
        mine = outer(inner(other, places) + draw.theta - theta, places, self.p)
        return mine, outer(draw.v, places, self.p, 1.0), self.graphs_by_position(mine)

    def _place(self, targets: Indices, sources: Indices) -> Indices:
        found: Indices = targets * (self.p - 1) + sources - (sources > targets)
        return found


def first_orders(chains: int, p: int, seed: int) -> Array:
    """Return the orders with which chains begin, drawn from their prior; all parties know them."""
    rng = np.random.default_rng([seed, 0, 0])
    return np.argsort(rng.random((chains, p)), axis=1).astype(np.float64)


def is_order(sent: Array) -> bool:
    """Return whether each row of a message has each column once."""
    return bool(np.all(np.sort(sent, axis=1) == np.arange(sent.shape[1])))


def inner(values: Array, places: Indices) -> Array:
    """Return the values of the entries at these places, (chains, p (p - 1) / 2)."""
    return np.take_along_axis(values, places, axis=1)


def outer(values: Array, places: Indices, p: int, absent: float = 0.0) -> Array:
    """Return all entries (chains, p (p - 1)) from those at these places."""
    found = np.full((len(values), p * (p - 1)), absent)
    np.put_along_axis(found, places, values, axis=1)
    return found


def outer_common(now: Common, places: Indices, p: int) -> Common:
    """Return the coordinator's draw of all entries."""
    found = {
        name: outer(each, places, p, _ABSENT[name])
        for name, each in vars(now).items()
        if name in _ABSENT
    }
    eta = np.repeat(now.eta[:, :1], p * (p - 1), axis=1)  # all entries share it
    return Common(**found, eta=eta, rho=now.rho)


def propose_reversals(graphs: Array, pairs: Indices, rng: np.random.Generator) -> Alternative:
    """Return an alternative of the common graphs (chains, p, p), all by position.

    The effect x of a reversal is in the place of y.
    """
    chains, p, _ = graphs.shape
    made, covariance = graphs.copy(), covariances(graphs)
    weight = np.zeros((chains, len(pairs)))
    for i, two in enumerate(pairs):
        made[:, two], weight[:, i] = _reversed(graphs[:, two], two[0], covariance, rng)
    rows, sources = entry_positions(p, ordered=True)
    return Alternative(made[:, rows, sources], np.ones(weight.shape, dtype=bool), weight)


def covariances(graphs: Array) -> Array:
    """Return those of columns of variance 1 with these graphs (chains, p, p), by position."""
    found = np.tile(np.eye(graphs.shape[1]), (len(graphs), 1, 1))
    for i in range(1, graphs.shape[1]):
        with_earlier = np.einsum("ch,chj->cj", graphs[:, i, :i], found[:, :i, :i])
        found[:, i, :i] = found[:, :i, i] = with_earlier
    return found


def _reversed(
    rows: Array, i: int, covariance: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the rows of positions i and i + 1, (chains, 2, p), after (1), and log (2)."""
    chains, _, p = rows.shape
    y, earlier = rows[:, 1, i], covariance[:, :i, :i]
    centre = _log_ratio(rows[:, 0, :i], rows[:, 1, :i], y, earlier)
    log_r = centre + _SPREAD * rng.standard_normal(chains)
    r = np.exp(log_r)[:, None]
    u = y * r[:, 0]
    new_log_r, c = log_r - np.log1p(u**2), 1 / np.sqrt(1 + u**2)[:, None]
    x, s = u * np.exp(new_log_r), u[:, None] * c
    # with b_h = 1: b_j = r, b_j' = c r, b_h' = 1 / c
    turned = np.stack(
        [c**2 * rows[:, 0] - s * c * r * rows[:, 1], s / (c * r) * rows[:, 0] + rows[:, 1]], axis=1
    )
    rotated = rng.random((chains, p)) < rng.choice(_SHARES, (chains, 1))
    new = np.where(rotated[:, None], turned, rows)
    new[:, 0, i], new[:, 1, i] = 0.0, x
    back = _log_ratio(new[:, 1, :i], new[:, 0, :i], x, earlier)
    weight = log_r + new_log_r
    weight += ((log_r - centre) ** 2 - (new_log_r + back) ** 2) / (2 * _SPREAD**2)
    return new, weight


def _log_ratio(first: Array, second: Array, effect: Array, covariance: Array) -> Array:
    """Return the centre of f.

    first, second: effects (chains, i) of the i earlier columns on the first column of a pair and
        on the second; effect: of the first on the second; covariance: of the earlier columns
    """
    with_first = np.einsum("ch,chj->cj", first, covariance)
    with_second = np.einsum("ch,chj->cj", second, covariance)
    explained = (with_first * first).sum(axis=1)
    others = (with_second * second).sum(axis=1)
    others = others + 2 * effect * (with_first * second).sum(axis=1) + effect**2
    logs = (np.log(np.maximum(1 - part, _LEAST)) for part in (explained, others))
    return np.asarray(next(logs) - next(logs)) / 2
