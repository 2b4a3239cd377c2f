"""Graphs without cycles: an order of the columns that is drawn with the graph.

(prototype)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from secagg.core.arrays import Array
from secagg.models.sparse_bayes.joint.common_moves import Alternative
from secagg.models.sparse_bayes.laplace_graph import entry_positions
from secagg.models.sparse_bayes.metropolis.alternatives import MAX_PAIRS
from secagg.models.sparse_bayes.spike_slab import Common

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

_SHIFTS = np.array([0.3, 1.0, 3.0])
_SPREADS = np.array([0.02, 0.1])
_SHARES = np.array([0.0, 0.5, 1.0, 1.0, 1.0])
_LEAST = 0.05


def places(order: Indices) -> Indices:
    """Return which of the p (p - 1) entries each entry in the order's positions is, (chains, E)."""
    p = order.shape[1]
    rows, columns = entry_positions(p, ordered=True)
    return place(order[:, rows], order[:, columns], p)


def place(j: Indices, h: Indices, p: int) -> Indices:
    return j * (p - 1) + h - (h > j)


def neighbours(p: int, number: int) -> Indices:
    start = number % 2 if p > 2 else 0
    first = start + 2 * np.arange((p - start) // 2)
    count = min(max((p - 1) // 2, 1), MAX_PAIRS)
    chosen = np.sort(np.random.default_rng([p, number]).permutation(len(first))[:count])
    return np.stack([first[chosen], first[chosen] + 1], axis=1)


def gathered(values: Array, at: Indices) -> Array:
    return np.take_along_axis(values, at, axis=-1)


def scattered(values: Array, at: Indices, size: int, fill: float = 0.0) -> Array:
    found = np.full((len(values), size), fill)
    np.put_along_axis(found, at, values, axis=1)
    return found


def flipped_order(order: Indices, pairs: Indices, taken: Flags) -> Indices:
    found = order.copy()
    for (i, k), flags in zip(pairs, taken.T, strict=True):
        found[flags, i], found[flags, k] = order[flags, k], order[flags, i]
    return found


def flipped_places(order: Indices, pairs: Indices, taken: Flags) -> Indices:
    """places(order), with the arrow of each pair taken reversed."""
    p = order.shape[1]
    rows, columns = entry_positions(p, ordered=True)
    found = places(order)
    for (i, k), flags in zip(pairs, taken.T, strict=True):
        e = np.flatnonzero((rows == k) & (columns == i))[0]
        found[flags, e] = place(order[flags, i], order[flags, k], p)
    return found


def propose_flips(
    graphs: Array, pairs: Indices, records: int, rng: np.random.Generator
) -> Alternative:
    chains, p, _ = graphs.shape
    made = graphs.copy()
    reversal = rng.random((chains, len(pairs))) < 0.8
    weight = np.zeros(reversal.shape)
    cov = covariances(graphs)
    for i, (j, h) in enumerate(pairs):
        step = rng.choice(_SHIFTS, chains) * rng.standard_normal(chains) / np.sqrt(records)
        shifted = graphs[:, [j, h]]
        shifted[:, 1, j] += step
        turned, volume = _reversed(graphs[:, [j, h]], j, cov[:, :j, :j], rng)
        flags = reversal[:, i]
        made[:, [j, h]] = np.where(flags[:, None, None], turned, shifted)
        weight[:, i] = np.where(flags, volume, 0.0)
    rows, columns = entry_positions(p, ordered=True)
    return Alternative(made[:, rows, columns], reversal, weight)


def covariances(graphs: Array) -> Array:
    chains, p, _ = graphs.shape
    cov = np.tile(np.eye(p), (chains, 1, 1))
    for i in range(1, p):
        cov[:, i, :i] = cov[:, :i, i] = np.einsum("cl,clm->cm", graphs[:, i, :i], cov[:, :i, :i])
    return cov


def _centre(first: Array, second: Array, y: Array, cov: Array) -> Array:
    """log of the ratio of scales; first (chains, before), second, y the effect of the first."""
    to = np.einsum("cl,clm->cm", first, cov)
    one = 1 - (to * first).sum(axis=1)
    two = 1 - (np.einsum("cl,clm->cm", second, cov) * second).sum(axis=1)
    two = two - 2 * y * (second * to).sum(axis=1) - y**2
    return np.log(np.maximum(one, _LEAST) / np.maximum(two, _LEAST)) / 2


def _reversed(
    rows: Array, j: int, cov: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    chains, _, p = rows.shape
    y = rows[:, 1, j]
    centre = _centre(rows[:, 0, :j], rows[:, 1, :j], y, cov)
    spread = rng.choice(_SPREADS, chains)
    log_r = centre + spread * rng.standard_normal(chains)
    r = np.exp(log_r)
    u = y * r
    # U = Q L: angle a with tan a = u
    c, s = 1 / np.sqrt(1 + u**2), u / np.sqrt(1 + u**2)
    new_log_r = log_r - np.log1p(u**2)
    x = u * np.exp(new_log_r)
    # scales, b_h = 1: b_j = r; b_j' = r c, b_h' = 1 / c
    W = np.stack([-rows[:, 0] / r[:, None], -rows[:, 1]], axis=1)
    first = c[:, None] * W[:, 0] - s[:, None] * W[:, 1]
    second = s[:, None] * W[:, 0] + c[:, None] * W[:, 1]
    turned = np.stack([-first * (r * c)[:, None], -second / c[:, None]], axis=1)
    share = rng.choice(_SHARES, chains)
    rotated = rng.random((chains, p)) < share[:, None]
    new = np.where(rotated[:, None], turned, rows)
    new[:, 0, j], new[:, 1, j] = 0.0, x  # in the place of the arrow that it replaces
    back = _centre(new[:, 1, :j], new[:, 0, :j], x, cov)
    weight = log_r + new_log_r
    weight += (log_r - centre) ** 2 / (2 * spread**2)
    weight -= (-new_log_r - back) ** 2 / (2 * spread**2)
    return new, weight


def rows_in_pairs(order: Indices, pairs: Indices, taken: Flags) -> Flags:
    chains, p = order.shape
    rows = np.zeros((chains, p), dtype=bool)
    for two, flags in zip(pairs, taken.T, strict=True):
        np.put_along_axis(rows, order[:, two], rows[np.arange(chains)[:, None], order[:, two]] | flags[:, None], axis=1)
    return rows[:, entry_positions(p)[0]]


_AGAINST = {"theta": 0.0, "t": 1.0, "x": 1.0, "g": 0.0, "inclusion": 0.0}


def common_of(now: Common, at: Indices, size: int) -> Common:
    found = {}
    for name, values in vars(now).items():
        if name == "rho":
            found[name] = values
        elif name == "eta":
            found[name] = np.repeat(values[:, :1], size, axis=1)
        else:
            found[name] = scattered(values, at, size, _AGAINST[name])
    return Common(**found)
