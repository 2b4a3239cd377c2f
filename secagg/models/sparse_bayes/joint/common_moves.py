"""Moves of the common graph and of all sites' graphs together: reversals and shifts.

Sites draw their graphs close to the common one, and the common one is drawn close to theirs. So
drawn in turn they can neither reverse an arrow that all sites have, nor move it far. Here they move
together: the common graph from Theta to Theta', and each site's graph with it, so that no
difference d = Theta_k - Theta changes, or only changes its place. The density of the differences
then stays as it is. What changes is the prior of Theta, with g_jh integrated out of it, and the
likelihood of the sites, of which they send the logarithm
(`secagg.models.sparse_bayes.metropolis.alternatives`), with scales and constants integrated out.

A round has an alternative for each of some pairs of columns (j, h), no column in two of them. It is
Theta or Theta' in row j and row h, one of

* a shift: theta_jh, theta_hj or both change by normal steps;
* a rotation of the two rows, as in `secagg.models.sparse_bayes.metropolis.rotations`,

      W_j' = cos(a) W_j - sin(a) W_h,  W_h' = sin(a) W_j + cos(a) W_h,  W_j = A_j / b_j          (1)

  with A = I - Theta, by a random angle a and with a random ratio r = b_j / b_h (the common graph
  has no scales b of its own). The effects of some columns only are rotated, which include j and h:
  of all, of none but these two, or of a random half of the others;
* a reversal: the rotation by the angle that exchanges the scaled effects x = theta_jh / r and
  y = r theta_hj, tan(a + arctan y) = x, after Grzegorczyk and Husmeier (2008, "Improving the
  structure MCMC sampler for Bayesian networks by introducing a new edge reversal move"). The
  differences, t, x and g exchange their places jh and hj, too.

If all columns are rotated and r is the ratio of the error scales, (1) keeps the law of records with
normal errors. Columns have variance 1; if no others acted on j and h, r^2 would be
(1 - theta_jh^2) / (1 - theta_hj^2). log r is drawn from f, a normal density about that.

A shift keeps volumes. (1) does in W; theta_jc and log b in terms of W have the volume b^C for each
row, C the number of columns rotated. So a rotation has the weight (b_j' b_h' / b_j b_h)^C f' / f.
That by -a leads back, and a reversal is its own inverse, as it reflects a on the circle about a
point that a does not change. So the draw of one of the sets of pairs with probabilities
proportional to the posterior times these weights leaves the posterior as it is: from each of these
graphs the other ones are found with the same density (Liu and Sabatti 2000, "Generalised Gibbs
sampler and multigrid Monte Carlo").
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from secagg.contracts import Update
from secagg.core.arrays import Array
from secagg.models.sparse_bayes.laplace_graph import (
    Order,
    allowed_entries,
    entry_positions,
    is_ordered,
)
from secagg.models.sparse_bayes.metropolis.alternatives import subsets
from secagg.models.sparse_bayes.spike_slab import Common, SpikeSlab

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

_SHIFTS = np.array([0.3, 1.0, 3.0])  # standard deviations, over 1 / root(records)
_ANGLES = np.array([0.03, 0.1, 0.3, np.inf])  # standard deviations; the last: uniform
_SPREAD = 0.2  # standard deviation of log r
_LEAST = 0.05  # of 1 - theta^2
_FARTHEST = 1e6  # effect that is proposed


@dataclass(frozen=True)
class Alternative:
    """An alternative of each pair.

    theta: Theta', (chains, entries); reversal: which pairs are reversals, (chains, pairs); weight:
        the logarithm of volume times f' / f, (chains, pairs)
    """

    theta: Array
    reversal: Flags
    weight: Array


def exchange_places(pairs: Indices, reversal: Flags, p: int, *, ordered: Order) -> Indices:
    """Return, for each entry, the place from which its difference comes, (chains, entries)."""
    rows, columns = entry_positions(p, ordered=ordered)
    place = np.zeros((p, p), dtype=np.int64)
    place[rows, columns] = np.arange(len(rows))
    found = np.tile(np.arange(len(rows)), (len(reversal), 1))
    for (j, h), flags in zip(pairs, reversal.T, strict=True):
        found[flags, place[j, h]], found[flags, place[h, j]] = place[h, j], place[j, h]
    return found


def in_pairs(pairs: Indices, taken: Flags, p: int, *, ordered: Order) -> Flags:
    """Return which entries are in a row of a pair taken, (chains, entries)."""
    rows = np.zeros((len(taken), p), dtype=bool)
    for two, flags in zip(pairs, taken.T, strict=True):
        rows[:, two] = flags[:, None]
    return rows[:, entry_positions(p, ordered=ordered)[0]]


def propose(
    graphs: Array, pairs: Indices, records: int, rng: np.random.Generator, *, ordered: Order
) -> Alternative:
    """Return an alternative of the common graphs (chains, p, p)."""
    chains, p, _ = graphs.shape
    allowed = allowed_entries(p, ordered)
    made, reversal = graphs.copy(), np.zeros((chains, len(pairs)), dtype=bool)
    weight = np.zeros(reversal.shape)
    for i, two in enumerate(pairs):
        j, h = two
        step = rng.choice(_SHIFTS, (chains, 1)) * rng.standard_normal((chains, 2))
        step *= (rng.integers(1, 4, (chains, 1)) & [1, 2] > 0) / np.sqrt(records)
        shifted = graphs[:, two]
        shifted[:, 0, h] += step[:, 0] * allowed[j, h]
        shifted[:, 1, j] += step[:, 1] * allowed[h, j]
        kind = rng.integers(4, size=chains) * (allowed[j, h] & allowed[h, j])
        turned, volume = _rotated(graphs[:, two], two, kind == 1, allowed[two].all(axis=0), rng)
        made[:, two] = np.where((kind == 0)[:, None, None], shifted, turned)
        reversal[:, i], weight[:, i] = kind == 1, np.where(kind == 0, 0.0, volume)
    rows, columns = entry_positions(p, ordered=ordered)
    return Alternative(made[:, rows, columns], reversal, weight)


def _rotated(
    rows: Array, two: Indices, reversal: Flags, both: Flags, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return two rows (chains, 2, p) of Theta after (1), and the logarithm of the weight.

    both: which columns may act on both, (p,); others are not rotated
    """
    chains, _, p = rows.shape
    unit = np.eye(p)[two]
    centre = _log_ratio(rows, two)
    log_r = centre + _SPREAD * rng.standard_normal(chains)
    r = np.exp(log_r)
    size = rng.choice(_ANGLES, chains)
    angle = np.where(
        np.isinf(size),
        rng.uniform(-np.pi / 2, np.pi / 2, chains),
        np.where(np.isinf(size), 1.0, size) * rng.standard_normal(chains),
    )
    x, y = np.arctan(rows[:, 0, two[1]] / r), np.arctan(rows[:, 1, two[0]] * r)
    angle = np.where(reversal, y - x, angle)
    c, s = np.cos(angle), np.sin(angle)
    A = unit - rows
    first = c[:, None] * A[:, 0] - (s * r)[:, None] * A[:, 1]
    second = (s / r)[:, None] * A[:, 0] + c[:, None] * A[:, 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        scales = np.abs(np.stack([first[:, two[0]], second[:, two[1]]]))  # b / b'
        turned = np.stack([first / first[:, [two[0]]], second / second[:, [two[1]]]], axis=1)
    share = rng.choice([0.0, 0.5, 1.0, 1.0], chains)
    rotated = (rng.random((chains, p)) < share[:, None]) & both
    rotated[:, two] = True
    new = np.where(rotated[:, None], unit - turned, rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        new_log_r = log_r - np.log(scales[0]) + np.log(scales[1])
        weight = -rotated.sum(axis=1) * np.log(scales).sum(axis=0)
        weight += (log_r - centre) ** 2 / (2 * _SPREAD**2)
        weight -= (new_log_r - _log_ratio(new, two)) ** 2 / (2 * _SPREAD**2)
    possible = np.isfinite(weight) & np.all(np.abs(new) < _FARTHEST, axis=(1, 2))
    new = np.where(possible[:, None, None], new, rows)  # as if there were no alternative
    return new, np.where(possible, weight, 0.0)


def _log_ratio(rows: Array, two: Indices) -> Array:
    """Return the centre of f."""
    x, y = rows[:, 0, two[1]], rows[:, 1, two[0]]
    return np.asarray(np.log(np.maximum(1 - x**2, _LEAST) / np.maximum(1 - y**2, _LEAST)) / 2)


def choose(
    now: Common,
    total: Update,
    other: Alternative,
    scores: Array,
    pairs: Indices,
    prior: SpikeSlab,
    rng: np.random.Generator,
    *,
    p: int,
    ordered: Order | None = None,
) -> tuple[Common, Update, Flags]:
    """Return draws and sums after the choice, and the pairs that were taken, (chains, pairs).

    scores: of all alternatives at the chain's own power, (chains, 2^pairs)
    """
    known = is_ordered(now.theta, p) if ordered is None else ordered
    gain = log_prior(other.theta, now, prior) - log_prior(now.theta, now, prior)
    every = np.ones(other.reversal.shape, dtype=bool)
    gains = np.stack(
        [
            np.where(in_pairs(pairs[[i]], every[:, [i]], p, ordered=known), gain, 0.0).sum(axis=1)
            for i in range(len(pairs))
        ],
        axis=1,
    )
    sets = subsets(len(pairs))
    weights = scores + (other.weight + gains) @ sets.T
    taken = sets[np.argmax(weights + rng.gumbel(size=weights.shape), axis=1)]
    places = exchange_places(pairs, taken & other.reversal, p, ordered=known)

    def moved(values: Array) -> Array:
        return np.take_along_axis(values, places, axis=1)

    changed = in_pairs(pairs, taken, p, ordered=known)
    theta = np.where(changed, other.theta, now.theta)
    now = replace(now, theta=theta, t=moved(now.t), x=moved(now.x), g=moved(now.g))
    return now, {name: moved(values) for name, values in total.items()}, taken


def log_prior(theta: Array, now: Common, prior: SpikeSlab) -> Array:
    """Return the log density of theta with g integrated out, given eta and rho."""

    def part(share: Array, variance: Array) -> Array:
        return np.asarray(share[..., None] - np.log(variance) / 2 - theta**2 / (2 * variance))

    slab = part(np.log(now.rho), now.eta)
    return np.asarray(np.logaddexp(slab, part(np.log1p(-now.rho), prior.narrow(now.eta))))
