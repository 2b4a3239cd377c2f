"""Records with a known graph over continuous and binary columns."""

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from secagg.core.arrays import Array

SWEEPS = 200
Graph = NDArray[np.bool_]


def pairwise_mixed(d: int, n: int, seed: int) -> tuple[pd.DataFrame, Graph]:
    """Return n independent records of a pairwise mixed model, and its graph.

    Lee and Hastie (2015), "Learning the structure of mixed graphical models": given all others, a
    continuous column is normal with variance 1 and a mean that is linear in them, and a binary
    column is logistic in them. Every third column is binary. The graph has d edges, drawn anew
    until the density exists. Each record is the end of a Gibbs chain of its own.
    """
    rng = np.random.default_rng([d, seed])
    binary = np.arange(d) % 3 == 2
    pairs = np.transpose(np.triu_indices(d, k=1))
    while True:
        chosen = pairs[rng.permutation(len(pairs))[:d]]
        weights = np.zeros((d, d))
        sizes = rng.uniform(0.3, 0.5, d) * rng.choice([-1, 1], d)
        weights[chosen[:, 0], chosen[:, 1]] = weights[chosen[:, 1], chosen[:, 0]] = sizes
        smooth = weights[np.ix_(~binary, ~binary)]
        if np.linalg.eigvalsh(np.eye(len(smooth)) - smooth)[0] > 0.2:
            break
    values = rng.choice([-1.0, 1.0], (n, d))
    for _ in range(SWEEPS):
        for j in range(d):
            centre = values @ weights[:, j]
            if binary[j]:
                values[:, j] = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * centre)), 1.0, -1.0)
            else:
                values[:, j] = centre + rng.normal(size=n)
    return _table(values, binary), weights != 0


def curved(d: int, n: int, seed: int) -> tuple[pd.DataFrame, Graph]:
    """Return n records in which every other dependence is quadratic, and the moral graph.

    Each column but the first has one earlier parent; every third column is binary.
    """
    rng = np.random.default_rng([d, seed, 1])
    binary = np.arange(d) % 3 == 2
    values, graph = np.zeros((n, d)), np.zeros((d, d), dtype=np.bool_)
    for j in range(d):
        centre = np.zeros(n)
        if j:
            parent = int(rng.choice(np.flatnonzero(~binary[:j])))
            x = values[:, parent] / np.std(values[:, parent])
            centre = (x**2 - 1) / np.sqrt(2) if j % 2 else x
            graph[parent, j] = graph[j, parent] = True
        noise = rng.logistic(size=n) / 2 if binary[j] else rng.normal(size=n)
        values[:, j] = np.where(centre + noise > 0, 1.0, -1.0) if binary[j] else centre + noise
    return _table(values, binary), graph


def f1(found: Graph, truth: Graph) -> float:
    """Return the edges' F1 score."""
    upper = np.triu_indices(len(truth), k=1)
    hits = np.sum(found[upper] & truth[upper])
    total = np.sum(found[upper]) + np.sum(truth[upper])
    return float(2 * hits / total) if total else 1.0


def _table(values: Array, binary: Graph) -> pd.DataFrame:
    columns = {f"v{j}": values[:, j] > 0 if binary[j] else values[:, j] for j in range(len(binary))}
    return pd.DataFrame({n: c.astype(int) if c.dtype == bool else c for n, c in columns.items()})
