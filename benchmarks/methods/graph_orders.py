"""Which arrows Laplace errors tell, by an exact sum over the orders of the columns: an oracle.

    python -m benchmarks.methods.graph_orders

For the eight sites of examples/sachs, p = 11, with the sites' medians taken off. The model is that
of `sparse_directed` but for three things: all sites have the same graph, it has no cycles, and the
evidence of a column given its parents is approximated by that of Schwarz (1978),

    -n log(min SUM_i |e_i| / n) - k log(n) / 2,   k parents, at most `MOST`                      (1)

where the minimum is that of median regression. The sum of the product of (1) over all columns, over
all orders and all parents before a column in the order, by dynamic programming over sets of columns
(Koivisto and Sood 2004, "Exact Bayesian structure discovery in Bayesian networks"), takes seconds.
Its prior is uniform over orders, so a graph with more orders has more weight.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Array = NDArray[np.float64]

MOST = 4
SHOWN = 0.05
_STEPS, _CLOSE = 20, 1e-4  # of median regression: its error in (1) is below 0.1 here


def least_deviation(y: Array, X: Array) -> float:
    """Return the least SUM |y - X beta|, by iteratively reweighted least squares."""
    beta = np.linalg.lstsq(X, y, rcond=None)[0]
    for _ in range(_STEPS):
        weighted = X.T / np.maximum(np.abs(y - X @ beta), _CLOSE)
        new = np.linalg.solve(weighted @ X, weighted @ y)
        done, beta = np.max(np.abs(new - beta), initial=0.0) < _CLOSE, new
        if done:
            break
    return float(np.abs(y - X @ beta).sum())


def scores(Z: Array) -> Array:
    """Return (1), (p, 2^p): of each column, given the set of parents whose bits are set."""
    n, p = Z.shape
    found = np.full((p, 1 << p), -np.inf)
    for j in range(p):
        others = [h for h in range(p) if h != j]
        for k in range(min(MOST, p - 1) + 1):
            for parents in combinations(others, k):
                least = least_deviation(Z[:, j], Z[:, list(parents)])
                at = sum(1 << h for h in parents)
                found[j, at] = -n * np.log(least / n) - k * np.log(n) / 2
    return found


def summed_over_subsets(values: Array) -> Array:
    """Return, for each set, log SUM exp over its subsets."""
    found = values.copy()
    every = np.arange(len(found))
    for h in range(len(found).bit_length() - 1):
        has = every[every >> h & 1 == 1]
        found[has] = np.logaddexp(found[has], found[has ^ (1 << h)])
    return found


def arrow_probabilities(score: Array) -> Array:
    """Return the probability of each arrow h -> j, at [h, j]."""
    p, full = len(score), (1 << len(score)) - 1
    sums = np.stack([summed_over_subsets(each) for each in score])
    before, after = np.full(full + 1, -np.inf), np.full(full + 1, -np.inf)
    before[0] = after[full] = 0.0
    for first in range(1, full + 1):
        within = [j for j in range(p) if first >> j & 1]
        before[first] = logsumexp(
            [before[first ^ (1 << j)] + sums[j, first ^ (1 << j)] for j in within]
        )
    for first in range(full - 1, -1, -1):
        left = [j for j in range(p) if not first >> j & 1]
        after[first] = logsumexp([after[first | (1 << j)] + sums[j, first] for j in left])
    every, found = np.arange(full + 1), np.zeros((p, p))
    for j in range(p):
        without = every[every >> j & 1 == 0]
        for h in range(p):
            if h != j:
                having = np.where(every >> h & 1 == 1, score[j], -np.inf)
                parts = before[without] + summed_over_subsets(having)[without]
                total = logsumexp(parts + after[without | (1 << j)])
                found[h, j] = np.exp(total - before[full])
    return found


def main() -> None:
    from reproductions.data import sachs  # noqa: PLC0415  # needs the package cdt

    names, values = list(sachs.PROTEINS.values()), np.log(sachs.intensities())
    cuts = [-(-i * len(values) // 8) for i in range(9)]  # as examples/sachs/make_data.py
    parts = [values[cuts[k] : cuts[k + 1]] for k in range(8)]
    Z = np.concatenate([part - np.median(part, axis=0) for part in parts])
    found = arrow_probabilities(scores(Z / Z.std(axis=0)))
    print("| arrow | probability | of the reversed arrow |\n|---|--:|--:|")
    for at in np.argsort(-found, axis=None):
        h, j = np.unravel_index(at, found.shape)
        if found[h, j] >= SHOWN:
            print(f"| {names[h]} -> {names[j]} | {found[h, j]:.3f} | {found[j, h]:.3f} |")


if __name__ == "__main__":
    main()
